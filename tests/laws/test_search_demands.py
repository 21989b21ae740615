"""A step's calls are described once: what changes in that table moves predictions and the bounds of a search together."""

import pytest

from windtunnel.predict import predict
from windtunnel.predict.program import demands
from windtunnel.predict.program.demands import Moment, Quantity
from windtunnel.search.bound.bounds import bounds
from windtunnel.search.space import Space
from windtunnel.spec import load_job
from windtunnel.workload import Axis, Comm

MODEL = ("llama3-8b-8xh100", ["model.layers=4", "cluster.gpus=32", "plan.global_batch=64", "plan.seq=2048"])
MIXTURE = ("mixtral-8x7b-64xh100", ["model.layers=4", "cluster.gpus=32", "plan.global_batch=64", "plan.seq=2048", "plan.ep=4"])
REPLICATED = ["plan.tp=2", "plan.pp=2", "plan.sharding=zero1", "runtime.framework=megatron-core"]
SLOW = "cluster.node.nic.bandwidth=1GB/s"

JOBS = {
    "replicated": (MODEL, ["plan.tp=2", "plan.pp=2", "plan.sharding=none", "runtime.overlap_grad_reduce=false"]),
    "covered": (MODEL, [*REPLICATED, "runtime.overlap_grad_reduce=true", "runtime.overlap_param_gather=false"]),
    "covered, quick": (
        MODEL,
        [
            *REPLICATED,
            "runtime.overlap_grad_reduce=true",
            "runtime.overlap_param_gather=false",
            "cluster.node.nic.bandwidth=50GB/s",
        ],
    ),
    "zero2": (MODEL, ["plan.sharding=zero2", "runtime.reduce_every_micro_batch=true", "runtime.overlap_param_gather=false"]),
    "freed": (MODEL, ["plan.sharding=zero2", "runtime.reduce_every_micro_batch=true", "runtime.overlap_param_gather=true"]),
    "fsdp": (MODEL, ["plan.sharding=fsdp"]),
    "hsdp": (MODEL, ["plan.sharding=hsdp", "plan.shard_group=8"]),
    "quantised": (
        MODEL,
        ["runtime.framework=deepspeed", "plan.sharding=zero3"]
        + [f"plan.{name}=true" for name in ("quantised_gather", "quantised_reduce", "hierarchical_gather")],
    ),
    "second copy": (MODEL, ["runtime.framework=deepspeed", "plan.sharding=zero3", "plan.secondary_group=8"]),
    "mixture": (
        MIXTURE,
        ["plan.tp=2", "plan.sequence_parallel=true", "plan.pp=2", "plan.sharding=zero1", "runtime.overlap_grad_reduce=false"],
    ),
    "sharded mixture": (MIXTURE, ["plan.tp=1", "plan.pp=1", "plan.sharding=fsdp"]),
    "scattered transfers": (MODEL, [*REPLICATED, "plan.sequence_parallel=false", "runtime.p2p_scatter=true"]),
    "interleaved": (MODEL, [*REPLICATED, "plan.vpp=2", "runtime.overlap_p2p=true", "runtime.overlap_param_gather=true"]),
    "both ends": (MODEL, ["plan.pp=2", "plan.schedule=dualpipe", "plan.sharding=zero1"]),
    "tied": (MODEL, ["plan.pp=2", "model.tied_embeddings=true"]),
}

LEFT_OUT = (Quantity.PERSISTENT, Quantity.UPDATED, Quantity.VOCABULARY, Quantity.REPLICATED)
"""Of what the bound counts nothing."""


def loaded(name):
    (source, overrides), own = JOBS[name]
    return load_job(source, [*overrides, SLOW, *own])


def step_of(job):
    """Seconds of the step as predicted, and its bound."""
    return predict(job).step_time_s, float(bounds(Space(job, {}).columns()).seconds[0])


def rows_of(job):
    """The rows that a job has, but for those that are no call."""
    runtime, widths = job.runtime, demands.widths_of(job.runtime, 1.0, 0.0)
    each = (
        *demands.transfers(job, job.plan.sequence_parallel),
        *demands.parameter_gathers(job, widths, runtime.overlap_param_gather),
        *demands.gradient_reductions(job, widths, runtime.overlap_grad_reduce, runtime.overlap_param_gather),
        demands.norm_reduction(job),
        demands.replicated_reduction(job, widths),
        *demands.stage_reductions(job, widths, 0),
    )
    absent = set() if job.model.experts else {Quantity.EXPERTS}
    absent |= set() if job.plan.sequence_parallel else {Quantity.REPLICATED}
    absent |= set() if job.runtime.persistent_parameters else {Quantity.PERSISTENT}
    return [row for row in each if row.axis is not Axis.NONE and row.of not in absent]


