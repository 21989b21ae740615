"""A phase of equal ranks that begin together: one of them stands for all, so its length is a sum over steps."""

from __future__ import annotations

from windtunnel.formats.simulators.astrasim.configuration import System
from windtunnel.replay.astrasim.members import Members
from windtunnel.replay.astrasim.messages import Direct, Step, bundle, chain, direct
from windtunnel.replay.astrasim.phases import RingPhase


def fold_phase(system: System, phase: RingPhase, members: Members) -> int | None:
    """ns of a phase whose ranks all begin together; None where they are not equal: trees, links that are shared, uneven
    distances."""
    if members.wires.aware or phase.algorithm == "doublebinarytree":
        return None
    first = bundle(system, phase, 0, False)
    if phase.algorithm == "direct":
        shape = direct(system, phase)
        delays = [_even(members, phase, Step(shape.size, offset, 0)) for offset in range(1, shape.count)]
        return None if None in delays else first + _direct(shape, [one for one in delays if one is not None])
    total = first
    known: dict[tuple[int, int], int | None] = {}
    for step in chain(system, phase):
        key = (step.size, step.offset)
        if key not in known:
            known[key] = _even(members, phase, step)
        delay = known[key]
        if delay is None:
            return None
        total += delay + step.after
    return total


def _even(members: Members, phase: RingPhase, step: Step) -> int | None:
    """ns of a step's message where it is the same for all members."""
    to = members.partner(phase.ring, step.offset) if step.swap else members.peer(phase.ring, step.offset, phase.back)
    delays = members.delay(to, step.size)
    return int(delays[0]) if (delays == delays[0]).all() else None


def _direct(shape: Direct, delays: list[int]) -> int:
    """ns from the sends on; message i comes after delays[i]. With a window the next is sent when a bundle is over."""
    arrived, done = _round(delays, shape.window, shape.after, [0] * shape.window)
    if not shape.returns:
        return max(done)
    gate = max(arrived)
    opens = min(one for one in done if one >= gate)
    # Answers go to the peers in ring order, one for each bundle in the order in which these end.
    _, ends = _round(delays, shape.window, shape.last, [max(one, opens) for one in sorted(done)])
    return max(ends)


def _round(delays: list[int], window: int, after: int, starts: list[int]) -> tuple[list[int], list[int]]:
    arrived: list[int] = []
    done: list[int] = []
    for at, delay in enumerate(delays):
        sent = starts[at] if at < len(starts) else done[at - window]
        arrived.append(sent + delay)
        done.append(arrived[-1] + after)
    return arrived, done
