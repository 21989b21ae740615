"""A parallel block's tensor-parallel communication and order, and products cut in chunks, against counts by hand."""

from __future__ import annotations

import pytest

from windtunnel.base.errors import PlanError
from windtunnel.predict import predict
from windtunnel.spec import Job, check, load_job
from windtunnel.workload import Axis, Comm, Kind, Workload, build

LAYER = 1
SIZE = 2048 * 12288 * 2
"""Bytes of a micro batch's activations."""


def job(*sets: str) -> Job:
    return load_job("megascale-175b-12288", ["cluster.gpus=64", "plan.dp=1", "plan.global_batch=8", "plan.recompute=none", *sets])


def calls(workload: Workload, rows: range) -> dict[Comm, float]:
    """Bytes by call over the tensor-parallel group."""
    ops, found = workload.ops, {}
    for row in rows:
        if ops.kind[row] == Kind.COMM and ops.axis[row] == Axis.TP:
            call = Comm(int(ops.comm[row]))
            found[call] = found.get(call, 0.0) + float(ops.bytes[row])
    return found


@pytest.mark.parametrize("overlap", ["true", "false"])
def test_a_parallel_block_communicates_half(overlap: str) -> None:
    serial, parallel = (build(check(job(f"model.parallel_block={p}", f"runtime.overlap_tp={overlap}"))) for p in ("false", "true"))
    for times, workload in ((2, serial), (1, parallel)):
        block = workload.blocks[LAYER]
        forward, backward = calls(workload, block.forward), calls(workload, block.backward)
        assert forward == pytest.approx({Comm.ALL_GATHER: times * SIZE, Comm.REDUCE_SCATTER: times * SIZE})
        # backward gathers the gradient of the output, and the input once more for the weights' gradients
        assert backward == pytest.approx({Comm.ALL_GATHER: 2 * times * SIZE, Comm.REDUCE_SCATTER: times * SIZE})


def test_without_sequence_parallelism_one_all_reduce_a_pass() -> None:
    workload = build(check(job("model.parallel_block=true", "plan.sequence_parallel=false")))
    block = workload.blocks[LAYER]
    assert calls(workload, block.forward) == calls(workload, block.backward) == {Comm.ALL_REDUCE: SIZE}


def test_a_parallel_block_does_the_same_work() -> None:
    serial, parallel = (build(check(job(f"model.parallel_block={p}"))) for p in ("false", "true"))
    for pass_ in ("forward", "backward"):
        work = [
            float(w.ops.flops[rows.start : rows.stop].sum())
            for w in (serial, parallel)
            for rows in (getattr(w.blocks[LAYER], pass_),)
        ]
        assert work[0] == pytest.approx(work[1])


def test_the_large_products_carry_the_calls() -> None:
    workload = build(check(job("model.parallel_block=true", "runtime.overlap_tp=true")))
    rows = workload.blocks[LAYER].forward
    names = [workload.ops.names[row] for row in rows]
    assert names.index("mlp up") < names.index("qkv") < names.index("attention out") < names.index("mlp down")
    assert names.count("mlp up") == names.count("mlp down") == names.count("mlp down scatter") == 4
    assert names.count("qkv") == names.count("attention out") == 1


@pytest.mark.parametrize(
    ("tp", "chunks", "parts"),
    [(8, 4, [1 / 7, 2 / 7, 2 / 7, 2 / 7]), (8, 8, [1 / 7] * 7), (2, 4, [0.5, 0.5]), (4, 2, [1 / 3, 2 / 3])],
)
def test_chunks_of_a_gather_leave_the_own_rows_out(tp: int, chunks: int, parts: list[float]) -> None:
    sets = (f"plan.tp={tp}", f"cluster.gpus={8 * tp}", "runtime.overlap_tp=true", f"runtime.tp_chunks={chunks}")
    workload = build(check(job(*sets)))
    ops = workload.ops
    sizes = [float(ops.bytes[row]) for row in workload.blocks[LAYER].forward if ops.names[row] == "qkv gather"]
    assert sizes == pytest.approx([part * SIZE for part in parts])
    assert sum(ops.names[row] == "qkv" for row in workload.blocks[LAYER].forward) == chunks


def test_overlap_hides_calls_behind_chunks() -> None:
    plain, chunked = (predict(job("model.parallel_block=true", f"runtime.overlap_tp={on}")) for on in ("false", "true"))
    assert chunked.breakdown["exposed_tensor_parallel"] < 0.5 * plain.breakdown["exposed_tensor_parallel"]
    assert chunked.breakdown["matmul"] > plain.breakdown["matmul"]  # smaller products are less efficient
    assert chunked.step_time_s < plain.step_time_s


@pytest.mark.parametrize(
    ("sets", "hint"), [(("runtime.overlap_tp=true", "runtime.tp_chunks=3"), "divisor"), (("runtime.tp_chunks=8",), "overlap_tp")]
)
def test_chunks_that_cannot_be(sets: tuple[str, ...], hint: str) -> None:
    with pytest.raises(PlanError, match=hint):
        check(job(*sets))


def test_sending_while_computing_needs_no_synchronisation() -> None:
    waits, sends = (predict(job("runtime.p2p_sync=true", f"runtime.overlap_p2p={on}")) for on in ("false", "true"))
    same = predict(job("runtime.p2p_sync=false", "runtime.overlap_p2p=true"))
    assert sends.step_time_s < waits.step_time_s
    assert sends.step_time_s == same.step_time_s
