"""Better hardware is never slower, more work never quicker, and memory answers to the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from random_jobs import RECOMPUTES, changed, jobs, scaled

from windtunnel.compute.choose import choose
from windtunnel.engine import run
from windtunnel.memory import StageMemory, activation_walk, memory_of
from windtunnel.network.closed.collective import Setup, prepare
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.constants import PROTOCOLS
from windtunnel.predict import predict
from windtunnel.predict.category import COMPUTE
from windtunnel.predict.price.costs import Costs, price
from windtunnel.predict.program.lower import Lowered, lower
from windtunnel.spec import Job, check, load_job
from windtunnel.spec.offload import NO_OFFLOAD
from windtunnel.workload import Kind, build
from windtunnel.workload.ops import Comm

ROUNDING = 1e-9
PARTS = [c.name.lower() for c in COMPUTE]


HARDWARE = st.sampled_from(["memory", "flops", "nic", "scale_up"])
FACTORS = st.sampled_from([1.01, 1.5, 2.0, 10.0])


def machine_with_known_units(job: Job) -> Job:
    """Where the number of SMs is not stated it follows from the FLOP rate, and more FLOP/s are another chip with other waves.

    A GPU that carries its curves but for tables that were measured on it (GB200) loses these with a changed sheet: `choose` takes
    it for another GPU. So it is another one from the start here, and the law is of what both are judged by.
    """
    node = job.cluster.node
    gpu = node.gpu if node.gpu.sms is not None else node.gpu.model_copy(update={"sms": 100})
    gpu = gpu.model_copy(update={"id": "another"}) if choose(gpu).own else gpu
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node.model_copy(update={"gpu": gpu})})})


def step(job: Job, tax: float | None = None) -> tuple[float, Costs, Lowered, float]:
    """Step time with the job's own or the given share of SMs that collectives hold; costs; program; that share."""
    workload = build(job)
    costs = price(workload)
    lowered = lower(workload, costs)
    tax = lowered.program.compute_tax if tax is None else tax
    return run(replace(lowered.program, compute_tax=tax)).makespan, costs, lowered, tax


@examples(40)
@given(jobs(), HARDWARE, FACTORS)
def test_faster_hardware_is_never_slower(job: Job, what: str, factor: float) -> None:
    """Kernels, calls and the step, without slack. NCCL's tuner makes mistakes on faster NICs (`test_a_mistake_of_the_tuner`): for
    factors other than those of NICs that are sold a call may be slower, and is then outside this law. `test_more_resources.py`
    has the law for doubled resources, with every choice in it.
    """
    job = machine_with_known_units(job)
    before, slow, lowered, tax = step(job)
    better = scaled(job, what, factor)
    after, fast, *_ = step(better, tax)
    computing = build(job).ops.kind != Kind.COMM
    assert (fast.seconds <= slow.seconds * (1 + ROUNDING))[computing].all()
    no_call_slower = True
    for call, axis, size in {*slow.call_of.values(), *(key for calls in lowered.calls for key in calls)}:
        old, new = slow.calls.price(call, axis, size), fast.calls.price(call, axis, size)
        no_call_slower &= new.seconds <= old.seconds
        if old.protocol not in PROTOCOLS:  # a group of one rank, or another library than NCCL and RCCL
            assert new.seconds <= old.seconds
            continue
        setups = [prepare(one.cluster, call, slow.calls.group(axis)) for one in (job, better)]
        if channels(setups[0]) != channels(setups[1]):
            continue
        was, now = (setup.cost(size, old.algorithm, old.protocol).seconds for setup in setups)
        assert now <= was * (1 + ROUNDING), (call, axis, size)
        if setups[0].open or (old.algorithm, old.protocol) == (new.algorithm, new.protocol):
            # The price is less than `was` where the tuner chooses better for a larger call, and more where better NICs would take
            # longer with NCCL's choice for them.
            assert new.seconds <= max(was, old.seconds) * (1 + ROUNDING), (call, axis, size)
    if no_call_slower:
        assert after <= before * (1 + ROUNDING)


def channels(setup: Setup) -> tuple[object, ...]:
    """What NCCL's search finds on the links, besides algorithm and protocol."""
    return setup.graph.running, setup.graph.nvls, setup.graph.nvls_running


def test_a_mistake_of_the_tuner() -> None:
    """The exception to the law above: with NICs of ten times the rate NCCL takes Simple for some all-gathers over three ranks
    of two servers. LL128, its choice before, would have been faster than before; Simple is slower."""
    cluster = load_job("llama2-70b-64xh100").cluster
    faster = scaled(load_job("llama2-70b-64xh100"), "nic", 10.0).cluster
    group = Group(ranks=3, per_node=2, nodes=2, sharing=2, gpus_per_node=8)
    for size in np.geomspace(2**14, 2**26, 200).tolist():
        old, new = (prepare(one, Comm.ALL_GATHER, group) for one in (cluster, faster))
        if (
            old.choose(size) != new.choose(size)
            and new.cost(size, *new.choose(size)).seconds > old.cost(size, *old.choose(size)).seconds
        ):
            assert new.cost(size, *old.choose(size)).seconds <= old.cost(size, *old.choose(size)).seconds
            return
    pytest.fail("the tuner makes no mistake here: the law above needs no exception")


