"""Schedules through the engine: the times of a pipeline on squared paper, halves and pairs of passes by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from free_parts import BACKWARD, FORWARD, calls_take, even_job, even_layers
from jobs import make_job
from schedule_clock import Times, run

from windtunnel.memory.walk import activation_walk, block_needs
from windtunnel.predict import predict
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import lower
from windtunnel.predict.program.passes import PassRows, half, interleave_passes
from windtunnel.spec.runtime import Data
from windtunnel.workload import Axis, Comm, Phase, Stream, build
from windtunnel.workload.ops import Kind, Op, OpTable
from windtunnel.workload.schedules import SCHEDULES

HALF = BACKWARD / 2
TIMES = Times(FORWARD, HALF, HALF, FORWARD + BACKWARD)
PLANS = [(name, pp, vpp) for name in SCHEDULES for pp in (2, 4)
         for vpp in ({"interleaved": (2, 3), "interleaved-zb": (2, 3), "breadth-first": (1, 2), "zbv": (2,), "dualpipev": (2,)}
                     .get(name, (1,)))]  # fmt: skip


@pytest.mark.parametrize(("name", "pp", "vpp"), PLANS)
def test_the_engine_agrees_with_squared_paper(name: str, pp: int, vpp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of equal length, free calls: every stage ends when the schedule's own clock says."""
    even_layers(monkeypatch, weight=HALF)
    calls_take(monkeypatch)
    for times in (2, 4):
        for overlap in (False, True):
            fields: dict[str, Any] = {"schedule": name, "overlap_p2p": overlap, "overlap_grad_reduce": overlap, "dp": 2}
            p = predict(even_job(pp=pp, vpp=vpp, layers=pp * vpp, global_batch=2 * times * pp, **fields))
            assert p.step_time_s == pytest.approx(run(name, pp, vpp, times * pp, TIMES).makespan, rel=1e-9)
            assert sum(p.breakdown.values()) == pytest.approx(p.step_time_s, rel=1e-9)


@pytest.mark.parametrize(("name", "pp", "vpp"), PLANS)
def test_every_row_runs_once_for_each_micro_batch(name: str, pp: int, vpp: int) -> None:
    """In halves and in pairs too: what the compute stream did is what the rows' seconds add up to."""
    job = even_job(pp=pp, vpp=vpp, layers=pp * vpp, global_batch=2 * pp, schedule=name, recompute="full", tp=2)
    p = predict(job)
    for stage, parts in enumerate(p.by_stage):
        workload = build(job)
        costs = price(workload)
        expected = sum(
            times * runs * float(costs.seconds[rows][workload.ops.kind[rows] != Kind.COMM].sum())
            for chunk, runs in zip(workload.stages[stage], workload.runs(stage), strict=True)
            for index, times in chunk.blocks
            for rows in (slice(b.start, b.stop) for b in (workload.blocks[index].forward, workload.blocks[index].backward))
        )
        shown = sum(parts.get(c, 0.0) for c in ("matmul", "attention", "memory_bound", "recompute"))
        assert shown == pytest.approx(expected, rel=1e-9)
    assert p.hfu > p.mfu


@pytest.mark.parametrize(("fields", "copies"), [
    ({"sharding": "fsdp"}, 1), ({"sharding": "zero1", "overlap_grad_reduce": True, "overlap_param_gather": True}, 2),
    ({"sharding": "zero1"}, 2), ({"sharding": "none"}, 2),
])  # fmt: skip
@pytest.mark.parametrize(("name", "vpp"), [("zb-h1", 1), ("zbv", 2), ("dualpipe", 1), ("dualpipev", 2), ("breadth-first", 2)])
def test_the_same_is_gathered_and_reduced(name: str, vpp: int, fields: dict[str, Any], copies: int) -> None:
    """Whatever order passes run in. Two copies gather and reduce twice as much where that happens once a step, and their gradients
    meet."""
    sizes: dict[str, Any] = {"pp": 2, "dp": 2, "layers": 4, "global_batch": 16, "tied_embeddings": False}

    def moved(job: Any) -> tuple[float, float]:
        assert predict(job).step_time_s > 0.0
        workload = build(job)
        calls = [(axis, size * n) for stage in lower(workload, price(workload)).calls for (_, axis, size), n in stage.items()]
        twins = sum(size for axis, size in calls if axis == Axis.EMBEDDING)
        return sum(size for axis, size in calls if axis in (Axis.SHARD, Axis.REPLICA)), twins

    plain, none = moved(make_job(**sizes, **fields))
    found, twins = moved(make_job(schedule=name, vpp=vpp, **sizes, **fields))
    assert none == 0.0 and (twins > 0.0) == (name == "dualpipe")
    assert found == pytest.approx(plain * (copies if name == "dualpipe" else 1))


