"""Placement: the GPU on which each rank of a job runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.base.errors import SpecError, UnknownName


def _place_packed(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """Rank r on GPU r: node by node."""
    return np.arange(len(home), dtype=np.int32)


def _rail(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """All GPUs of rail 0, node by node, then those of rail 1, ...: neighbours share a rail."""
    return np.lexsort((np.arange(len(home)), rail)).astype(np.int32)


def _pod(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """One node of each pod in turn: the nodes of a group are spread over the pods."""
    return _dealt(home, pod)


def _leaf(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """One node of each leaf in turn."""
    return _dealt(home, leaf)


def _random(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """Nodes in random order, GPUs of a node together: the placement of a scheduler that ignores topology."""
    position = np.random.default_rng(seed).permutation(int(home.max()) + 1)
    return np.lexsort((np.arange(len(home)), position[home])).astype(np.int32)


def _dealt(home: Int32s, block: Int32s) -> Int32s:
    """Nodes ordered by their place in their block, then by block."""
    first = np.concatenate([[0], np.cumsum(np.bincount(block[np.unique(home, return_index=True)[1]]))])
    within = home - first[block]
    return np.lexsort((np.arange(len(home)), block, within)).astype(np.int32)


PLACEMENTS: dict[str, Callable[[Int32s, Int32s, Int32s, Int32s, int], Int32s]] = {
    "packed": _place_packed, "rail": _rail, "pod": _pod, "leaf": _leaf, "random": _random,
}  # fmt: skip
"""Name -> (node, leaf, pod, rail of each GPU, seed) -> GPU of each rank."""


def place(text: str, home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s) -> Int32s:
    """GPU of each rank [ranks]: `packed`, `rail`, `leaf`, `pod`, `random:SEED`, or `list:4,0,1,...` with a GPU for each rank.

    A list may be shorter than the machine. Raises UnknownName for another word, SpecError for a seed or list that is wrong.
    """
    name, _, rest = text.partition(":")
    if name == "list":
        return _place_given(rest, len(home))
    if name not in PLACEMENTS:
        raise UnknownName("placement", name, [*PLACEMENTS, "list"])
    try:
        seed = int(rest) if rest else 1
    except ValueError:
        seed = -1
    if seed < 0:
        raise SpecError("placement", text, "a seed that is a whole number, such as random:1")
    return PLACEMENTS[name](home, leaf, pod, rail, seed)


def _place_given(text: str, gpus: int) -> Int32s:
    try:
        gpu_of_rank = np.array([int(part) for part in text.split(",")], np.int64)
    except (ValueError, OverflowError):
        raise SpecError("placement", text, "GPU numbers with commas, such as list:0,8,16") from None
    if (gpu_of_rank < 0).any() or (gpu_of_rank >= gpus).any() or len(np.unique(gpu_of_rank)) != len(gpu_of_rank):
        raise SpecError("placement", text, f"different GPUs from 0 to {gpus - 1}")
    return gpu_of_rank.astype(np.int32)
