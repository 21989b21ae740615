"""What a GPU draws by what it does, and what a power cap or a locked clock does to kernels.

    P(clock) = static + (P(1) - static) * phi(clock),   phi(c) = c * max(c, floor)^2

Dynamic power goes with frequency times voltage squared; the voltage falls with the clock down to `floor`. Under a cap each kind
of kernel runs at the largest clock whose power the cap allows: the limit acts within milliseconds, so kernels below the cap keep
theirs. A matrix product or attention lengthens by 1 / clock, a kernel bound by memory only below the clock `knee`.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache

from windtunnel.base.dataclasses import dataclass, fields
from windtunnel.base.errors import SpecError
from windtunnel.base.files import CATALOG
from windtunnel.spec.machine import GPU

FILE = CATALOG / "calibration" / "power.toml"
SLOWEST = 0.02
"""Lowest clock of the law; a cap that asks for less is refused for jobs."""


@dataclass(frozen=True)
class DrawShares:
    """Shares of a GPU's stated power by what it does, and the constants of its clock; as `spec.power.GpuDraw`."""

    tensor: float
    memory: float
    communicating: float
    waiting: float
    static: float
    floor: float
    knee: float


@dataclass(frozen=True)
class GpuWatts:
    """Watts of one GPU by what it does, and the time of its kernels over that at its full clock."""

    tensor: float
    memory: float
    communicating: float
    waiting: float
    static: float
    tensor_stretch: float = 1.0
    memory_stretch: float = 1.0


@lru_cache(maxsize=1)
def stored_shares() -> DrawShares:
    """The shares of `catalog/calibration/power.toml`."""
    table = tomllib.loads(FILE.read_text(encoding="utf-8"))
    found = table["fitted"] | table["stated"]
    return DrawShares(**{field.name: float(found[field.name]) for field in fields(DrawShares)})


@lru_cache(maxsize=1)
def statics() -> dict[str, float]:
    """Static share of each board that took part in the fit."""
    return {str(name): float(share) for name, share in tomllib.loads(FILE.read_text(encoding="utf-8"))["static"].items()}


def shares_of(gpu: GPU) -> DrawShares:
    """The stored shares under those that the GPU states."""
    if gpu.draw is None:
        return stored_shares()
    own = {field.name: getattr(gpu.draw, field.name) for field in fields(DrawShares)}
    return DrawShares(**{name: getattr(stored_shares(), name) if value is None else value for name, value in own.items()})


def watts_of(gpu: GPU) -> GpuWatts | None:
    """Watts of `gpu` by what it does, under its cap and clock; None if it states no power.

    SpecError for a cap without a stated power, above it, or at which nothing could run.
    """
    if gpu.power_w is None:
        if gpu.power_cap_w is not None:
            raise SpecError("cluster.node.gpu.power_cap_w", gpu.power_cap_w, "a GPU that states power_w", f"{gpu.id} does not.")
        return None
    cap = gpu.power_w if gpu.power_cap_w is None else gpu.power_cap_w
    shares = shares_of(gpu)
    least = (shares.static + (shares.tensor - shares.static) * phi(0.1, shares.floor)) * gpu.power_w
    if not least <= cap <= gpu.power_w:
        raise SpecError(
            "cluster.node.gpu.power_cap_w",
            cap,
            f"{least:.0f} to {gpu.power_w:g} W: {gpu.id} draws {shares.static * gpu.power_w:.0f} W with nothing running",
        )
    return watts_under(shares, gpu.power_w, cap, 1.0 if gpu.clock_lock is None else gpu.clock_lock)


def watts_under(shares: DrawShares, power: float, cap: float, lock: float = 1.0) -> GpuWatts:
    """Watts and stretches of a GPU of `power` watts under a cap in watts and a locked clock (a share)."""
    static = shares.static * power
    tensor, tensor_clock = _at(shares.tensor * power, static, cap, lock, shares.floor)
    memory, memory_clock = _at(shares.memory * power, static, cap, lock, shares.floor)
    return GpuWatts(
        tensor,
        memory,
        min(cap, max(static, shares.communicating * power)),
        min(cap, max(static, shares.waiting * power)),
        min(cap, static),
        1.0 / tensor_clock,
        max(1.0, shares.knee / memory_clock),
    )


def _at(full: float, static: float, cap: float, lock: float, floor: float) -> tuple[float, float]:
    """Watts and clock of a kind of kernel that draws `full` watts at its full clock."""
    static = min(static, full)
    room = (cap - static) / (full - static) if full > static else 1.0
    clock = min(lock, clock_of(room, floor))
    return static + (full - static) * phi(clock, floor), clock


def phi(clock: float, floor: float) -> float:
    """Dynamic power at a clock over that at the full clock."""
    return clock * max(clock, floor) ** 2


def clock_of(room: float, floor: float) -> float:
    """The clock (SLOWEST to 1) whose dynamic power is the share `room` of that at the full clock: the inverse of `phi`."""
    if room >= 1.0:
        return 1.0
    if room >= floor**3:
        return float(room ** (1.0 / 3.0))
    return max(SLOWEST, room / floor**2)
