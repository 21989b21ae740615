"""What must hold for any mixture: load slows, spreading frees memory, nothing is lost on the way to experts and back."""

from __future__ import annotations

from typing import Any

from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from jobs import make_job

from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.workload import Axis, Comm, build
from windtunnel.workload.blocks.routing import distinct

SMALL: dict[str, Any] = {
    "layers": 2,
    "hidden": 128,
    "heads": 4,
    "ffn": 256,
    "vocab": 512,
    "seq": 64,
    "global_batch": 16,
    "attention": "flash",
    "activation": "swiglu",
    "norm": "rmsnorm",
    "linear_bias": False,
    "dp": 8,
}
mixtures = st.builds(
    lambda experts, top_k, dispatch, etp, shared, pattern: (
        SMALL
        | {
            "experts": experts,
            "top_k": min(top_k, experts),
            "moe_dispatch": dispatch,
            "etp": etp,
            "shared_ffn": shared,
            "expert_ffn": 64,
            "layer_pattern": pattern,
        }
    ),
    st.sampled_from([4, 8, 16]),
    st.integers(1, 6),
    st.sampled_from(["alltoall", "allgather", "deepep"]),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 64]),
    st.sampled_from([None, "DE"]),
)


@examples(5)
@given(mixtures, st.sampled_from([1, 2, 4]), st.floats(1.0, 3.0))
def test_an_uneven_load_is_never_faster(fields: dict[str, Any], ep: int, load: float) -> None:
    even, odd = (predict(make_job(**fields, ep=ep, moe_imbalance=x)) for x in (1.0, load))
    assert odd.step_time_s >= even.step_time_s * (1 - 1e-9)


@examples(5)
@given(mixtures)
def test_spreading_experts_frees_weights_and_brings_tokens_back(fields: dict[str, Any]) -> None:
    held = []
    for ep in (1, 2, 4):
        job = make_job(**fields, ep=ep)
        workload = build(job)
        held.append(memory_of(job, workload)[0].weights)
        ops = workload.ops
        moved = [(ops.comm[r], float(ops.bytes[r]), ops.names[r]) for r in range(len(ops)) if ops.axis[r] == Axis.EP]
        there = sum(size for _, size, name in moved if name == "dispatch")
        assert there == sum(size for _, size, name in moved if name == "combine")
        gathered, summed = (sum(size for call, size, _ in moved if call == c) for c in (Comm.ALL_GATHER, Comm.REDUCE_SCATTER))
        assert gathered == summed
        assert bool(moved) == (ep > 1)
    assert held == sorted(held, reverse=True)


@examples(20)
@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 8))
def test_distinct_places_lie_between_one_and_all(places: int, each: int, chosen: int) -> None:
    picked = min(chosen, places * each)
    found = distinct(places, places * each, picked)
    assert max(1.0, picked / each) - 1e-9 <= found <= min(places, picked) + 1e-9
