"""A job's checkpoints and runs with failures: sizes, times, answers, and what cannot be."""

from __future__ import annotations

import json
import math

import pytest

import windtunnel as wt
from windtunnel.api.json import dumps
from windtunnel.api.prediction_sheet import head_figures
from windtunnel.base.errors import SpecError
from windtunnel.draw.terminal import print_sheet
from windtunnel.goodput import run_of
from windtunnel.goodput.answer import _whole_steps, exposed_share, goodput, reasons, run_data
from windtunnel.goodput.run import BESIDE, STOP, checkpoint_cost, conditions_of, interval_of
from windtunnel.goodput.sheet import run_sheet
from windtunnel.memory import memory_of
from windtunnel.memory.state import state_bytes_of
from windtunnel.memory.tiers import legs
from windtunnel.predict import predict
from windtunnel.spec import load_job
from windtunnel.workload import build, parameter_count

LLAMA = "llama3.1-405b-16384"
SMALL = "llama2-70b-64xh100"


def job_with(*sets: str, name: str = SMALL) -> wt.Job:
    return wt.check(wt.load(name, ["reliability=rsc-1", *sets]))


@pytest.mark.parametrize(
    ("job", "model", "gib"),
    [
        ("llama3-8b-8xh100", "llama3.1-8b", 105.0),  # published: ~105 GB
        (SMALL, "nemotron4-340b", 4.4 * 1024.0),  # published: ~4.4 TB
        ("bloom-176b-384", "bloom-176b", 2.3 * 1024.0),  # published: 2.3 TB
    ],
)
def test_sizes_are_the_published_ones(job: str, model: str, gib: float) -> None:
    """Sizes that NVIDIA's recipes and BLOOM's notes print, in binary units, within 4 %."""
    loaded = wt.load("megatron-22b-8", [f"model={model}", "runtime.precision=bf16"])
    assert state_bytes_of(loaded).total / 2**30 == pytest.approx(gib, rel=0.04)


def test_a_checkpoint_is_what_the_memory_model_counts() -> None:
    """Weights of one data-parallel rank's stages, and all shards of the optimizer."""
    job = wt.load(SMALL)
    stages = memory_of(job, build(job))
    split, dp = job.plan.tp, job.dp * job.plan.cp
    weights = sum(stage.weights for stage in stages) * split
    optimizer = sum(stage.optimizer for stage in stages) * split * (dp if job.plan.sharding != "none" else 1)
    state = state_bytes_of(job)
    assert state.weights == pytest.approx(weights, rel=0.01) and state.optimizer == pytest.approx(optimizer, rel=0.01)


def test_times_of_a_checkpoint_by_hand() -> None:
    sets = [
        "reliability.checkpoint.mode=background", "reliability.checkpoint.size=1TB", "reliability.checkpoint.write=50GB/s",
        "reliability.checkpoint.read=20GB/s", "reliability.checkpoint.load_time=80s",
    ]  # fmt: skip
    job = wt.load(SMALL, ["reliability.spares=0", *sets])
    assert job.reliability is not None
    cost = checkpoint_cost(job, job.reliability.checkpoint, exposed=0.2)
    assert cost.flush == pytest.approx(20.0) and cost.load == 80.0
    share = 50e9 / (8 * 8 * 50e9)  # of eight nodes' NICs of 400 Gb/s
    assert cost.drag == pytest.approx(BESIDE + 0.2 * share / (1.0 - share))
    assert cost.save == pytest.approx(STOP + 1e12 / 64 / legs(job.cluster, "host", out=True)[0].rate)
    assert cost.save < 1.0
    assert checkpoint_cost(job, job.reliability.checkpoint).drag == BESIDE  # a step that waits for nothing shares nothing
    for every, steps in ((1000.0, 200), (1004.0, 201), (22.0, 4)):
        policy = job.reliability.checkpoint.model_copy(update={"steps": None, "every": every})
        assert interval_of(policy, cost, 5.0) == pytest.approx(5.0 * steps), every
    blocking = job.reliability.checkpoint.model_copy(update={"mode": "blocking"})
    stopped = checkpoint_cost(job, blocking, exposed=0.2)
    assert (stopped.save, stopped.flush, stopped.drag) == pytest.approx((20.0, 0.0, 0.0))
    apart = job.reliability.checkpoint.model_copy(update={"flush_over": "own"})
    assert checkpoint_cost(job, apart, exposed=0.2).drag == BESIDE


