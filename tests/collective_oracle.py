"""Proof by execution that an algorithm moves the right data: every rank ends with what the call promises, each part once.

Slices are run in a random order that respects what the lanes wait for and nothing else, so that a missing dependency shows. What a
rank holds of a piece is the sum of one bit field a contributor; adding twice is seen.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.errors import EngineError
from windtunnel.base.rng import Draws
from windtunnel.engine.graph import Floats
from windtunnel.network.algorithms.pattern import COPY, MOVE, CollectiveCall, Pattern
from windtunnel.workload.ops import Comm

_BITS = 8  # of a contributor's counter


def verify(pattern: Pattern, call: CollectiveCall, seed: int = 1) -> None:
    """Raises EngineError that names the rank and piece that end wrong, or the lane that can never start; for up to 255 ranks."""
    held = _start(pattern, call)
    _run(pattern, held, Draws(seed))
    _check(pattern, call, held)


def _start(pattern: Pattern, call: CollectiveCall) -> list[dict[int, int]]:
    ends = max(call.ranks, int(max(pattern.src.max(), pattern.dst.max())) + 1)
    held: list[dict[int, int]] = [{} for _ in range(ends)]
    for rank in range(call.ranks):
        for piece in range(pattern.pieces):
            if call.comm in (Comm.ALL_REDUCE, Comm.REDUCE_SCATTER, Comm.REDUCE) or pattern.home(piece) == rank:
                held[rank][piece] = 1 << (_BITS * rank)
    return held


def _run(pattern: Pattern, held: list[dict[int, int]], order: Draws) -> None:
    slices = pattern.slices.tolist()
    lanes = len(pattern)
    sent, arrived = [0] * lanes, [0] * lanes
    flying: list[list[dict[int, int]]] = [[] for _ in range(lanes)]
    start, on, lead = pattern.dep_start.tolist(), pattern.dep_lane.tolist(), pattern.dep_lead.tolist()
    src, dst, window = pattern.src.tolist(), pattern.dst.tolist(), pattern.window.tolist()
    after: list[list[int]] = [[] for _ in range(lanes)]
    for lane in range(lanes):
        for d in range(start[lane], start[lane + 1]):
            after[on[d]].append(lane)

    def ready(lane: int) -> bool:
        j = sent[lane]
        if j >= slices[lane] or window[lane] and j - arrived[lane] >= window[lane]:
            return False
        return all(arrived[on[d]] >= min(slices[on[d]], j + 1 - lead[d]) for d in range(start[lane], start[lane + 1]))

    moves = [lane for lane in range(lanes) if ready(lane)]
    while moves:
        at = order.draw_below(len(moves))
        lane = moves[at]
        can_send = ready(lane)
        if not can_send and not flying[lane]:
            moves[at] = moves[-1]
            moves.pop()
            continue
        if can_send and (not flying[lane] or order.draw_below(2)):
            pieces, how = pattern.carries(lane, sent[lane])
            missing = [p for p in pieces if p not in held[src[lane]]]
            if missing:
                raise EngineError(f"lane {lane} sends piece {missing[0]} that rank {src[lane]} does not have")
            flying[lane].append({p: held[src[lane]][p] for p in pieces})
            if how == MOVE:
                for p in pieces:
                    del held[src[lane]][p]
            sent[lane] += 1
            continue
        _, how = pattern.carries(lane, arrived[lane])
        target = held[dst[lane]]
        for piece, value in flying[lane].pop(0).items():
            target[piece] = target.get(piece, 0) + value if how != COPY else value
        arrived[lane] += 1
        moves += [other for other in after[lane] if ready(other)]
    stuck = [lane for lane in range(lanes) if arrived[lane] < slices[lane]]
    if stuck:
        raise EngineError(f"lane {stuck[0]} ({src[stuck[0]]} to {dst[stuck[0]]}) waits for slices that never come")


def _check(pattern: Pattern, call: CollectiveCall, held: list[dict[int, int]]) -> None:
    if call.comm in (Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.GATHER, Comm.SCATTER) and pattern.target is None:
        raise EngineError("an exchange without targets proves nothing")
    every = sum(1 << (_BITS * rank) for rank in range(call.ranks))
    for rank in range(call.ranks):
        for piece in range(pattern.pieces):
            home = pattern.home(piece)
            own = 1 << (_BITS * home)
            wanted = {
                Comm.ALL_REDUCE: every,
                Comm.REDUCE_SCATTER: every if home == rank else None,
                Comm.REDUCE: every if call.root == rank else None,
                Comm.ALL_GATHER: own,
                Comm.BROADCAST: own,
            }.get(call.comm)
            if pattern.target is not None:
                wanted = own if pattern.target(piece) == rank else None
            if wanted is not None and held[rank].get(piece) != wanted:
                raise EngineError(f"rank {rank} ends with {held[rank].get(piece, 0):#x} of piece {piece}, not {wanted:#x}")


def payload(pattern: Pattern) -> Floats:
    """[pieces] bytes of each piece, from the slices that carry it; 0 for one that never moves."""
    sizes = np.zeros(pattern.pieces)
    for lane, count in enumerate(pattern.slices):
        for j in range(int(count)):
            pieces, _ = pattern.carries(lane, j)
            nbytes = min(int(pattern.slice[lane]), int(pattern.bytes[lane]) - j * int(pattern.slice[lane]))
            for piece in pieces:
                sizes[piece] = nbytes / len(pieces)
    return sizes
