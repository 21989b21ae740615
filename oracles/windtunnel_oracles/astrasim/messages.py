"""What a rank sends in each step of a phase, and what it waits for: the same for all ranks but for who the peers are.

A bundle is ASTRA-sim's pass of data between network and NPU: `endpoint-delay`, and where data are reduced three passes over the
local
memory, each truncated to a nanosecond (PacketBundle.cc).
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.astrasim.configuration import System
from windtunnel_oracles.astrasim.phases import AG, AR, RS, RingPhase

FAST = 10
"""ns of a bundle inside a group's own ring, whatever the endpoint delay (MemBus.cc, Transmition::Fast)."""


@dataclass(frozen=True)
class Step:
    """One message: `size` bytes to the peer `offset` ahead in the ring (or, `swap`, to the partner that many away), then a
    bundle of `after` ns once the peer's own has come."""

    size: int
    offset: int
    after: int
    swap: bool = False


def bundle(system: System, phase: RingPhase, size: int, reduces: bool) -> int:
    """ns of a bundle."""
    delay = FAST if phase.ring.local else system.endpoint_delay
    return delay + (3 * int(size / system.local_mem_bw * 1e9) if reduces else 0)


def chain(system: System, phase: RingPhase) -> list[Step]:
    """Steps of a ring or of halving and doubling: each begins when the bundle of the one before is over (Ring.cc,
    HalvingDoubling.cc)."""
    return _ring(system, phase) if phase.algorithm == "ring" else _halving(system, phase)


def _ring(system: System, phase: RingPhase) -> list[Step]:
    count = phase.ring.count
    size = phase.size if phase.call == AG else phase.size // count
    steps = {AR: 2 * (count - 1), AG: count - 1, RS: count - 1}.get(phase.call, count * (count - 1) // 2)
    plain, reducing = bundle(system, phase, size, False), bundle(system, phase, size, True)
    reduces = count - 1 if phase.call in (AR, RS) else 0
    return [Step(size, 1, reducing if at < reduces else plain) for at in range(steps)]


def _halving(system: System, phase: RingPhase) -> list[Step]:
    count = phase.ring.count
    levels = count.bit_length() - 1
    if count != 1 << levels:
        raise SpecError("halvingDoubling", f"{count} ranks", "a power of two", "ASTRA-sim does not check, and hangs.")
    size, offset = (phase.size, count // 2) if phase.call == AG else (phase.size // 2, 1)
    grow = phase.call == AG
    sent: list[tuple[int, int]] = []
    for _ in range((2 if phase.call == AR else 1) * levels + 1):
        sent.append((size, offset))
        size, offset = (size * 2, offset // 2) if grow else (size // 2, offset * 2)
        if offset == count and phase.call == AR:
            size, offset, grow = size * 2, offset // 2, True
    reduces = levels - 1 if phase.call in (AR, RS) else 0
    return [
        Step(size, offset, bundle(system, phase, sent[at + 1][0], at < reduces), swap=True)
        for at, (size, offset) in enumerate(sent[:-1])
    ]


@dataclass(frozen=True)
class Direct:
    """A direct phase: `count - 1` messages of `size` to all others, `window` at a time (all: count - 1), a bundle of `after` ns for
    each that comes; an all-reduce sends as many back when all have come, with bundles of `last` ns."""

    size: int
    count: int
    window: int
    after: int
    last: int
    returns: bool


def direct(system: System, phase: RingPhase) -> Direct:
    """Figures of a direct phase (AllToAll.cc)."""
    count = phase.ring.count
    size = phase.size if phase.call == AG else phase.size // count
    plain, reducing = bundle(system, phase, size, False), bundle(system, phase, size, True)
    window = min(phase.window or count - 1, count - 1)
    # In a group's own ring every bundle of an all-reduce reduces, those of the way back too.
    last = reducing if phase.ring.local and phase.call == AR and count > 2 else plain
    return Direct(size, count, window, reducing if phase.call in (AR, RS) else plain, last, phase.call == AR)
