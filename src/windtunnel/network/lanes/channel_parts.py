"""Messages between nodes over several channels: NCCL cuts a message into a part for each, and each has its own connection.

(`addP2pToPlan` in `enqueue.cc` of NCCL 2.30.7: `ncclP2pPartBounds`.) More connections take more of the equal paths of a fabric that
hashes them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.network.algorithms.pattern import COPY, Cargo, CollectiveCall, Pattern
from windtunnel.network.lanes.queue_pairs import index_within


def split_channels(pattern: Pattern, call: CollectiveCall, channels: int) -> Pattern:
    """The pattern of messages with every lane between nodes as one lane for each of `channels`.

    A lane that waited for one waits for all of its parts. The last slice of each part carries the message.
    """
    far = call.node_of(pattern.src) != call.node_of(pattern.dst)
    parts = np.where(far & (pattern.bytes >= channels), channels, 1)
    if channels == 1 or not far.any():
        return pattern
    first = np.concatenate([[0], np.cumsum(parts)])
    old = np.repeat(np.arange(len(pattern)), parts)
    bytes_ = -(-pattern.bytes // parts)[old]
    waits = np.diff(pattern.dep_start)[old]
    each = np.repeat(pattern.dep_start[:-1][old], waits) + index_within(waits)
    on = pattern.dep_lane[each]
    number = parts[on]
    slices, before = -(-bytes_ // np.minimum(pattern.slice[old], bytes_)), pattern.slices

    def carries(lane: int, slice: int) -> Cargo:
        last = slice == slices[lane] - 1
        return pattern.carries(int(old[lane]), int(before[old[lane]]) - 1) if last else ((), COPY)

    total = np.bincount(np.repeat(np.arange(len(old)), waits), weights=number, minlength=len(old)).astype(np.int64)
    return replace(
        pattern,
        src=pattern.src[old],
        dst=pattern.dst[old],
        bytes=bytes_,
        slice=np.minimum(pattern.slice[old], bytes_),
        window=pattern.window[old],
        group=np.arange(len(old), dtype=np.int32),
        channel=np.arange(len(old), dtype=np.int32),
        pace=pattern.pace[old] / parts[old],
        dep_start=np.concatenate([[0], np.cumsum(total)]).astype(np.int64),
        dep_lane=(np.repeat(first[on], number) + index_within(number)).astype(np.int32),
        dep_lead=np.repeat(pattern.dep_lead[each], number),
        carries=carries,
    )