CALLS = {
    f"{name}: {row.comm.name} {row.axis.name} {row.moment.name}": (name, row) for name in JOBS for row in rows_of(loaded(name))
}


def test_the_jobs_have_a_row_at_every_moment():
    assert {row.moment for _, row in CALLS.values()} == set(Moment)


@pytest.mark.parametrize("called", sorted(CALLS))
def test_a_call_counts_on_both_sides(called, monkeypatch):
    """Whatever it is: with so many bytes that it makes up the step, the bound is of that size too."""
    name, dear = CALLS[called]
    job = loaded(name)
    before, _ = step_of(job)
    times = {Quantity.CALL: 1e13, Quantity.PERSISTENT: 1e9, Quantity.REPLICATED: 1e9}.get(dear.of, 1e5)
    size = demands.Demand.size

    def sized(row, amount, share=1.0):
        same = (row.comm, row.axis, row.of, row.moment) == (dear.comm, dear.axis, dear.of, dear.moment)
        return size(row, amount, share) * (times if same else 1.0)

    monkeypatch.setattr(demands.Demand, "size", sized)
    step, bound = step_of(job)
    assert step > 5.0 * before
    assert bound <= step * (1.0 + 1e-9)
    if dear.of not in LEFT_OUT and dear.moment is not Moment.BEFORE_FIRST_FORWARD:
        assert bound > 0.05 * step  # transfers beside passes: those before a stage's first pass and after its last


def always(value):
    return lambda *_: value


def of_half(rule):
    return lambda *given: tuple(row._replace(width=0.5 * row.width) for row in rule(*given))


def of_twice(rule):
    return lambda *given: tuple(row._replace(width=2.0 * row.width) for row in rule(*given))


def all_reduced(rule):
    return lambda *given: tuple(row._replace(comm=Comm.ALL_REDUCE) for row in rule(*given))


RULES = {
    "gradients are reduced after the passes": ("covered, quick", "reduction_moment", always(Moment.AFTER_PASSES)),
    "gradients are reduced in every pass": ("replicated", "reduction_moment", always(Moment.AFTER_BACKWARD)),
    "gradients are all-reduced": ("zero2", "gradient_reductions", all_reduced(demands.gradient_reductions)),
    "gradients are reduced in half the bytes": ("zero2", "gradient_reductions", of_half(demands.gradient_reductions)),
    "parameters are gathered in twice the bytes": ("fsdp", "parameter_gathers", of_twice(demands.parameter_gathers)),
    "parameters are not gathered": ("second copy", "parameter_gathers", always(())),
    "gradients of experts are shared by all": ("mixture", "_shard_axis", always(Axis.SHARD)),
    "senders wait": ("interleaved", "sender_waits", always(True)),
    "senders go on": ("replicated", "sender_waits", always(False)),
    "transfers are half as large": ("scattered transfers", "transfers", of_half(demands.transfers)),
    "the norm is a gigabyte": (
        "replicated",
        "norm_reduction",
        lambda job, rule=demands.norm_reduction: rule(job)._replace(width=1e9),
    ),
}
"""A job, a rule of the table, and another one in its place."""


@pytest.mark.parametrize("changed", sorted(RULES))
def test_another_rule_moves_both_sides(changed, monkeypatch):
    name, rule, other = RULES[changed]
    job = loaded(name)
    step, bound = step_of(job)
    monkeypatch.setattr(demands, rule, other)
    new_step, new_bound = step_of(job)
    assert new_step != pytest.approx(step, rel=1e-6)
    assert new_bound != pytest.approx(bound, rel=1e-6)
    assert (new_bound > bound) == (new_step > step)
    assert new_bound <= new_step * (1.0 + 1e-9)


@pytest.mark.parametrize("name", ["covered", "fsdp"])
def test_a_call_that_no_program_posts_is_refused(name, monkeypatch):
    monkeypatch.setattr(demands, "reduction_moment", always(Moment.BEFORE_UPDATE))
    with pytest.raises(AssertionError, match="no program posts"):
        predict(loaded(name))
