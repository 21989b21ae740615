"""Context parallelism: what each kind computes, sends and keeps, by hand; and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.memory.walk import block_needs
from windtunnel.network.groups.shape import rows_of
from windtunnel.predict import predict
from windtunnel.spec import Job
from windtunnel.workload import Axis, Comm, Kind, Phase, build, hardware_flops, model_flops
from windtunnel.workload.blocks.context import seen_by

SEQ, HEADS, GROUPS, DIM = 4096, 16, 4, 64
KV = 2 * GROUPS * DIM * 2  # bytes of keys and values of one token


def job(cp: int = 4, **fields: Any) -> Job:
    return make_job(
        **{
            "gpus": cp,
            "cp": cp,
            "seq": SEQ,
            "kv_heads": GROUPS,
            "attention": "flash",
            "global_batch": 2,
            "position": "rope",
            **fields,
        }
    )


def calls(of: Job, comm: Comm, *phases: Phase) -> list[float]:
    """Bytes of a layer's calls over context-parallel axes."""
    workload = build(of)
    layer, ops = workload.blocks[1], workload.ops
    return [
        float(ops.bytes[r])
        for r in (*layer.forward, *layer.backward)
        if ops.comm[r] == comm and ops.axis[r] in (Axis.CP, Axis.CP_HEADS, Axis.CP_RING) and ops.phase[r] in phases
    ]


def attention(of: Job, kind: Kind = Kind.ATTENTION) -> float:
    """FLOPs of a layer's attention kernels."""
    workload = build(of)
    layer, ops = workload.blocks[1], workload.ops
    return sum(float(ops.flops[r]) for r in (*layer.forward, *layer.backward) if ops.kind[r] == kind)


KINDS = (
    {"cp_kind": "p2p"},
    {"cp_kind": "all_gather"},
    {"cp_kind": "a2a"},
    {"cp_kind": "a2a+p2p", "cp_sizes": (2, 2)},
    {"cp_kind": "p2p", "cp_library": "torch"},
    {"cp_kind": "all_gather", "cp_library": "torch"},
)


@pytest.mark.parametrize("fields", KINDS)
def test_balanced_ranks_share_the_work_of_one(fields: dict[str, Any]) -> None:
    """Half of the square and its diagonal: 4 FLOPs for each visible pair and head element, a quarter of it on each rank."""
    whole = 4.0 * HEADS * DIM * SEQ * (SEQ + 1) / 2
    assert attention(make_job(seq=SEQ, kv_heads=GROUPS, attention="flash", global_batch=2, position="rope")) == whole
    assert attention(job(**fields)) == pytest.approx(whole / 4, rel=1e-12)
    assert attention(job(**fields), Kind.ATTENTION_BACKWARD) == pytest.approx(2.5 * whole / 4, rel=1e-12)


@pytest.mark.parametrize("kind", ["p2p", "all_gather"])
def test_the_last_of_contiguous_ranks_sees_most(kind: str) -> None:
    """Its quarter of the queries sees 3 whole quarters and half of its own: 7/8 of all keys, where the mean is 1/2."""
    own = SEQ // 4
    pairs = own * (3 * own + (own + 1) / 2)
    assert attention(job(cp_kind=kind, cp_balance="contiguous")) == pytest.approx(4.0 * HEADS * DIM * pairs, rel=1e-12)


def test_an_all_to_all_needs_no_balance() -> None:
    assert attention(job(cp_kind="a2a", cp_balance="contiguous")) == attention(job(cp_kind="a2a"))


def test_a_ring_sends_what_every_other_rank_needs() -> None:
    """Forward keys and values 3 times; backward keys and values, then both with their gradients, then gradients alone."""
    own = SEQ // 4 * KV
    assert calls(job(cp_kind="p2p"), Comm.SEND_RECV, Phase.FORWARD) == [own] * 3
    assert calls(job(cp_kind="p2p"), Comm.SEND_RECV, Phase.DGRAD) == [own, 2 * own, 2 * own, own]


