"""When each rank leaves a collective, from when each entered it.

A phase of equal ranks that begin together: one of them stands for all, so its length is a sum over steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.formats.simulators.astrasim.configuration import System
from windtunnel_oracles.astrasim.blocks import Blocks
from windtunnel_oracles.astrasim.members import Members
from windtunnel_oracles.astrasim.messages import Direct, Step, bundle, chain, direct
from windtunnel_oracles.astrasim.phases import RingPhase, chunks, phases_of
from windtunnel_oracles.astrasim.unfolded import lower
from windtunnel_oracles.astrasim.wires import Wires

Custom = Callable[[str, Members, np.ndarray], np.ndarray]
"""(call, members, entries) -> exits of a collective that a trace describes."""


@dataclass
class Collectives:
    """Prices collectives of one system and network; equal ones are priced once."""

    system: System
    wires: Wires
    custom: Custom | None = None
    known: dict[tuple[object, ...], np.ndarray] = field(default_factory=dict)
    trees: int = 0

    def leave(self, call: str, size: int, ranks: tuple[int, ...], involved: int, entered: np.ndarray) -> np.ndarray:
        """ns at which each rank [G] leaves the collective that it entered at `entered` [G]."""
        first = entered.min()
        key = (call, size, ranks, involved, self.trees % 2, tuple((entered - first).tolist()))
        if key not in self.known:
            self.known[key] = self._price(call, size, ranks, involved, entered - first)
        if "doubleBinaryTree" in self.system.implementations.get(call, ()):
            self.trees += chunks(self.system, call, size, self.wires.network.npus)[0]
        return np.asarray(first + self.known[key])

    def _price(self, call: str, size: int, ranks: tuple[int, ...], involved: int, entered: np.ndarray) -> np.ndarray:
        whole = len(ranks) == self.wires.network.npus
        order = np.array(sorted(ranks) if whole else ranks, np.int64)
        members = Members(self.wires, order)
        if self.custom is not None and call in self.system.custom:
            return self.custom(call, members, entered)
        number, chunk = chunks(self.system, call, size, self.wires.network.npus)
        streams = [
            phases_of(self.system, self.wires.network, call, chunk, len(ranks), involved, self.trees + at) for at in range(number)
        ]
        if not streams or not streams[0]:
            return entered
        if (entered == entered[0]).all() and (lengths := self._lengths(streams[0], members)) is not None:
            ends = self._queues(Blocks(), [list(zip(one, lengths, strict=True)) for one in streams], np.zeros(1))
            return np.full(len(ranks), entered[0] + ends[0])
        return self._run_each_rank(streams, members, entered)

    def _lengths(self, phases: list[RingPhase], members: Members) -> list[int] | None:
        out = [fold_phase(self.system, phase, members) for phase in phases]
        return None if any(one is None for one in out) else [one for one in out if one is not None]

    def _queues(self, blocks: Blocks, streams: list[list[tuple[RingPhase, int]]], entered: np.ndarray) -> np.ndarray:
        """One rank that stands for all: phases of known length through the queues of their dimensions."""
        start = blocks.start(entered)
        leaves = []
        for stream in streams:
            at = start
            for phase, length in stream:
                at = blocks.add(length, [at], lane=np.array([phase.queue]))
            leaves.append(at)
        end = blocks.add(0, leaves)
        return blocks.run(len(self.wires.strides), self._width(len(self.wires.strides))).end[end]

    def _run_each_rank(self, streams: list[list[RingPhase]], members: Members, entered: np.ndarray) -> np.ndarray:
        """Every rank of its own. A queue is a lane of the rank that a phase holds from its begin to its end."""
        blocks, count = Blocks(), len(members.ranks)
        dims = len(self.wires.strides)
        links = self.wires.links if self.wires.aware else 0
        none: Int64s = np.full(count, -1, np.int64)
        start = blocks.start(entered)
        leaves = []
        for stream in streams:
            at = start
            for phase in stream:
                queue = links + np.arange(count) * dims + phase.queue
                begin = blocks.add(0, [at], lane=queue, release=none)
                at = blocks.add(0, [lower(blocks, self.system, phase, members, begin)], release=queue)
            leaves.append(at)
        end = blocks.add(0, leaves)
        width = np.concatenate([np.ones(links, np.int64), np.tile(self._width(dims), count)])
        return blocks.run(links + count * dims, width).end[end]

    def _width(self, dims: int) -> np.ndarray:
        """Chunks that a queue serves at once: `active-chunks-per-dimension`, with one queue a dimension."""
        return np.full(dims, self.system.active_chunks)


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
