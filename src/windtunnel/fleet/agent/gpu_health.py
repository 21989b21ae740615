"""Health of a node's GPUs as NVML and the kernel's log tell it: throttling, errors of ECC, NVLink and PCIe, Xid, a GPU that is
gone.

Needs `nvidia-ml-py`; without it, or without a GPU, there is nothing to say. Reading takes milliseconds and disturbs no kernel.

Health of a node's InfiniBand and RoCE ports as the kernel counts it: errors of a cable, a port or a peer that rise.

Reads a few small files of /sys a port. Congestion (ECN marks, pauses) is no fault of the node, and is not told here.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field

ROOT = Path("/sys/class")
COUNTERS = {
    "counters/link_downed": (1, "has lost its link"),
    "counters/link_error_recovery": (1, "has recovered its link from errors"),
    "counters/symbol_error": (100, "has symbol errors"),
    "counters/port_rcv_errors": (100, "has received broken packets"),
    "counters/local_link_integrity_errors": (1, "has errors of the link's integrity"),
    "counters/excessive_buffer_overrun_errors": (1, "has overrun its buffers"),
    "hw_counters/rx_icrc_encapsulated": (1, "has received packets with a wrong checksum"),
    "hw_counters/local_ack_timeout_err": (100, "has waited in vain for answers of its peers"),
    "hw_counters/packet_seq_err": (100, "has been asked to send lost packets again"),
    "hw_counters/out_of_sequence": (100, "has received packets out of order: packets were lost"),
}
"""File below a port → (rise from which it is told, what it says). Names: Linux's rdma and mlx5 counters. The rises are assumed: a
cable within its specification has single symbol errors in hours."""


@dataclass
class NicHealth:
    """Looks at all ports of this machine."""

    root: Path = ROOT
    _before: dict[Path, int] = field(default_factory=dict)
    """Counters when they were first read: only what rises since then is told."""

    @property
    def ports(self) -> list[Path]:
        """The folders of the ports."""
        return sorted(self.root.glob("infiniband/*/ports/*"))

    def look(self) -> tuple[str, ...]:
        """What is wrong, a sentence each, such as `port 1 of mlx5_0 has symbol errors: 5,120`."""
        told = []
        for port in self.ports:
            for name, (least, what) in COUNTERS.items():
                risen = self._risen(port / name)
                if risen >= least:
                    told.append(f"port {port.name} of {port.parts[-3]} {what}: {risen:,}")
        return tuple(told)

    def _risen(self, path: Path) -> int:
        try:
            value = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0  # a port or driver without this counter
        return max(0, value - self._before.setdefault(path, value))


LOOK_SECONDS = 10.0
"""Interval between looks."""
LASTS = 3
"""Looks in a row that show a GPU throttled until it is told: short ones are normal."""
_SLOW = 0.75
"""Share of the highest clock below which a power cap is told as well: a GPU under load may be a little below it."""
_HARD = {0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}
_POWER_CAP = 0x4
_IDLE = 0x1
_SM, _UNCORRECTED, _VOLATILE = 1, 1, 0
_LINKS = 18
_REPLAYS = 1000
"""PCIe packets sent again from which it is told: single ones are normal. Assumed."""
_LINK_COUNTERS = {0: "replay", 1: "recovery", 2: "CRC"}
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)")


@dataclass
class GpuHealth:
    """Looks at all GPUs of this machine. `library`: the module pynvml, or None."""

    library: Any
    log: Path = Path("/dev/kmsg")
    nics: NicHealth = field(default_factory=NicHealth)
    _handles: list[Any] = field(default_factory=list)
    _before: dict[str, int] = field(default_factory=dict)
    """Counters when they were first read: only what rises since then is told."""
    _throttled: dict[int, int] = field(default_factory=dict)
    """GPU → looks in a row that showed it throttled."""
    _xids: dict[str, str] = field(default_factory=dict)
    _kernel_log: int = -1

    def __post_init__(self) -> None:
        with suppress(Exception):
            self.library.nvmlInit()
            self._handles = [self.library.nvmlDeviceGetHandleByIndex(at) for at in range(self.library.nvmlDeviceGetCount())]
        if self._handles:
            with suppress(OSError):
                self._kernel_log = os.open(self.log, os.O_RDONLY | os.O_NONBLOCK)
                os.lseek(self._kernel_log, 0, os.SEEK_END)

    @property
    def has_gpus(self) -> bool:
        """Whether there is anything to look at: GPUs, or ports of InfiniBand or RoCE."""
        return bool(self._handles or self.nics.ports)

    def look(self) -> tuple[str, ...]:
        """What is wrong now, a sentence each, such as `GPU 3 is throttled: 1,200 of 1,980 MHz, hardware slowdown`."""
        found = []
        for gpu, handle in enumerate(self._handles):
            looks = (self._throttle, self._memory, self._rows, self._pcie)
            found += [text for look in looks if (text := look(gpu, handle))]
            found += self._links(gpu, handle)
        self._read_xids()
        return (*found, *self._xids.values(), *self.nics.look())

    def close(self) -> None:
        """Closes the kernel's log."""
        if self._kernel_log >= 0:
            os.close(self._kernel_log)
            self._kernel_log = -1

    def _ask(self, name: str, *arguments: Any) -> Any:
        """The library's answer; None if this GPU, driver or version of it has none."""
        try:
            return getattr(self.library, name)(*arguments)
        except Exception as error:  # NVMLError has a class for each cause, and older versions lack functions
            return "lost" if "lost" in str(error).lower() else None

    def _throttle(self, gpu: int, handle: Any) -> str:
        clock, most = self._ask("nvmlDeviceGetClockInfo", handle, _SM), self._ask("nvmlDeviceGetMaxClockInfo", handle, _SM)
        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if "lost" in (clock, most, reasons):
            return f"GPU {gpu} is lost: the driver does not reach it"
        if not clock or not most or reasons is None or reasons & _IDLE:
            self._throttled[gpu] = 0
            return ""
        why = [text for bit, text in _HARD.items() if reasons & bit]
        if reasons & _POWER_CAP and clock < _SLOW * most:
            why.append("power cap")
        self._throttled[gpu] = self._throttled.get(gpu, 0) + 1 if why and clock < most else 0
        if self._throttled[gpu] < LASTS:
            return ""
        return f"GPU {gpu} is throttled: {clock:,} of {most:,} MHz, {' and '.join(why)}"

    def _memory(self, gpu: int, handle: Any) -> str:
        count = self._risen(f"ecc {gpu}", self._ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE))
        return f"GPU {gpu} has memory errors that ECC did not correct: {count:,}" if count else ""

    def _rows(self, gpu: int, handle: Any) -> str:
        rows = self._ask("nvmlDeviceGetRemappedRows", handle)
        return f"GPU {gpu} cannot replace broken rows of its memory any more" if isinstance(rows, tuple | list) and rows[3] else ""

    def _pcie(self, gpu: int, handle: Any) -> str:
        """A narrow link, or packets that were sent again. Links of an idle GPU slow down, but keep their width."""
        width, most = self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle), self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
        if isinstance(width, int) and isinstance(most, int) and 0 < width < most:
            return f"GPU {gpu} has a narrow PCIe link: {width} of {most} lanes"
        count = self._risen(f"pcie {gpu}", self._ask("nvmlDeviceGetPcieReplayCounter", handle))
        return f"GPU {gpu} has sent PCIe packets again: {count:,}" if count >= _REPLAYS else ""

    def _links(self, gpu: int, handle: Any) -> list[str]:
        found = []
        for link in range(_LINKS):
            for counter, what in _LINK_COUNTERS.items():
                key = f"link {gpu} {link} {counter}"
                if count := self._risen(key, self._ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter)):
                    found.append(f"NVLink {link} of GPU {gpu} has {what} errors: {count:,}")
        return found

    def _risen(self, key: str, value: Any) -> int:
        """How far a counter has risen since it was first read."""
        if not isinstance(value, int):
            return 0
        return max(0, value - self._before.setdefault(key, value))

    def _read_xids(self) -> None:
        """Reads new lines of the kernel's log; one read gives one line of /dev/kmsg, or much of a plain file."""
        while self._kernel_log >= 0:
            try:
                raw = os.read(self._kernel_log, 1 << 16)
            except BrokenPipeError:  # lines were overwritten before they were read
                continue
            except OSError:
                return
            if not raw:
                return
            for place, number in _XID.findall(raw.decode("utf-8", "replace")):
                self._xids[f"{place} {number}"] = f"the GPU at PCI {place} reports Xid {number}: see the kernel's log"


def node_gpus() -> GpuHealth:
    """The GPUs of this node, by NVML if it is installed."""
    try:
        return GpuHealth(import_module("pynvml"))
    except ImportError:
        return GpuHealth(None)
