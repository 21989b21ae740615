"""Alarms and explanations by the counters of GPUs and NICs: of this machine by NVML and /sys, and by exporters."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from windtunnel.fleet.agent.gpu_health import LOOK_SECONDS, GpuHealth, node_gpus
from windtunnel.fleet.findings.counters import CounterWatch
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.monitor import Alarm

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
