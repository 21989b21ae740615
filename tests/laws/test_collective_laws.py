"""What must hold of every algorithm: the right data everywhere, exactly once; no byte too many; lanes that can all run."""

from __future__ import annotations

import numpy as np
import pytest
from collective_oracle import payload, verify
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import EngineError, SpecError
from windtunnel.network.algorithm import ALGORITHMS
from windtunnel.network.algorithms.pattern import CollectiveCall, Pattern
from windtunnel.workload.ops import Comm

CALLS = [c for c in Comm if c is not Comm.NONE]


def _made(name: str, call: CollectiveCall) -> Pattern | None:
    try:
        return ALGORITHMS[name].lower(call)
    except SpecError:
        return None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_rank_ends_with_what_the_call_promises(name: str) -> None:
    seen = set()
    for comm in CALLS:
        for n in range(2, 17):
            for per_node in {1, 3, 4, n} if n < 16 else {1, 4, 8, 16}:
                here = min(per_node, n)
                leaves = tuple(node // 2 for node in range(-(-n // here)))
                call = CollectiveCall(comm, n, here, 1000.0 * n, channels=2, nics=2, chunks=2, leaves=leaves, at_once=3)
                pattern = _made(name, call)
                if pattern is not None:
                    verify(pattern, call)
                    seen.add((comm, n))
    assert seen


@given(
    name=st.sampled_from(list(ALGORITHMS)),
    comm=st.sampled_from(CALLS),
    n=st.integers(2, 12),
    per_node=st.integers(1, 8),
    channels=st.integers(1, 4),
    size=st.integers(1, 2**23),
    root=st.integers(0, 11),
    seed=st.integers(0, 99),
)
def test_any_size_and_order_of_events(
    name: str, comm: Comm, n: int, per_node: int, channels: int, size: int, root: int, seed: int
) -> None:
    call = CollectiveCall(
        comm, n, min(per_node, n), float(size), channels=channels, nics=2, step=64 * 1024.0, chunks=3, root=root % n
    )
    pattern = _made(name, call)
    if pattern is not None and int(pattern.slices.sum()) < 4000:
        verify(pattern, call, seed)


@given(
    name=st.sampled_from(["ring", "tree", "nvls", "halving_doubling", "hierarchical", "direct"]),
    n=st.integers(2, 8),
    channels=st.integers(1, 3),
    size=st.integers(1, 2**22),
)
def test_the_pieces_are_the_buffer_and_little_more(name: str, n: int, channels: int, size: int) -> None:
    pattern = _made(name, CollectiveCall(Comm.ALL_REDUCE, n, n, float(size), channels=channels, chunks=2))
    if pattern is not None:
        total = payload(pattern).sum()
        assert size <= total <= size + pattern.pieces  # a byte of rounding each


def test_a_missing_dependency_is_found() -> None:
    call = CollectiveCall(Comm.ALL_REDUCE, 4, 4, 4000.0)
    pattern = ALGORITHMS["ring"].lower(call)
    loose = Pattern(
        **{
            **pattern.__dict__,
            "dep_start": np.zeros(5, dtype=np.int64),
            "dep_lane": pattern.dep_lane[:0],
            "dep_lead": pattern.dep_lead[:0],
        }
    )
    with pytest.raises(EngineError, match="ends with"):
        for seed in range(20):
            verify(loose, call, seed)


def test_lanes_in_a_circle_are_found() -> None:
    call = CollectiveCall(Comm.ALL_REDUCE, 4, 4, 4000.0)
    pattern = ALGORITHMS["ring"].lower(call)
    with pytest.raises(EngineError, match="never come"):
        verify(Pattern(**{**pattern.__dict__, "dep_lead": np.zeros(4, dtype=np.int64)}), call)