def test_every_rank_that_reads_reads_what_it_holds() -> None:
    job = job_with("reliability.checkpoint.load_time=none", "reliability.checkpoint.read=1GB/s")
    assert job.reliability is not None
    policy, state = job.reliability.checkpoint, state_bytes_of(job)
    one = checkpoint_cost(job, policy).load
    every = checkpoint_cost(job, policy.model_copy(update={"load": "all"})).load
    copies = job.dp * job.plan.cp
    assert every == pytest.approx((state.total + state.copied * (copies - 1)) / 1e9)
    assert one == pytest.approx(state.total / 1e9 + state.copied * copies / (8 * 8 * 50e9))


def test_run_of_is_the_closed_answer() -> None:
    job = job_with("tokens=1e12")
    prediction = predict(job)
    run, answer = run_of(job, prediction.step_time_s, exposed_share(prediction)), goodput(job, replicas=0, prediction=prediction)
    assert answer.simulated is None and run.days == pytest.approx(answer.expected_days, rel=1e-3)
    assert run.days is not None and run.ideal_days is not None and run.days == pytest.approx(run.ideal_days / run.goodput, rel=1e-3)
    assert ("ETTR with failures", f"{100 * run.ettr:.1f} %") in [(one.label, one.words()) for one in head_figures(prediction)]
    assert json.loads(dumps(prediction))["whole_run"]["ettr"] == run.ettr


def test_a_run_of_54_days_sees_419_failures() -> None:
    answer = goodput(wt.load(LLAMA, ["reliability=llama3-2024"]), days=54.0, replicas=200)
    assert answer.simulated is not None
    unexpected = sum(count for name, count in answer.simulated.failures.items() if name != "planned")
    assert unexpected == pytest.approx(419.0, rel=0.02)
    assert answer.simulated.ettr.mean == pytest.approx(answer.steady.ettr, abs=0.005)
    assert answer.simulated.days.p50 == pytest.approx(54.0) and answer.ettr > 0.9


def test_expected_days_and_their_spread() -> None:
    answer = wt.goodput(job_with("tokens=1e12"), replicas=300)
    assert answer.simulated is not None and answer.expected_days is not None and answer.work_days is not None
    days = answer.simulated.days
    assert answer.work_days < days.p10 <= days.p50 <= days.p90
    assert days.mean == pytest.approx(answer.expected_days, rel=0.01)
    assert answer.simulated.finished == 1.0
    assert wt.goodput(job_with("tokens=1e12"), replicas=300, threads=2).simulated == answer.simulated


def test_the_interval_is_in_whole_steps() -> None:
    answer = goodput(job_with("tokens=1e12", "reliability.checkpoint.steps=1000"), replicas=0)
    assert answer.interval_steps == 1000 and answer.interval_s == pytest.approx(1000 * answer.step_time_s)
    best = goodput(job_with("tokens=1e12"), replicas=0)
    assert best.interval_s == pytest.approx(best.interval_steps * best.step_time_s)
    assert best.interval_s == pytest.approx(best.interval.best, rel=0.02)
    assert best.steady.goodput >= answer.steady.goodput


def test_no_failures_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    answer = goodput(job_with("tokens=1e11", "reliability.crash.per_node_day=0"), replicas=10)
    assert math.isinf(answer.steady.mtbf) and "No failures" in reasons(answer)[0]
    print_sheet(run_sheet(answer))
    assert "only checkpoints cost time" in capsys.readouterr().out


def test_a_job_that_never_ends_says_so_and_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    answer = goodput(job_with("tokens=1e12", "reliability.crash.per_node_day=400"), replicas=10)
    assert not answer.ends and answer.simulated is None and answer.expected_days is None
    first, second = reasons(answer)
    assert "never ends" in first and "halved" in second and "reliability.crash" in second
    print_sheet(run_sheet(answer))
    assert "never ends" in capsys.readouterr().out
    assert run_of(job_with("tokens=1e12", "reliability.crash.per_node_day=400"), 1.0).days is None


