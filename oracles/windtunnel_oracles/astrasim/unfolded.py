"""A phase with every rank of its own: messages and bundles as tasks, links and queues as lanes."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.astrasim.configuration import System
from windtunnel_oracles.astrasim.blocks import Blocks
from windtunnel_oracles.astrasim.members import Members
from windtunnel_oracles.astrasim.messages import Step, bundle, chain, direct
from windtunnel_oracles.astrasim.phases import RingPhase
from windtunnel_oracles.astrasim.wires import Wires


def lower(blocks: Blocks, system: System, phase: RingPhase, members: Members, begin: Int64s) -> Int64s:
    """Adds the phase to the graph; `begin` and the answer are the tasks [G] with which each rank enters and leaves it."""
    if phase.algorithm == "doublebinarytree":
        return _tree(blocks, system, phase, members, begin)
    first = blocks.add(bundle(system, phase, 0, False), [begin])
    if phase.algorithm == "direct":
        return _direct(blocks, system, phase, members, first)
    done = first
    for step in chain(system, phase):
        to = members.partner(phase.ring, step.offset) if step.swap else members.peer(phase.ring, step.offset, phase.back)
        done = blocks.add(step.after, [done, _message(blocks, members, done, to, step)[_inverse(to)]])
    return done


def _inverse(to: Int64s) -> Int64s:
    """From whom each member receives."""
    out = np.empty_like(to)
    out[to] = np.arange(len(to))
    return out


def _message(blocks: Blocks, members: Members, after: Int64s, to: Int64s, step: Step) -> Int64s:
    """The message of each member to `to`, as the task with which it arrives [G]."""
    return send(blocks, members.wires, after, members.ranks, members.ranks[to], step.size)


def send(blocks: Blocks, wires: Wires, after: Int64s, src: Int64s, dst: Int64s, size: int) -> Int64s:
    """Messages of `size` bytes, each once `after` has ended: one task that takes the delay, or one for each link on the way."""
    if not wires.aware:
        return blocks.add(wires.delay(src, dst, size), [after])
    hops, at = wires.hops(src, dst), after.copy()
    busy = wires.serialization(size)
    for hop in range(int(hops.max(initial=0))):
        on = np.nonzero(hops > hop)[0]
        at[on] = blocks.add(busy, [at[on]], lane=wires.link(src[on], dst[on], hop), tail=wires.hop_delay(size) - busy)
    return at


def _direct(blocks: Blocks, system: System, phase: RingPhase, members: Members, first: Int64s) -> Int64s:
    shape = direct(system, phase)

    def round_(starts: list[Int64s], after: int) -> tuple[list[Int64s], list[Int64s]]:
        arrived: list[Int64s] = []
        done: list[Int64s] = []
        for offset in range(1, shape.count):
            to = members.peer(phase.ring, offset, phase.back)
            sent = starts[offset - 1] if offset <= len(starts) else done[offset - 1 - shape.window]
            arrived.append(_message(blocks, members, sent, to, Step(shape.size, offset, 0))[_inverse(to)])
            done.append(blocks.add(after, [sent, arrived[-1]]))
        return arrived, done

    arrived, done = round_([first] * shape.window, shape.after)
    if shape.returns:
        opens = blocks.gate(arrived, done)
        _, done = round_([blocks.add(0, [one, opens]) for one in blocks.sort_ends(done)], shape.last)
    return blocks.add(0, done)


def _tree(blocks: Blocks, system: System, phase: RingPhase, members: Members, begin: Int64s) -> Int64s:
    """An all-reduce on one of the two trees (DoubleBinaryTreeAllReduce.cc): up with a reduction at every parent, then down. A
    parent takes its parent's data with a reduction too, and leaves when it has sent to its children."""
    count = phase.ring.count
    if count & (count - 1):
        raise SpecError("doubleBinaryTree", f"{count} ranks", "a power of two", "ASTRA-sim does not check, and fails.")
    plain, reducing = bundle(system, phase, 0, False), bundle(system, phase, phase.size, True)
    index = members.index(phase.ring)
    base = np.arange(len(index)) - index * (1 if phase.ring.dim < 0 or phase.ring.local else members.wires.strides[phase.ring.dim])
    ends = begin.copy()
    parents = _parents(count, phase.tree)
    children: dict[int, list[int]] = {}
    for child, parent in enumerate(parents):
        if parent >= 0:
            children.setdefault(parent, []).append(child)
    root = parents.index(-1)
    for home in np.unique(base).tolist():
        of = np.nonzero(base == home)[0][np.argsort(index[base == home])]  # member of each index
        up: dict[int, Int64s] = {}

        def task(seconds: int, *after: Int64s) -> Int64s:
            return blocks.add(seconds, list(after))

        def message(source: int, target: int, after: Int64s, of: Int64s = of) -> Int64s:
            return send(blocks, members.wires, after, members.ranks[of[[source]]], members.ranks[of[[target]]], phase.size)

        for node in _upwards(root, children):
            at = begin[of[[node]]]
            below = children.get(node, [])
            if not below:
                up[node] = task(plain, at)
                continue
            bundles = [task(reducing, at, message(child, node, up[child])) for child in below]
            up[node] = task(0, *bundles)
        down = {root: up[root]}
        for node in reversed(_upwards(root, children)):
            ends[of[node]] = down[node][0]
            for child in children.get(node, []):
                came = message(node, child, down[node])
                down[child] = task(reducing if child in children else plain, up[child], came)
    return ends


def _parents(count: int, tree: int) -> list[int]:
    """Parent of each index, -1 of the root: an in-order complete tree, hung below the last index (tree 0) or the first (tree 1)."""
    parents = [-1] * count
    shift = tree

    def hang(low: int, high: int, parent: int) -> None:
        middle = (low + high) // 2
        parents[middle + shift] = parent
        if low < high:
            hang(low, middle - 1, middle + shift)
            hang(middle + 1, high, middle + shift)

    root = 0 if tree else count - 1
    if count > 1:
        hang(0, count - 2, root)
    return parents


def _upwards(root: int, children: dict[int, list[int]]) -> list[int]:
    """Nodes of a tree, children before their parents."""
    order, open_ = [], [root]
    while open_:
        node = open_.pop()
        order.append(node)
        open_ += children.get(node, [])
    return order[::-1]
