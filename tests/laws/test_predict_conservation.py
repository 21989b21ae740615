"""Nothing gets lost in a step: seconds, transfers and calls add up, whatever the job."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from drawn import examples
from hypothesis import example, given
from jobs import make_job
from random_jobs import changed, jobs

from windtunnel.engine import Program, run
from windtunnel.predict import predict
from windtunnel.predict.answer.metrics import executions
from windtunnel.predict.category import COMPUTE
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.lower import lower
from windtunnel.spec import Job, load_job
from windtunnel.spec.offload import Offload
from windtunnel.workload import Comm, Kind, Phase, Stream, build

TIGHT = 1e-9
PARTS = [c.name.lower() for c in COMPUTE]


@examples(25)
@given(jobs())
def test_seconds_add_up(job: Job) -> None:
    p = predict(job)
    step = p.step_time_s
    assert sum(float(str(hop["seconds"])) for hop in p.critical_path) == pytest.approx(step, rel=TIGHT)
    for parts in p.by_stage:
        assert sum(parts.values()) == pytest.approx(step, rel=TIGHT)
        assert sum(parts.get(name, 0.0) for name in PARTS) <= step * (1 + TIGHT)
    assert p.breakdown in p.by_stage
    assert sum(p.provenance.values()) == pytest.approx(1.0, rel=1e-6)
    assert sum(row.seconds_total for row in p.kernels) <= step * (1 + TIGHT)


@examples(15)
@given(jobs())
def test_streams_are_never_busier_than_the_step_is_long(job: Job) -> None:
    workload = build(job)
    costs = price(workload)
    timeline = run(lower(workload, costs).program)
    assert (timeline.busy >= 0.0).all() and (timeline.idle >= 0.0).all() and (timeline.stretch >= 0.0).all()
    assert (timeline.busy.sum(axis=2) <= timeline.makespan * (1 + TIGHT)).all()
    for stage in range(job.plan.pp):  # computing takes what its kernels take, and what the tax adds
        kernels = (executions(workload, stage) * costs.seconds)[workload.ops.kind != Kind.COMM].sum()
        busy = timeline.busy[stage, int(Stream.COMPUTE)].sum() - timeline.stretch[stage].sum()
        assert busy == pytest.approx(kernels, rel=TIGHT)


def meetings(program: Program) -> tuple[Counter[int], dict[int, set[tuple[float, int]]]]:
    """How often each key is posted, and what its posts state."""
    said: dict[int, set[tuple[float, int]]] = {}
    for key, seconds, ranks in zip(
        program.part_key.tolist(), program.part_seconds.tolist(), program.part_participants.tolist(), strict=True
    ):
        said.setdefault(key, set()).add((seconds, ranks))
    return Counter(program.part_key.tolist()), said


@examples(15)
@given(jobs())
@example(make_job(pp=4, layers=4, global_batch=8, schedule="dualpipe"))  # both ends of the model on a stage, two copies of each
def test_each_send_has_one_receive(job: Job) -> None:
    workload = build(job)
    lowered = lower(workload, price(workload))
    posts, said = meetings(lowered.program)
    for key, times in posts.items():
        assert len(said[key]) == 1, "both ends of a transfer state the same seconds"
        assert times == next(iter(said[key]))[1], f"key {key}"
    # transfers, the norm over all stages, the tied embedding's gradient, and the gradients of two copies
    if job.copies > 1:  # half of the micro batches go down the stages, half go up
        crossed, twins = job.plan.pp - 1, job.plan.pp // 2
    else:
        stage_of = {part: stage for stage, held in enumerate(job.places) for part in held}
        crossed = sum(
            stage_of[part] != stage_of[part + 1] for part in range(job.plan.pp * job.plan.vpp - 1)
        )  # a V turns in a stage
        twins = 0
    transfers = 2 * crossed * job.micro_batches
    assert len(posts) == transfers + twins + (job.plan.pp > 1) * (1 + (job.model.tied_embeddings and not job.ends_meet))


@examples(10)
@given(jobs())
def test_timelines_show_both_ends_of_each_transfer(job: Job) -> None:
    kinds = Counter(s.category for s in predict(job).timeline)
    inside = job.plan.schedule_name in ("zbv", "dualpipev")  # the turn of the V lies on one stage
    boundaries = job.plan.pp * job.plan.vpp - 1 - inside if job.plan.pp > 1 else 0
    assert kinds["send"] == kinds["receive"] == 2 * boundaries * job.micro_batches


@examples(15)
@given(jobs())
def test_every_pass_runs_once_and_sends_follow_it(job: Job) -> None:
    p = predict(job)
    way = {"forward": "forward", "backward": "backward", "backward input": "backward", "backward weight": "weights"}
    passes = [(s.stage, way[s.category], s.micro_batch, s.chunk, s.start, s.end) for s in p.timeline if s.category in way]
    ends: dict[tuple[int, str, int, int], float] = {}
    begins: dict[tuple[int, str, int, int], float] = {}
    for *name, start, end in passes:
        key = (name[0], name[1], name[2], name[3])
        ends[key] = max(ends.get(key, 0.0), end)
        begins[key] = min(begins.get(key, start), start)
    share = job.micro_batches // job.copies
    wanted = {
        (stage, way, m, chunk)
        for stage, held in enumerate(job.places)
        for chunk in range(len(held))
        for way in ("forward", "backward")
        for m in (range(share) if job.copies == 1 else range(chunk * share, (chunk + 1) * share))
    }
    assert {key for key in ends if key[1] != "weights"} == wanted
    for stage, name, m, chunk in ends:
        assert begins[stage, "backward", m, chunk] >= ends[stage, "forward", m, chunk] * (1 - TIGHT)
        if name == "weights":
            assert begins[stage, "weights", m, chunk] >= ends[stage, "backward", m, chunk] * (1 - TIGHT)
            continue
        part = job.places[stage][chunk]
        before = next(
            ((s, c) for s, held in enumerate(job.places) for c in range(len(held))
             if held[c] == part - 1 and (job.copies == 1 or c == chunk)), None
        )  # fmt: skip
        if before is not None:
            assert begins[stage, "forward", m, chunk] >= ends[before[0], "forward", m, before[1]] * (1 - TIGHT)
            assert begins[before[0], "backward", m, before[1]] >= ends[stage, "backward", m, chunk] * (1 - TIGHT)


def test_a_size_of_a_call_is_one_row() -> None:
    """Llama 2 70B gathers the chunked inputs of products forward and backward: sizes that are equal but for rounding."""
    rows = predict(load_job("llama2-70b-64xh100")).collectives
    sizes = [(row["axis"], row["op"], round(float(str(row["bytes"])))) for row in rows]
    assert len(sizes) == len(set(sizes))
    assert [row["name"] for row in rows].count("qkv gather") == 1


@examples(10)
@given(jobs(tp=1, pp=1, dp=1))
def test_one_gpu_communicates_nothing(job: Job) -> None:
    if job.cluster.gpus > 1:  # context parallelism
        return
    p = predict(job)
    assert not [row for row in p.collectives if row["count"] and row["time_us"]]
    local = {"offload", "cpu_update", "data"}  # copies to and from its own host
    assert not p.overlapped.keys() - local
    assert not {name for name in p.breakdown if name.startswith("exposed_")} - {f"exposed_{name}" for name in local}
    assert p.breakdown["bubble"] == 0.0 and p.breakdown.get("overlap_slowdown", 0.0) == 0.0


@examples(10)
@given(jobs())
def test_tensor_parallel_calls_grow_with_layers_and_micro_batches(job: Job) -> None:
    workload = build(job)
    comm = (workload.ops.kind == Kind.COMM) & (workload.ops.phase != Phase.OPTIMIZER)  # an update is once a step
    counts = sum(executions(workload, stage) for stage in range(job.plan.pp))
    twice = build(changed(job, global_batch=2 * job.plan.global_batch))
    again = sum(executions(twice, stage) for stage in range(job.plan.pp))
    assert np.array_equal(np.asarray(again)[comm], 2 * np.asarray(counts)[comm])
    if job.plan.tp * job.plan.cp == 1:
        assert not np.asarray(counts)[comm].any()


@examples(10)
@given(jobs())
def test_sharding_moves_as_many_bytes_as_replicas_need(job: Job) -> None:
    """An all-reduce is a reduce-scatter and an all-gather of the same buffer: ZeRO-1 moves no more and no less than none.

    Counted as bytes of the buffers that one stage passes in for gradients, with sharding over all ranks.
    """
    whole = changed(job, shard_group=None, reduce_every_micro_batch=False, reduce_with="reduce_scatter", offload=Offload())
    if whole.shard_ranks == 1:  # offloaded gradients leave with every micro batch, so those that are sharded are reduced as often
        return
    for stage in range(whole.plan.pp):
        moved = {}
        for sharding in ("none", "zero1", "zero2"):
            one = changed(whole, sharding=sharding)
            workload = build(one)
            lowered = lower(workload, price(workload))
            moved[sharding] = sum(
                size * times * (2 if call is Comm.ALL_REDUCE else 1)
                for (call, axis, size), times in lowered.calls[stage].items()
                if axis.name in ("DP", "SHARD", "REPLICA") and call in (Comm.ALL_REDUCE, Comm.REDUCE_SCATTER)
            )
        assert moved["none"] == pytest.approx(2 * moved["zero1"], rel=TIGHT)
        assert moved["zero2"] == pytest.approx(moved["zero1"], rel=TIGHT)