def test_nothing_at_all_helps_a_hopeless_job() -> None:
    answer = goodput(job_with("tokens=1e12", "reliability.crash.per_node_day=1e6"), replicas=0)
    assert not answer.ends and "never ends" in reasons(answer)[0] and len(reasons(answer)) == 2


@pytest.mark.parametrize(
    ("sets", "days", "message"),
    [
        (["reliability.checkpoint.capacity=1GB"], 1.0, "room for keep = 2 checkpoints"),
        (["reliability.checkpoint.size=2TB", "reliability.checkpoint.capacity=3TB"], 1.0, "keep=1"),
        (["reliability.checkpoint.every=10s"], 1.0, "longer than the 300 s in which a checkpoint is written"),
        (["reliability.checkpoint.steps=2"], 1.0, "reliability.checkpoint.steps=[0-9]+ or more"),
        (["reliability.checkpoint.steps=2", "reliability.checkpoint.every=1h"], 1.0, "not both"),
        (["reliability.spares=9"], 1.0, "at most the 8 nodes"),
        (["reliability.crahs.detect=1s"], 1.0, "Did you mean 'crash'"),
        (["reliability.crash.detect.law=weibull"], 1.0, "lognormal"),
        (["reliability.crash.returns=1.5"], 1.0, "below 1"),
        (["reliability=rsc-7"], 1.0, "rsc-2"),
        (["reliability=none"], 1.0, "an entry of catalogue reliability"),
        ([], -3.0, "days of wall time above zero"),
        (["tokens=none"], None, "Write --set tokens=1e12, or --days 30"),
    ],
)
def test_what_cannot_be_is_one_readable_error(sets: list[str], days: float | None, message: str) -> None:
    with pytest.raises(wt.SpecError, match=message):
        goodput(job_with(*sets), days=days, replicas=10)


def test_a_file_keeps_every_field() -> None:
    job = wt.load(LLAMA, ["reliability=llama3-2024", "reliability.hang.detect=3min", "reliability.network=none"])
    assert job.reliability is not None and job.reliability.network is None
    assert job.reliability.hang is not None and job.reliability.hang.detect.mean == 180.0
    assert wt.load(wt_table(job)) == job


def test_a_law_over_a_plain_time_keeps_the_time() -> None:
    job = wt.load(
        LLAMA, ["reliability=llama3-2024", "reliability.crash.detect.law=lognormal", "reliability.crash.detect.spread=1.0"]
    )
    assert job.reliability is not None and job.reliability.crash is not None
    detect = job.reliability.crash.detect
    assert (detect.mean, detect.law, detect.spread) == (60.0, "lognormal", 1.0)


def wt_table(job: wt.Job) -> dict[str, object]:
    import tomllib

    return tomllib.loads(wt.dump(job))


def test_json_is_stable_and_complete() -> None:
    answer = goodput(job_with("tokens=1e11"), replicas=20)
    first, second = dumps(run_data(answer)), dumps(run_data(goodput(job_with("tokens=1e11"), replicas=20)))
    assert first == second
    table = json.loads(first)
    assert table["schema"] == "windtunnel.goodput/1" and table["simulated"]["replicas"] == 20
    assert {"ettr", "goodput", "levers", "spares", "interval_curve", "closed", "reasons"} <= table.keys()
    assert table["levers"] == sorted(table["levers"], key=lambda one: -one["gain"])


def test_larger_nodes_fail_as_often_for_each_gpu() -> None:
    """Rates are of nodes of 8 GPUs; 64 GPUs in nodes of 4 are 16 nodes that fail half as often each."""
    eight, four = (
        conditions_of(job_with(), 1.0),
        conditions_of(job_with("cluster.node.gpus=4", "cluster.node.scale_up.size=4"), 1.0),
    )
    assert (eight.nodes, four.nodes) == (8, 16)
    kind = dict(eight.kinds)["crash"]
    assert four.rate(kind) == pytest.approx(eight.rate(kind)) == pytest.approx(8 * 6.5e-3 / 86400.0)
    other = conditions_of(job_with("cluster.node.gpus=4", "cluster.node.scale_up.size=4", "reliability.gpus_of_node=none"), 1.0)
    assert other.rate(kind) == pytest.approx(2.0 * eight.rate(kind))