def _table(*rows: tuple[Phase, bool]) -> OpTable:
    return OpTable.of([
        Op("row", Kind.COMM if comm else Kind.GEMM, phase, comm=Comm.ALL_GATHER if comm else Comm.NONE,
           stream=Stream.TP if comm else Stream.COMPUTE) for phase, comm in rows
    ])  # fmt: skip


def _piece(*waits: tuple[int, int]) -> PassRows:
    n = len(waits)
    return PassRows(np.arange(n), np.array(waits, np.int32), np.ones(n, np.bool_), np.zeros(n))


def test_halves_keep_what_calls_wait_for() -> None:
    """Bias gradient, gather for the weights, input gradient, its scatter, weight gradient that awaits both, norm, bias gradient."""
    dgrad, wgrad = Phase.DGRAD, Phase.WGRAD
    ops = _table((wgrad, False), (wgrad, True), (dgrad, False), (dgrad, True), (wgrad, False), (dgrad, False), (wgrad, False))
    piece = _piece((-1, -1), (0, -1), (-1, -1), (2, -1), (1, 3), (-1, -1), (-1, -1))
    first = half(ops, piece, weight=False)
    assert first.rows.tolist() == [0, 2, 3, 4, 5, 6]
    assert first.live.tolist() == [False, True, True, False, True, False]
    assert first.waits[2].tolist() == [1, -1] and first.waits[3].tolist() == [2, -1]
    second = half(ops, piece, weight=True)
    assert second.rows.tolist() == [0, 1, 4, 6] and second.live.all()
    assert second.waits.tolist() == [[-1, -1], [0, -1], [1, -1], [-1, -1]]


def test_calls_of_one_pass_run_beside_computation_of_the_other() -> None:
    """Compute, call, compute, a second each: alone three seconds, both at the same time four."""
    waits = ((-1, -1), (0, -1), (1, -1))
    one, other = _piece(*waits), _piece(*waits)
    other = PassRows(other.rows + 3, other.waits, other.live, other.host)
    streams = np.array([0, 1, 0, 0, 2, 0], np.int32)
    merged = interleave_passes(one, other, streams, np.ones(6))
    assert merged.rows.tolist() == [0, 1, 3, 2, 4, 5] or merged.rows.tolist() == [0, 1, 3, 4, 2, 5]
    at = {row: place for place, row in enumerate(merged.rows.tolist())}
    assert [merged.waits[at[row]][0] for row in (1, 2, 4, 5)] == [at[0], at[1], at[3], at[4]]