def test_pytorchs_ring_sends_all_heads_and_fp32_gradients() -> None:
    own = SEQ // 4 * KV * HEADS // GROUPS
    torch = job(cp_kind="p2p", cp_library="torch")
    assert calls(torch, Comm.SEND_RECV, Phase.FORWARD) == [own] * 3
    assert sorted(calls(torch, Comm.SEND_RECV, Phase.DGRAD)) == [own] * 3 + [2 * own] * 4
    at_once = job(cp_kind="all_gather", cp_library="torch")
    assert calls(at_once, Comm.ALL_GATHER, Phase.FORWARD, Phase.DGRAD) == [4 * own] * 2
    assert calls(at_once, Comm.SEND_RECV, Phase.DGRAD) == [2 * own] * 4


def test_a_gather_brings_all_keys_twice_and_scatters_gradients_once() -> None:
    gathered = job(cp_kind="all_gather")
    assert calls(gathered, Comm.ALL_GATHER, Phase.FORWARD, Phase.DGRAD) == [SEQ * KV] * 2
    assert calls(gathered, Comm.REDUCE_SCATTER, Phase.DGRAD) == [SEQ * KV]


def test_ulysses_exchanges_queries_keys_values_and_context() -> None:
    queries, keys = SEQ // 4 * HEADS * DIM * 2, SEQ // 4 * GROUPS * DIM * 2
    swap = job(cp_kind="a2a")
    assert calls(swap, Comm.ALL_TO_ALL, Phase.FORWARD) == [queries, keys, keys, queries]
    assert calls(swap, Comm.ALL_TO_ALL, Phase.DGRAD) == [queries, queries, keys, keys]


