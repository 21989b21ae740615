"""The graph counts what papers count: FLOPs, parameters, saved bytes, collectives."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.workload import Comm, Kind, Phase, build, hardware_flops, model_flops, parameter_count


def test_model_flops_follow_korthikanti_equation_7() -> None:
    job = make_job(layers=96, hidden=12288, heads=96, ffn=49152, vocab=51200, seq=2048, global_batch=64)
    b, s, h, layers, v = 64, 2048, 12288, 96, 51200
    assert model_flops(job) == pytest.approx(72 * b * layers * s * h * h * (1 + s / (6 * h) + v / (12 * layers * h)))


def test_full_recompute_runs_every_layer_again() -> None:
    job = make_job(layers=4, hidden=1024, heads=16, ffn=4096, vocab=51200, seq=1024, global_batch=8, recompute="full")
    b, s, h, layers = 8, 1024, 1024, 4
    assert hardware_flops(build(job)) - model_flops(job) == pytest.approx(24 * b * layers * s * h * h * (1 + s / (6 * h)))


@pytest.mark.parametrize(
    "name, kwargs, published",
    [
        ("GPT-3 175B", {"layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152, "vocab": 50257}, 174.6e9),
        (
            "Llama-3 8B",
            {
                "layers": 32,
                "hidden": 4096,
                "heads": 32,
                "kv_heads": 8,
                "ffn": 14336,
                "vocab": 128256,
                "activation": "swiglu",
                "norm": "rmsnorm",
                "position": "rope",
                "tied_embeddings": False,
                "linear_bias": False,
            },
            8.03e9,
        ),
    ],
)
def test_parameters_match_the_published_count(name: str, kwargs: dict[str, object], published: float) -> None:
    assert parameter_count(make_job(**kwargs).model) == pytest.approx(published, rel=0.003), name


@pytest.mark.parametrize(
    "tp, sp, recompute, per_sbh",
    [
        (1, False, "none", 34 + 5 * 16 * 1024 / 1024),
        (8, False, "none", 10 + 24 / 8 + 5 * 16 * 1024 / 1024 / 8),
        (8, True, "none", (34 + 5 * 16 * 1024 / 1024) / 8),
        (8, True, "selective", 34 / 8),
        (8, False, "full", 2),
        (8, True, "full", 2 / 8),
    ],
)
def test_saved_bytes_are_korthikantis_table_2(tp: int, sp: bool, recompute: str, per_sbh: float) -> None:
    job = make_job(
        layers=2,
        hidden=2048,
        heads=32,
        ffn=8192,
        seq=1024,
        tp=tp,
        sequence_parallel=sp,
        recompute=recompute,
        attention="fused_softmax",
        dropout=True,
    )
    layer = build(job).blocks[1]
    assert layer.saved == pytest.approx(per_sbh * 1024 * 2048)


def test_a_layer_has_two_all_reduces_forward_and_two_backward() -> None:
    workload = build(make_job(tp=4))
    layer = workload.blocks[1]
    for rows in (layer.forward, layer.backward):
        calls = [workload.ops.comm[r] for r in rows if workload.ops.kind[r] == Kind.COMM]
        assert calls == [Comm.ALL_REDUCE, Comm.ALL_REDUCE]


def test_sequence_parallelism_moves_the_same_bytes_in_other_calls() -> None:
    def moved(sp: bool) -> float:
        workload = build(make_job(tp=4, sequence_parallel=sp))
        ops = workload.ops
        factor = {Comm.ALL_REDUCE: 2.0, Comm.ALL_GATHER: 1.0, Comm.REDUCE_SCATTER: 1.0}
        return sum(
            float(ops.bytes[r]) * factor[Comm(int(ops.comm[r]))] for r in workload.blocks[1].forward if ops.kind[r] == Kind.COMM
        )

    assert moved(True) == moved(False)


def test_backward_has_twice_the_matrix_flops_of_forward() -> None:
    workload = build(make_job(attention="fused_softmax"))
    ops, layer = workload.ops, workload.blocks[1]

    def flops(rows: range) -> float:
        return sum(float(ops.flops[r]) for r in rows if ops.kind[r] == Kind.GEMM)

    assert flops(layer.backward) == pytest.approx(2 * flops(layer.forward))


def test_waits_point_backwards_and_every_collective_is_awaited() -> None:
    for kwargs in ({"tp": 4}, {"tp": 4, "sequence_parallel": True}, {"tp": 4, "sequence_parallel": True, "overlap_tp": True}):
        workload = build(make_job(**kwargs))
        for block in workload.blocks:
            for rows in (block.forward, block.backward):
                awaited = {w for r in rows for w in workload.waits[r]}
                assert all(w < r - rows.start for r in rows for w in workload.waits[r])
                last_comm = [i for i, r in enumerate(rows) if workload.ops.kind[r] == Kind.COMM]
                assert not last_comm or last_comm[-1] in awaited


def test_uneven_stages_keep_every_layer_once() -> None:
    job = make_job(layers=7, pp=2, stages=(3, 4), global_batch=8)
    workload = build(job)
    layers = [
        sum(times for block, times in chunk.blocks if workload.blocks[block].name == "layer")
        for chunks in workload.stages
        for chunk in chunks
    ]
    assert layers == [3, 4]


def test_op_level_recompute_runs_less_again_than_full() -> None:
    def again(recompute: str) -> float:
        workload = build(make_job(activation="swiglu", kv_heads=4, recompute=recompute))
        ops = workload.ops
        return sum(float(ops.flops[r]) for r in workload.blocks[1].backward if ops.phase[r] == Phase.RECOMPUTE)

    assert 0 == again("none") < again("ops") < again("full")


@pytest.mark.parametrize("model", [{}, {"activation": "swiglu", "norm": "rmsnorm"}])
def test_recompute_may_end_with_the_last_tensor_that_backward_needs(model: dict[str, Any]) -> None:
    """What nobody reads is not run again: the last product, whose input is kept, and the add after it."""
    again = []
    for stops in (False, True):
        workload = build(make_job(**model, recompute="full", recompute_stops=stops, dropout=False))
        block = workload.blocks[1]
        again.append([workload.ops.names[row] for row in block.backward if workload.ops.phase[row] == Phase.RECOMPUTE])
    whole, ended = again
    assert whole[: len(ended)] == ended
    assert set(whole[len(ended) :]) >= {"mlp down", "add2"} and "mlp down" not in ended and "mlp up" in ended


def test_a_dropout_after_the_last_product_is_read_by_backward() -> None:
    whole, ended = (build(make_job(recompute="full", recompute_stops=stops, dropout=True)) for stops in (False, True))
    assert [*ended.ops.names] == [*whole.ops.names]
