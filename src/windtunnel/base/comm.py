"""Communication calls, by NCCL's names."""

from __future__ import annotations

from enum import IntEnum


class Comm(IntEnum):
    """A communication call; bytes are the total buffer, as nccl-tests counts them. A barrier is an all-reduce of 4 bytes."""

    NONE = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5
    SEND_RECV = 6
    REDUCE = 7
    GATHER = 8
    SCATTER = 9
