"""Settings of the monitor in this process, from WINDTUNNEL_FLEET_* environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError

PREFIX = "WINDTUNNEL_FLEET_"


@dataclass(frozen=True)
class WatchSettings:
    """Where the records go, and how many there are."""

    folder: Path = Path("out/fleet")
    """Folder of the runs."""
    run: str = "job"
    """Name of the run, a subfolder."""
    detail: str = "full"
    """"full" (every call), "steps:N" (calls in every N-th step only) or "summary" (no calls)."""
    beat_seconds: float = 0.25
    """Interval of the heartbeat."""
    rows: int = 1 << 16
    """Capacity of the ring."""
    rows_a_step: int = 4096
    """Rows of a step beyond which calls, ranges and gaps are dropped and counted."""
    gap_ns: int = 100_000
    """Shorter garbage collections are not recorded."""
    device: str = "auto"
    """"auto": CUDA events once the process uses a GPU; "cpu": never."""
    printed: str = "losses"
    """Lines that the process prints of which the monitor has a copy: "losses" (with a loss or a gradient norm), "all", "none"."""
    clock: tuple[int, float] = (0, 0.0)
    """(ns, ppm) by which this process's clock is deliberately wrong, for tests of clock alignment."""

    def call_interval(self) -> int:
        """Calls are recorded in every N-th step; 0: never. SpecError for an unknown detail."""
        if self.detail == "full":
            return 1
        if self.detail == "summary":
            return 0
        match = re.fullmatch(r"steps:([1-9]\d{0,8})", self.detail)
        if match is None:
            raise SpecError("policy", self.detail, "full, steps:N, summary", "Type steps:10 for the calls of every tenth step.")
        return int(match[1])


def settings_of(environment: Mapping[str, str] = os.environ) -> WatchSettings:
    """WatchSettings from the environment. SpecError for a value that cannot be parsed."""

    def variable(name: str, otherwise: str) -> str:
        return environment.get(PREFIX + name, "") or otherwise

    def number(name: str, otherwise: float, least: float) -> float:
        text = variable(name, str(otherwise))
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value < 1e12:
            raise SpecError(PREFIX + name, text, f"a number of at least {least:g}")
        return value

    base = WatchSettings()
    otherwise = "none" if environment.get(PREFIX + "NODE") else base.printed  # of a kept job the driver reads all logs
    settings = WatchSettings(
        folder=Path(variable("DIR", str(base.folder))), run=variable("RUN", base.run), detail=variable("POLICY", base.detail),
        beat_seconds=number("BEAT", base.beat_seconds, 0.01), rows=int(number("ROWS", base.rows, 64)),
        rows_a_step=int(number("ROWS_A_STEP", base.rows_a_step, 16)), gap_ns=int(number("GAP_NS", base.gap_ns, 0)),
        device=variable("DEVICE", base.device),
        printed=variable("PRINTED", otherwise), clock=_clock(variable("CLOCK", "0,0")),
    )  # fmt: skip
    settings.call_interval()
    if settings.device not in ("auto", "cpu"):
        raise SpecError(PREFIX + "DEVICE", settings.device, "auto, cpu")
    if settings.printed not in ("losses", "all", "none"):
        raise SpecError(PREFIX + "PRINTED", settings.printed, "losses, all, none")
    return settings


def _clock(text: str) -> tuple[int, float]:
    try:
        offset, _, ppm = text.partition(",")
        return int(offset), float(ppm or 0)
    except ValueError:
        raise SpecError(
            PREFIX + "CLOCK", text, "offset in ns and drift in ppm", "Type 500000000,100 for +500 ms and 100 ppm."
        ) from None
