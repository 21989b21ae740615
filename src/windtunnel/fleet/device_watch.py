"""Alarms and explanations by the counters of GPUs and NICs: of this machine by NVML and /sys, and by exporters.

Counters of GPUs and NICs as exporters tell them (Prometheus text), by the names of DCGM and of node_exporter: what is wrong.

Names: dcgm-exporter's default and profiling counters; node_exporter's collectors infiniband and ethtool. Rises are counted from the
first sample on. Congestion (pauses, ECN marks, waits) is no fault of a machine: it only explains slow links.
"""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.text import clean
from windtunnel.fleet.agent.gpu_health import LOOK_SECONDS, GpuHealth, node_gpus
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.monitor import Alarm

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>[-+.\deE]+|NaN|[+-]Inf)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

RISES: Mapping[str, tuple[float, str]] = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (1, "has memory errors that ECC did not correct"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": (1000, "has sent PCIe packets again"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (1, "has NVLink CRC errors of flits"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": (1, "has NVLink CRC errors of data"),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": (1, "has NVLink replay errors"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (1, "has NVLink recovery errors"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (0, "cannot replace broken rows of its memory any more"),
    "node_infiniband_link_downed_total": (1, "has lost its link"),
    "node_infiniband_link_error_recovery_total": (1, "has recovered its link from errors"),
    "node_infiniband_symbol_error_total": (100, "has symbol errors"),
    "node_infiniband_port_errors_received_total": (100, "has received broken packets"),
    "node_infiniband_local_link_integrity_errors_total": (1, "has errors of the link's integrity"),
    "node_infiniband_excessive_buffer_overrun_errors_total": (1, "has overrun its buffers"),
}
"""Counter → (rise from which it is told, what it says); 0: its value, whatever it was before. As in `agent.gpu_health`."""
CONGESTION: Mapping[str, tuple[float, str]] = {
    "node_infiniband_port_transmit_wait_total": (1e6, "has waited to send"),
    "node_ethtool_rx_pause": (1000, "was paused by PFC"),
    "node_ethtool_np_ecn_marked_roce_packets": (1000, "has received packets with ECN marks"),
    "node_ethtool_np_cnp_sent": (1000, "has told senders of congestion"),
}
_PRIORITY_PAUSE = re.compile(r"node_ethtool_(?:received_)?rx_prio\d_pause")
_REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
THROTTLED: Mapping[int, str] = {
    0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"
}  # fmt: skip
"""Bits of NVML's reasons for a lower clock that are no normal ones."""
_XID, _SM_ACTIVE = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_PROF_SM_ACTIVE"
LASTS = 3
"""Samples in a row that show a GPU throttled or idle until it is told: short ones are normal."""
_BUSY, _IDLE_SHARE = 0.3, 0.5


def parse_samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of each sample in Prometheus's text; what is none is left out."""
    found = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match is not None:
            found.append((match["name"], dict(_LABEL.findall(match["labels"] or "")), float(match["value"])))
    return found