@pytest.mark.parametrize("name", ["llama3-8b-8xh100", "gpt3-175b-64", "megascale-175b-12288", "bloom-176b-384"])
@pytest.mark.parametrize("what", ["memory", "flops", "nic", "scale_up"])
def test_faster_hardware_makes_catalogue_jobs_faster(name: str, what: str) -> None:
    job = load_job(name)
    better = scaled(job, what, 1.25)
    assert step(better)[3] == step(job)[3]  # as many SMs are left to computation
    assert predict(better).step_time_s <= predict(job).step_time_s * (1 + ROUNDING)


@examples(15)
@given(jobs(), st.integers(2, 5))
def test_more_micro_batches_never_take_less(job: Job, times: int) -> None:
    more = changed(job, global_batch=times * job.plan.global_batch)
    assert predict(more).step_time_s >= predict(job).step_time_s * (1 - ROUNDING)


def compute(job: Job) -> float:
    """Seconds that the kernels of all stages take together, without what overlap adds."""
    return sum(parts.get(name, 0.0) for parts in predict(job).by_stage for name in (*PARTS, "slowest_gpu"))


@examples(10)
@given(jobs(pp=1))
def test_each_layer_costs_the_same(job: Job) -> None:
    """All but the update, where a small state stays in the cache and a kernel covers 20 Mi elements."""
    plain = changed(job, stages=None, recompute_layers=None)
    answers = [predict(check(changed(plain, layers=n * job.model.layers))) for n in (1, 2, 3)]
    one, two, three = (sum(row.seconds_total for row in p.kernels if row.phase != "optimizer") for p in answers)
    assert three - two == pytest.approx(two - one, rel=1e-9)
    assert one < two <= 2 * one * (1 + ROUNDING)
    updates = [sum(row.seconds_total for row in p.kernels if row.phase == "optimizer") for p in answers]
    assert updates == sorted(updates)


def held(job: Job, **fields: object) -> tuple[StageMemory, ...]:
    one = check(changed(job, **fields))
    return memory_of(one, build(one))


@examples(15)
@given(jobs())
def test_stronger_sharding_never_holds_more_state(job: Job) -> None:
    """Weights, gradients and optimizer; what FSDP gathers for a moment is `buffers`. PyTorch's pipeline runtime is outside the law
    between zero2 and zero3: it keeps gradients whole until the last micro batch (`Job.whole_in_step`).
    """
    base = changed(job, shard_group=None, offload=NO_OFFLOAD)
    found = {kind: held(base, sharding=kind) for kind in ("none", "zero1", "zero2", "zero3")}
    whole = job.runtime.whole_in_pipeline and job.plan.pp > 1
    for weaker, stronger in (("none", "zero1"), ("zero1", "zero2"), ("zero2", "zero3")):
        for a, b in zip(found[weaker], found[stronger], strict=True):
            assert b.optimizer <= a.optimizer * (1 + ROUNDING) and b.weights <= a.weights * (1 + ROUNDING)
            assert b.gradients <= a.gradients * (1 + ROUNDING) or whole and stronger == "zero3"


@examples(15)
@given(jobs())
def test_stronger_recompute_never_holds_more_activations_and_never_computes_less(job: Job) -> None:
    kept = {}
    for kind in RECOMPUTES:
        workload = build(changed(job, recompute=kind, recompute_layers=None))
        kept[kind] = [float(activation_walk(workload, stage).max()) for stage in range(job.plan.pp)]
    work = {kind: compute(changed(job, recompute=kind, recompute_layers=None)) for kind in RECOMPUTES}
    # torchtitan's list keeps outputs of products; where those are wider than their inputs (tiny heads) that is no saving
    usual = job.model.q_heads_dim >= job.model.hidden <= job.model.ffn
    for weaker, stronger in (("none", "selective"), ("selective", "full"), ("ops", "full"), ("none", "ops")):
        if stronger != "ops" or usual:
            assert all(b <= a * (1 + ROUNDING) for a, b in zip(kept[weaker], kept[stronger], strict=True)), (weaker, stronger)
        assert work[stronger] >= work[weaker] * (1 - ROUNDING)


@examples(10)
@given(jobs())
def test_the_first_stage_keeps_most_activations_in_1f1b(job: Job) -> None:
    """Of equal stages: stage s keeps pp - s micro batches. Embedding and logits are counted by themselves."""
    if job.plan.pp == 1:
        return
    plain = check(
        changed(
            job,
            schedule="1f1b",
            vpp=1,
            stages=None,
            recompute_layers=None,
            layers=2 * job.plan.pp,
            embedding_norm=False,
            dropout=False,
            global_batch=job.plan.micro_batch * job.dp * 8,
        )
    )
    workload = build(plain)
    peaks = [float(activation_walk(workload, stage).max()) for stage in range(plain.plan.pp)][:-1]  # the last one keeps logits too
    assert peaks == sorted(peaks, reverse=True) and peaks[0] > 0.0