def test_spares_are_a_number_or_a_share_of_the_nodes() -> None:
    large, small = (conditions_of(wt.load(name, ["reliability=llama3-2024"]), 1.0).spares for name in (LLAMA, "llama3-8b-8xh100"))
    assert (large, small) == (32, 1)
    assert conditions_of(wt.load(LLAMA, ["reliability=llama3-2024", "reliability.spares=0"]), 1.0).spares == 0


def test_set_up_of_groups_is_part_of_a_start() -> None:
    job = job_with()
    assert conditions_of(job, 1.0).init.mean == pytest.approx(300.0 + predict(job).init_time_s)


def test_the_schema_takes_names_tables_and_plain_times() -> None:
    schema = wt.schema()
    by_name, table = schema["$defs"]["Reliability"]["anyOf"]
    assert "llama3-2024" in by_name["examples"] and "base" in table["properties"] and "required" not in table
    kinds = [one.get("type") for one in schema["$defs"]["Duration"]["anyOf"]]
    assert {"number", "string", "object"} <= set(kinds)


def test_a_checkpoint_larger_than_the_published_storage_is_refused():
    job = load_job("llama2-70b-64xh100", ["reliability=llama3-2024", "reliability.checkpoint.size=1e18"])
    with pytest.raises(SpecError, match=r"reliability.checkpoint.capacity: got 2.4e\+17; allowed: room for keep = 2"):
        goodput(job, 10.0, 0)


def test_adapters_have_no_state_that_counts() -> None:
    """Frozen weights of 2 bytes a parameter, no optimizer; every replica holds them whole unless they are sharded."""
    model = ["model.lora.rank=16"]
    plain = wt.load(SMALL, [*model, "plan.sharding=none", "runtime.precision=bf16"])
    size = plain.runtime.weight_dtype
    assert size in ("bf16", "fp32")
    weights = {"bf16": 2.0, "fp32": 4.0}[size] * parameter_count(plain.model)
    found = state_bytes_of(plain)
    assert (found.total, found.copied) == (pytest.approx(weights), pytest.approx(weights))
    sharded = state_bytes_of(wt.load(SMALL, [*model, "plan.sharding=fsdp", "runtime.precision=bf16"]))
    assert sharded.copied == 0.0


@pytest.mark.parametrize(("interval", "field"), [("steps=1", "steps"), ("every=1", "every")])
def test_an_interval_that_is_too_short_names_the_field_that_was_written(interval: str, field: str) -> None:
    with pytest.raises(SpecError, match=rf"reliability\.checkpoint\.{field}:"):
        conditions_of(job_with(f"reliability.checkpoint.{interval}", "reliability.checkpoint.write=1GB/s"), 1.0, 0.0)


def test_an_interval_is_not_below_the_shortest_one() -> None:
    """Steps of 10 s, a checkpoint that takes 25: three steps, though the best interval is one."""
    assert _whole_steps(12.0, 25.0, 10.0) == 30.0
    assert _whole_steps(47.0, 25.0, 10.0) == 50.0
    assert _whole_steps(12.0, 30.0, 10.0) == 30.0


@pytest.mark.parametrize("name", ["llama3.1-405b-16384", "megascale-175b-12288", "llama2-70b-64xh100", "bloom-176b-384"])
def test_a_checkpoint_is_never_free_and_never_overtakes_itself(name: str) -> None:
    """Stop, slow-down and write of a background checkpoint by default: the best interval is longer than what writes it."""
    sets = ["reliability=llama3-2024"] if load_job(name).reliability is None else []
    job = load_job(name, sets)
    assert job.reliability is not None
    policy = job.reliability.checkpoint.model_copy(update={"mode": "background", "block": None, "slowdown": None})
    cost = checkpoint_cost(job, policy)
    assert cost.save >= STOP and cost.drag >= BESIDE and cost.price > STOP
    found = goodput(job)
    assert found.interval_s >= max(cost.flush, 1.0)
