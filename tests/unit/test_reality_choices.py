"""Regret and order of plans, worked out by hand; which rows are set aside; nanotron's layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.reality.score.choices import TWINS_APART, PlanChoice, by_family, choices, set_aside
from windtunnel.reality.score.scores import Score
from windtunnel.reality.score.verdicts import run_failed, verdicts
from windtunnel.reality.validate import score_training
from windtunnel.spec import load_job
from windtunnel.spec.shapes import by_work
from windtunnel.workload import build

ROW = TrainingRow("a", "F", model="m", gpu="h100-sxm-80gb", gpus=8, gbs=64, seq=4096, precision="bf16", tp=1, pp=1, dp=8)


def scored(rows: dict[str, tuple[TrainingRow, float, float]]) -> tuple[PlanChoice, ...]:
    """Choices among rows with (row, measured, predicted) by id."""
    listed = [replace(row, id=name, iter_time_s=measured) for name, (row, measured, _) in rows.items()]
    return choices(listed, [Score(name, "F", "step_time_s", each[1], each[2]) for name, each in rows.items()])


def test_regret_and_order_by_hand() -> None:
    """b is fastest, a is picked: 1.1 / 1.0 - 1. Pairs over 2 % apart: ab, ac, bc, ad, bd; c and d are 1 % apart. ab is wrong."""
    plans = {
        "a": (ROW, 1.1, 0.8),
        "b": (replace(ROW, tp=2), 1.0, 0.9),
        "c": (replace(ROW, tp=4), 2.00, 1.5),
        "d": (replace(ROW, tp=8), 2.02, 1.4),
    }
    (choice,) = scored(plans)
    assert (choice.best, choice.picked, choice.plans) == ("b", "a", 4)
    assert choice.regret_pct == pytest.approx(10.0)
    assert (choice.pairs, choice.agreed) == (5, 4)
    (line,) = by_family((choice,))
    assert line.mean_regret_pct == line.max_regret_pct == pytest.approx(10.0) and line.agreed_pct == pytest.approx(80.0)


def test_an_equal_prediction_orders_nothing() -> None:
    (choice,) = scored({"a": (ROW, 1.0, 1.0), "b": (replace(ROW, tp=2), 2.0, 1.0)})
    assert (choice.pairs, choice.agreed) == (1, 0)


def test_groups_share_job_and_machine_and_runs_of_a_plan_are_one() -> None:
    again = {"a": (ROW, 1.0, 1.0), "b": (ROW, 1.2, 1.0), "c": (replace(ROW, tp=2), 1.15, 2.0)}
    (choice,) = scored(again)
    assert choice.plans == 2 and choice.best == "a"  # the median of 1.0 and 1.2 is 1.1
    for other in ({"gbs": 128}, {"gpus": 16}, {"precision": "fp8"}, {"seq": 8192}, {"model": "n"}, {"source": "of July 2024"}):
        assert scored({"a": (ROW, 1.0, 1.0), "b": (replace(ROW, tp=2, **other), 2.0, 2.0)}) == ()


def test_runs_that_contradict_their_twin_are_set_aside() -> None:
    zero = replace(ROW, id="b", sharding="zero1", iter_time_s=1.0)
    far = replace(ROW, id="c", sharding="none", iter_time_s=1.01 * TWINS_APART)
    near = replace(far, iter_time_s=0.99 * TWINS_APART)
    assert set(set_aside([zero, far])) == {"b", "c"}
    assert set_aside([zero, near]) == {}
    assert set_aside([zero, replace(far, sharding="fsdp")]) == {}  # another way to shard is another plan


def test_a_publication_sets_rows_aside_by_their_columns() -> None:
    row = replace(ROW, framework="nanotron", gpus=512)
    assert "without a pipeline" in set_aside([row])["a"]
    assert set_aside([replace(row, gpus=256)]) == set_aside([replace(row, pp=2)]) == {}
    assert set_aside([replace(row, framework="megatron")]) == {}


def test_runs_that_waste_gpu_time_are_set_aside() -> None:
    """8 GPUs for 16 s are 128 GPU seconds; twice the replicas take 16 x 5 = 80 of them: 1.6 times less."""
    few = replace(ROW, id="few", sharding="zero1", iter_time_s=16.0)
    many = replace(few, id="many", sharding="none", gpus=16, dp=16, iter_time_s=5.0)
    assert "more replicas" in set_aside([few, many])["few"] and len(set_aside([few, many])) == 1
    assert set_aside([replace(few, iter_time_s=0.99 * TWINS_APART * 10.0), many]) == {}
    assert set_aside([few, replace(many, iter_time_s=16.0)]) == {}  # replicas that save nothing are usual
    for other in ({"tp": 2}, {"mbs": 2}, {"gbs": 128}, {"sharding": "fsdp"}):
        assert set_aside([few, replace(many, **other)]) == {}


def test_nanotron_debugged_its_pipelines_over_nodes() -> None:
    """Collectives are compared first where a pipeline spans nodes; transfers are polled on more than 256 GPUs. No others are."""
    row = replace(ROW, framework="nanotron", arch="llama", layers=16, hidden=2048, heads=32, ffn=8192, vocab=131072, mbs=1)
    row = replace(row, fabric="efa", nics_per_node=32, nic_gbit_s=100.0, gpus_per_node=8, recompute="none", gbs=4096)
    seen = []
    for gpus, pp in ((8, 2), (16, 1), (16, 2), (512, 2)):
        drafted = draft(replace(row, gpus=gpus, pp=pp, dp=gpus // pp))
        assert isinstance(drafted, Draft)
        runtime = drafted.jobs[0].runtime
        seen.append((runtime.collective_checks, runtime.p2p_poll))
    assert seen == [(False, 0.0), (False, 0.0), (True, 0.0), (True, 0.1)]


@pytest.mark.parametrize(
    ("layers", "stages", "head", "wanted"),
    [
        (16, 2, 4.0, (10, 6)),  # 20 layers' work, 10 each
        (16, 4, 4.0, (5, 5, 5, 1)),
        (16, 8, 4.0, (3, 2, 3, 2, 3, 2, 1, 0)),  # 2.5 each; the head is alone
        (32, 4, 2.2, (9, 9, 8, 6)),  # 8.55 each
        (4, 2, 9.0, (4, 0)),  # a head of more than half
    ],
)
def test_stages_of_equal_work(layers: int, stages: int, head: float, wanted: tuple[int, ...]) -> None:
    layout = by_work(layers, stages, head)
    assert layout is not None and layout[0] == wanted and sum(layout[0]) == layers


def test_nanotron_rows_overlap_as_its_trainer_does() -> None:
    row = replace(
        ROW, framework="nanotron", arch="llama", params_b=1.3, layers=16, hidden=2048, heads=32, ffn=8192, vocab=131072, mbs=1
    )
    stated = replace(row, sharding="zero1", seq_parallel="n", recompute="none", vpp=1, overlap_dp="y", overlap_tp="y")
    zero, whole = draft(stated), draft(replace(stated, sharding="none"))
    assert isinstance(zero, Draft) and isinstance(whole, Draft)
    assert not zero.jobs[0].runtime.overlap_grad_reduce and whole.jobs[0].runtime.overlap_grad_reduce
    assert not zero.jobs[0].runtime.overlap_param_gather and not zero.jobs[0].runtime.overlap_tp
    assert zero.jobs[0].runtime.reduce_with == "all_reduce" and zero.jobs[0].model.tied_embeddings


NANO = replace(
    ROW,
    framework="nanotron",
    arch="llama",
    params_b=1.3,
    layers=16,
    hidden=2048,
    heads=32,
    ffn=8192,
    vocab=131072,
    mbs=1,
    vpp=1,
    recompute="none",
)


def test_verdicts_count_what_ran_and_what_failed() -> None:
    """Of three runs that ran two are called fitting; of two that failed one is called out of memory; a sixth is no job."""
    rows = [replace(NANO, id=str(number), iter_time_s=1.0) for number in range(3)]
    rows += [replace(NANO, id=str(number), status="run failed (OOM)") for number in (3, 4)]
    rows.append(replace(NANO, id="5", status="failed", pp=32))
    fits = iter((True, False, True, True, False))
    (line,) = verdicts(rows, lambda job: (0.0, next(fits)))
    assert (line.ran, line.fit, line.failed, line.out, line.refused) == (3, 2, 2, 1, 1)
    data = line.as_dict()
    assert data["ran_called_fitting_pct"] == pytest.approx(200 / 3) and data["called_out_failed_pct"] == pytest.approx(50.0)
    assert verdicts(rows[:3]) == ()  # nothing failed, nothing to judge


def test_a_run_that_failed_is_not_scored() -> None:
    row = replace(NANO, status="failed", iter_time_s=1.0)
    (score,) = score_training(row)
    assert run_failed(row) and score.error_pct is None and "verdicts" in (score.skipped or "")


def test_memory_of_rank_0_is_that_of_the_first_stage() -> None:
    row = replace(NANO, pp=4, dp=2, tp=1, mbs=8, gbs=16, sharding="zero1", seq_parallel="n", mem_gib=20.0)
    drafted = draft(row)
    assert isinstance(drafted, Draft)
    stages = [stage.reserved / 2.0**30 for stage in memory_of(drafted.jobs[0], build(drafted.jobs[0]))]
    assert stages[0] < max(stages)  # the head's logits are on the last stage
    for kind, wanted in (("rank0 max", stages[0]), ("reserved", max(stages))):
        scores = {score.quantity: score for score in score_training(replace(row, mem_kind=kind))}
        assert scores["memory_gib"].predicted == pytest.approx(wanted)


def test_slices_of_gathered_parameters_cost_host_time() -> None:
    """Where the host is the bottleneck a step is longer by tensors x ranks x the cost of a slice: at tp 1 a layer of Llama has six
    tensors (two norms, qkv, projection, and two of the MLP), embedding and head one each, and the last norm."""
    settings = ("plan.sharding=zero1", "plan.tp=1", "plan.pp=1", "plan.recompute=full", "runtime.framework=nanotron")
    job = load_job("llama3-8b-8xh100", [*settings, "runtime.host.launch=5ms"])

    def seconds(each: float) -> float:
        host = job.runtime.host.model_copy(update={"slice": each})
        return predict(job.model_copy(update={"runtime": job.runtime.model_copy(update={"host": host})})).step_time_s

    tensors = 6 * job.model.layers + 3
    assert seconds(2e-3) - seconds(1e-3) == pytest.approx(1e-3 * tensors * job.dp / job.cluster.node.host_speed, rel=0.02)
