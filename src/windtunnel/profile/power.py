"""Clock, power and throttling of a GPU during a measurement, from NVML's Python binding, else `nvidia-smi`, else none.

A reading is taken while the device runs enqueued work, so the host never waits for it. NVML averages power over about
100 ms, so shorter bursts get no power.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from windtunnel.base.dataclasses import dataclass, replace

AVERAGED = 0.1
"""s. Averaging interval of the board's power reading."""

FILLED = 0.8
"""Least share of the time that a kernel must run for the board's power to count as its power."""

REASONS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal, software", 0x40: "thermal, hardware", 0x80: "power brake"}
"""Bits of NVML's clock event reasons that slow a kernel; idle (1), set clocks (2) and sync boost (16) are not throttling."""


@dataclass(frozen=True)
class PowerReading:
    """A reading; None for unknown values. `throttled` is empty without throttling."""

    clock_hz: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    throttled: str | None = None

    def of(self, seconds: float, share: float, lasted: float, joules: float | None) -> PowerReading:
        """The reading for one execution of `seconds` that ran for `share` of the `lasted` seconds around it.

        `joules`: difference of the board's energy counter in that time, if it has one; else the power reading is the mean.
        """
        power = self.power_w if joules is None else joules / lasted
        if power is None or share < FILLED or lasted < AVERAGED:
            return replace(self, power_w=None, energy_j=None)
        return replace(self, power_w=power, energy_j=power * seconds)

    def fields(self) -> dict[str, Any]:
        """As columns of a dataset."""
        return {"clock_hz": self.clock_hz, "power_w": self.power_w, "energy_j": self.energy_j, "throttled": self.throttled}


class Meter(Protocol):
    """Source of readings of the board."""

    def read(self) -> PowerReading: ...

    def joules(self) -> float | None:
        """The board's energy counter."""


class Silent:
    """A source without readings."""

    def read(self) -> PowerReading:
        return PowerReading()

    def joules(self) -> float | None:
        return None


class Nvml:
    """NVIDIA's library through its Python binding (`pynvml` of nvidia-ml-py); `library` is that module."""

    def __init__(self, library: Any, index: int, uuid: str = "") -> None:
        self.library = library
        library.nvmlInit()
        self.handle = library.nvmlDeviceGetHandleByUUID(uuid) if uuid else library.nvmlDeviceGetHandleByIndex(index)

    def read(self) -> PowerReading:
        """Reads each figure separately: a board may report its clock but not its power."""
        clock = self._ask("nvmlDeviceGetClockInfo", getattr(self.library, "NVML_CLOCK_SM", 1))
        power = self._ask("nvmlDeviceGetPowerUsage")
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return PowerReading(
            None if clock is None else clock * 1e6,
            None if power is None else power * 1e-3,
            None,
            None if bits is None else reasons(int(bits)),
        )

    def joules(self) -> float | None:
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules * 1e-3

    def driver(self) -> str:
        """Version of the driver; empty if unknown."""
        version = self._ask("nvmlSystemGetDriverVersion", own=False)
        return version.decode() if isinstance(version, bytes) else str(version or "")

    def _ask(self, name: str, *arguments: Any, own: bool = True) -> Any:
        try:
            return getattr(self.library, name)(*([self.handle] if own else []), *arguments)
        except (self.library.NVMLError, AttributeError):
            return None


class Smi:
    """NVIDIA's command. A call takes about 50 ms, so the reading is of what runs at that time."""

    FIELDS = "clocks.sm,power.draw,clocks_throttle_reasons.active,driver_version"

    def __init__(self, board: int | str, ask: Callable[[list[str]], str] | None = None) -> None:
        self.board, self.ask = board, ask or _output

    def read(self) -> PowerReading:
        clock, power, bits, _ = self._row()
        known = bits.lower().startswith("0x")
        return PowerReading(_number(clock, 1e6), _number(power, 1.0), None, reasons(int(bits, 16)) if known else None)

    def joules(self) -> float | None:
        return None

    def driver(self) -> str:
        return self._row()[3]

    def _row(self) -> list[str]:
        answer = self.ask(["nvidia-smi", f"--query-gpu={self.FIELDS}", "--format=csv,noheader,nounits", f"--id={self.board}"])
        words = [word.strip() for word in answer.split(",")]
        return words if len(words) == 4 else [""] * 4


def meter(cuda: bool, index: int = 0) -> Silent | Nvml | Smi:
    """The best source on this machine for PyTorch's device `index`."""
    if not cuda:
        return Silent()
    uuid = _uuid(index)
    try:
        return Nvml(import_module("pynvml"), index, uuid)
    except Exception:  # the binding exists without the driver's library, or access to the board is denied
        return Smi(uuid or index) if shutil.which("nvidia-smi") else Silent()


def driver(meter: Silent | Nvml | Smi) -> str:
    """The driver's version; empty if unknown."""
    return "" if isinstance(meter, Silent) else meter.driver()


def reasons(bits: int) -> str:
    """NVML's clock event reasons as words."""
    return ", ".join(word for bit, word in REASONS.items() if bits & bit)


def _uuid(index: int) -> str:
    """The board's identity as the driver spells it; empty if PyTorch does not report it. PyTorch numbers visible devices, the
    driver all boards."""
    uuid = getattr(import_module("torch").cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid else ""


def _number(text: str, unit: float) -> float | None:
    try:
        return float(text) * unit
    except ValueError:
        return None


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