@dataclass
class CounterWatch:
    """What the samples of one exporter say, since the first of them."""

    _before: dict[tuple[str, str], float] = field(default_factory=dict)
    _lasts: dict[str, int] = field(default_factory=dict)
    _told: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def look(self, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Faults, and congestion, a sentence each, such as `GPU 3 of node7 has NVLink replay errors: 12`. No text, of an exporter
        that does not answer: as before.
        """
        if not text:
            return self._told
        faults: dict[str, None] = {}
        congestion: dict[str, None] = {}
        active: dict[str, float] = {}
        lasting: set[str] = set()
        for name, labels, value in parse_samples(text):
            if value != value:
                continue
            device = _device_of(labels)
            if name in RISES and (told := self._risen(name, device, value, *RISES[name])):
                faults[told] = None
            elif name in CONGESTION or _PRIORITY_PAUSE.fullmatch(name):
                least, what = CONGESTION.get(name, CONGESTION["node_ethtool_rx_pause"])
                congestion |= {told: None} if (told := self._risen(name, device, value, least, what)) else {}
            elif name in _REASONS and (why := [reason for bit, reason in THROTTLED.items() if int(value) & bit]):
                lasting.add(f"{device} is throttled: {' and '.join(why)}")
            elif name == _XID and value > 0:
                faults[f"{device} reports Xid {value:.0f}"] = None
            elif name == _SM_ACTIVE:
                active[device] = value
        lasting |= {f"{device} computes less than the others: its SMs are far less active" for device in _idle_devices(active)}
        self._lasts = {sentence: self._lasts.get(sentence, 0) + 1 for sentence in lasting}
        faults |= {sentence: None for sentence in sorted(lasting) if self._lasts[sentence] >= LASTS}
        self._told = tuple(faults), tuple(congestion)
        return self._told

    def _risen(self, name: str, device: str, value: float, least: float, what: str) -> str:
        if not least:
            return f"{device} {what}" if value > 0 else ""
        before = self._before.setdefault((name, device), value)
        if value < before:  # the exporter or the machine began anew
            self._before[name, device] = before = 0.0
        risen = value - before
        return f"{device} {what}: {risen:,.0f}" if risen >= least else ""


def _device_of(labels: Mapping[str, str]) -> str:
    host = labels.get("Hostname") or labels.get("instance", "")
    if "gpu" in labels:
        device = f"GPU {labels['gpu']}"
    elif "port" in labels:
        device = f"port {labels['port']} of {labels.get('device', 'a NIC')}"
    else:
        device = labels.get("device", "a device")
    return clean(f"{device} of {host}" if host else device)


def _idle_devices(active: Mapping[str, float]) -> list[str]:
    """GPUs whose SMs are active for less than half of the time that is usual, where that is much."""
    usual = float(np.median(list(active.values()))) if len(active) > 1 else 0.0
    return [device for device, value in active.items() if usual >= _BUSY and value < _IDLE_SHARE * usual]


_EXPLAINED = (Verdict.SLOW_RANK, Verdict.SLOW_MACHINE, Verdict.COMPUTE, Verdict.BANDWIDTH, Verdict.HANG, Verdict.UNEXPLAINED)
_LINKS = (Verdict.SLOW_LINK, Verdict.SLOW_UPLINK, Verdict.BANDWIDTH)
_PATIENCE = 1.0
"""Seconds for the answer of an exporter."""
_MOST_BYTES = 1 << 24
_MOST_SAID = 4
"""Sentences that an alarm about something else repeats."""


@dataclass
class DeviceWatch:
    """Looks every `LOOK_SECONDS`. `exporters`: addresses or files with Prometheus's text."""

    exporters: Sequence[str] = ()
    health: GpuHealth = field(default_factory=node_gpus)
    _counters: dict[str, CounterWatch] = field(default_factory=dict)
    _next: float = float("-inf")
    _active: dict[str, Alarm] = field(default_factory=dict)
    _congestion: tuple[str, ...] = ()

    def look(self, now: float) -> list[Alarm]:
        """Faults that are new, and those that are over. `now`: unix seconds."""
        if now < self._next:
            return []
        self._next = now + LOOK_SECONDS
        here = socket.gethostname()
        faults = dict.fromkeys(self.health.look(), here) if self.health.has_gpus else {}
        congestion: list[str] = []
        for exporter in self.exporters:
            told, waits = self._counters.setdefault(exporter, CounterWatch()).look(_read(exporter))
            faults |= {sentence: "" for sentence in told if sentence not in faults}
            congestion += waits
        self._congestion = tuple(congestion)
        return self._changes({_without_figures(sentence): (sentence, host) for sentence, host in faults.items()}, now)

    def explain(self, alarm: Alarm) -> Alarm:
        """An alarm on slow ranks, machines or links, with what the counters say meanwhile."""
        if alarm.cleared:
            return alarm
        said = [known.text for known in self._active.values()] if alarm.verdict in (*_EXPLAINED, *_LINKS) else []
        said += self._congestion if alarm.verdict in _LINKS else []
        return replace(alarm, text=f"{alarm.text}\nmeanwhile: {'; '.join(said[:_MOST_SAID])}") if said else alarm

    def _changes(self, faults: dict[str, tuple[str, str]], now: float) -> list[Alarm]:
        alarms = []
        for key, (sentence, host) in faults.items():
            if key not in self._active:
                self._active[key] = Alarm(now, Verdict.DEVICE, (), (host,) if host else (), sentence)
                alarms.append(self._active[key])
        for key in [key for key in self._active if key not in faults]:
            alarms.append(replace(self._active.pop(key), seconds=now, cleared=True))
        return alarms


def _without_figures(sentence: str) -> str:
    """What makes a fault the same when its count has grown."""
    return sentence.partition(":")[0]


def _read(exporter: str) -> str:
    """The text of an exporter; nothing where it does not answer."""
    with suppress(OSError, ValueError):
        if exporter.startswith(("http://", "https://")):
            with urllib.request.urlopen(exporter, timeout=_PATIENCE) as answer:  # the user's own address
                return str(answer.read(_MOST_BYTES).decode("utf-8", "replace"))
        return Path(exporter).read_text(encoding="utf-8", errors="replace")[:_MOST_BYTES]
    return ""