def test_hierarchical_rings_are_shorter_and_carry_a_share_of_the_heads() -> None:
    both = job(cp_kind="a2a+p2p", cp_sizes=(2, 2))
    assert calls(both, Comm.SEND_RECV, Phase.FORWARD) == [SEQ // 2 * KV // 2]
    assert len(calls(both, Comm.ALL_TO_ALL, Phase.FORWARD)) == 4
    sizes = {"tp": 2, "cp": 4, "dp": 1, "pp": 1}
    heads = rows_of(Axis.CP_HEADS, sizes, ("tp", "cp", "ep", "dp", "pp"), 1, 1, swap=2)
    rings = rows_of(Axis.CP_RING, sizes, ("tp", "cp", "ep", "dp", "pp"), 1, 1, swap=2)
    assert sorted(heads.tolist()) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert sorted(rings.tolist()) == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("fields", KINDS)
def test_predictions_hold_over_engines_and_recompute(fields: dict[str, Any]) -> None:
    """Calls leave the scale-up domain; recompute adds one forward pass of the core to the FLOPs, every key counted."""
    of = job(cp=16 if "cp_sizes" not in fields else 4, recompute="selective", heads=64, kv_heads=16, hidden=4096, **fields)
    again = hardware_flops(build(of)) - model_flops(of)
    assert again == pytest.approx(2 * 4 * 4.0 * 64 * 64 * SEQ * SEQ, rel=0.01)
    closed, flow = predict(of), predict(of, network="flow")
    assert flow.step_time_s == pytest.approx(closed.step_time_s, rel=0.3)


def test_a_ring_hides_what_a_gather_shows() -> None:
    """At long sequences computation covers the ring; a gather stands before it."""
    ring, gather = (predict(job(cp=8, seq=65536, cp_kind=kind)).breakdown for kind in ("p2p", "all_gather"))
    assert ring.get("exposed_context_parallel", 0.0) < 0.1 * gather["exposed_context_parallel"]


def test_balance_pays() -> None:
    for kind in ("p2p", "all_gather"):
        balanced, not_ = (predict(job(cp=8, seq=65536, cp_kind=kind, cp_balance=how)) for how in ("zigzag", "contiguous"))
        assert not_.breakdown["attention"] > 1.4 * balanced.breakdown["attention"]


def test_gathered_keys_take_memory_that_a_ring_does_not() -> None:
    """Backward holds keys and values of all 8 ranks, or those here and those that arrive, each with their gradients."""
    ring, gather = (block_needs(build(job(cp=8, cp_kind=kind, ffn=1024)))[1] for kind in ("p2p", "all_gather"))
    own, heads = SEQ // 8 * KV, HEADS * DIM * 2
    assert gather.saved == ring.saved
    # the kernels' own gradients differ too: of all keys, of those of a block
    assert gather.working - ring.working == pytest.approx((8 - 4) * own + 2 * heads * (SEQ - SEQ // 8))


def test_what_a_rank_sees_of_windows_and_documents() -> None:
    """Every query counted, against the closed form."""
    seq, ranks = 64, 2

    def by_hand(balance: str, window: int | None, document: int | None) -> float:
        keys = np.minimum(np.arange(seq) % (document or seq) + 1, window or seq)
        chunks = keys.reshape(4 if balance == "zigzag" else 2, -1).mean(axis=1)
        return float(max((chunks[0] + chunks[3]) / 2, (chunks[1] + chunks[2]) / 2) if balance == "zigzag" else chunks.max())

    for balance in ("zigzag", "contiguous"):
        for window in (None, 8):
            for document in (None, 16, 32):
                assert seen_by(seq, ranks, balance, window, document) == pytest.approx(by_hand(balance, window, document))


def test_attention_stays_inside_documents() -> None:
    """Eight documents a sequence: an eighth of the pairs, with and without context parallelism."""
    for fields in ({}, {"cp": 4, "cp_kind": "p2p"}, {"cp": 4, "cp_kind": "all_gather"}, {"cp": 4, "cp_kind": "a2a"}):
        kept = make_job(
            **{
                "gpus": fields.get("cp", 1),
                "seq": SEQ,
                "kv_heads": GROUPS,
                "attention": "flash",
                "global_batch": 2,
                "document": SEQ // 8,
                "position": "rope",
                **fields,
            }
        )
        assert attention(kept) == pytest.approx(4.0 * HEADS * DIM * SEQ / fields.get("cp", 1) * (SEQ / 8 + 1) / 2)


@pytest.mark.parametrize(
    "fields, path, says",
    [
        ({"cp_kind": "p2p", "seq": 4100}, "plan.seq", "2*cp"),
        ({"cp_kind": "a2a", "cp": 8}, "plan.cp_kind", "a2a+p2p with plan.cp_sizes = [4, 2]"),
        ({"cp_kind": "a2a", "kv_heads": 1}, "plan.cp_kind", "p2p or all_gather"),
        ({"cp_kind": "a2a+p2p"}, "plan.cp_sizes", "Try [2, 2]"),
        ({"cp_kind": "a2a+p2p", "cp_sizes": (4, 2)}, "plan.cp_sizes", "product is cp = 4"),
        ({"cp_kind": "p2p", "cp_sizes": (2, 2)}, "plan.cp_sizes", "only with"),
        ({"cp_kind": "p2p", "window": 512}, "plan.cp_kind", "sliding window"),
        ({"cp_kind": "p2p", "attention": "fused_softmax"}, "plan.cp_kind", "log-sum-exp"),
        ({"cp": 1, "cp_kind": "p2p"}, "plan.cp_kind", "plan.cp of 2 or more"),
        ({"cp": 1, "cp_balance": "contiguous"}, "plan.cp_balance", "plan.cp of 2 or more"),
        ({"document": 1000}, "plan.document", "Try 1024"),
        ({"document": 4, "cp_kind": "p2p"}, "plan.document", "multiple of 8"),
        ({"document": 1024, "attention": "unfused", "cp_kind": "all_gather"}, "plan.document", "flash"),
    ],
)
def test_impossible_plans_say_why(fields: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        job(**fields)
    assert str(caught.value).startswith(path) and says in str(caught.value)


def test_the_framework_chooses_where_the_plan_does_not() -> None:
    assert job().cp_kind == "p2p"
    assert job(window=512).cp_kind == "all_gather"  # no library has a window in a ring
    assert job(attention="fused_softmax").cp_kind == "all_gather"