def test_a_pair_hides_tensor_parallel_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """DualPipeV against ZBV, which runs the same passes one by one: less of the calls is exposed."""
    fields: dict[str, Any] = {"pp": 2, "vpp": 2, "tp": 4, "layers": 8, "global_batch": 16, "sequence_parallel": True}
    single, paired = (predict(even_job(schedule=name, overlap_tp_dgrad=False, **fields)) for name in ("zbv", "dualpipev"))
    assert paired.breakdown["exposed_tensor_parallel"] < 0.7 * single.breakdown["exposed_tensor_parallel"]
    names = {span.category for span in paired.timeline}
    assert {"forward", "backward", "backward input", "backward weight", "send", "receive"} <= names
    ends = [end for end, _ in paired.memory[0].curve]
    assert len(ends) - 1 == 2 * 2 * 16 + sum(s.category == "backward weight" for s in paired.timeline if s.stage == 0)
    spans = [s for s in paired.kernel_timeline if s.stage == 0 and s.stream == "compute"]
    assert all(a.end <= b.start + 1e-12 for a, b in pairwise(spans)), "kernels of a pair take turns on the compute stream"


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2"])
def test_weight_gradients_keep_32_bytes_a_token_and_hidden_unit(name: str) -> None:
    """Qi et al. 2023, table 1: a GPT layer keeps 32 s b h bytes between the halves; section 2: micro batches in flight."""
    job = make_job(pp=4, layers=4, global_batch=16, schedule=name)
    workload = build(job)
    need = block_needs(workload)[1]
    assert need.late == 32 * job.plan.seq * job.model.hidden
    times = 1 if name == "zb-h1" else 2
    for stage in (1, 2):  # without embedding and head
        ahead, behind = times * (3 - stage) + 1, times * stage
        # the last stages hold most right after a first half: one more waits for its weights, one less for its gradient
        peak = max(ahead * need.saved + behind * need.late, (ahead - 1) * need.saved + (behind + 1) * need.late)
        assert activation_walk(workload, stage).max() == pytest.approx(peak)
        assert activation_walk(workload, stage)[-1] == 0.0


def test_two_copies_hold_twice_the_parameters() -> None:
    sizes: dict[str, Any] = {"pp": 4, "dp": 2, "layers": 4, "global_batch": 32, "tied_embeddings": False, "sharding": "zero1"}
    one, two = (predict(make_job(schedule=name, **sizes)).memory for name in ("1f1b", "dualpipe"))
    assert sum(s.weights for s in two) == 2 * sum(s.weights for s in one)
    assert sum(s.optimizer for s in two) == pytest.approx(sum(s.optimizer for s in one)), "cut over both"


def test_a_v_holds_both_ends_on_the_first_stage() -> None:
    workload = build(make_job(pp=2, vpp=2, layers=7, stages=[1, 2, 3, 1], global_batch=8, schedule="zbv"))
    held = [[dict(chunk.blocks) for chunk in chunks] for chunks in workload.stages]
    assert held == [[{0: 1, 1: 1}, {1: 1, 2: 1}], [{1: 2}, {1: 3}]], "blocks: embedding, layer, head"


@pytest.mark.parametrize(("name", "vpp"), [("zb-h1", 1), ("zbv", 2), ("dualpipe", 1), ("dualpipev", 2)])
def test_transfers_both_ways_over_a_network(name: str, vpp: int) -> None:
    """Over fluid links each transfer takes what the closed form says; activations of a V's second leg go back a stage, as gradients
    of its first do."""
    job = make_job(pp=4, vpp=vpp, tp=8, layers=8, global_batch=8, schedule=name)
    workload = build(job)
    live = NetworkCalls(price(workload).calls)
    lower(workload, price(workload), live)
    keys, plans = live.table()
    crossing = 4 * vpp - 1 - (vpp == 2)
    transfers = [call for call in live.calls if call.comm == Comm.SEND_RECV]
    assert len(set(keys.tolist())) == len(keys) >= 2 * 8 * crossing
    assert sorted({(call.stage, call.back) for call in transfers}) == [(s, back) for s in range(3) for back in (False, True)]
    counts = [int((plans == live.calls[call]).sum()) for call in transfers]
    assert counts == [8 * vpp] * 6
    assert predict(job, network="flow").step_time_s == pytest.approx(predict(job).step_time_s, rel=0.03)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2", "zbv", "dualpipe", "dualpipev"])
@pytest.mark.parametrize("batches", [4, 6, 8])
def test_no_schedule_stops_where_batches_are_read_back(name: str, batches: int) -> None:
    vpp = 2 if name in ("zbv", "dualpipev") else 1
    job = make_job(pp=2, vpp=vpp, layers=4, global_batch=batches, schedule=name, data=Data(read_back=True), overlap_p2p=False)
    assert predict(job).step_time_s > 0.0
