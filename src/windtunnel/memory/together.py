"""Plans that fit where no single change is enough: several changes at once, the fastest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.memory.advice import RECOMPUTE, spare, with_plan
from windtunnel.memory.stage import memory_of
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job, check
from windtunnel.spec.plan import Plan
from windtunnel.workload import active_parameters, build, parameter_count

PRICED, SHOWN = 8, 3
"""Plans that fit whose step is predicted, the most promising by `_guess`; and how many of them are told."""

HEADROOM = 0.02
"""Share of the GPU's memory that a plan leaves free, if any plan does: what no model counts to the byte. Assumed."""

AGAIN = {"none": 1.0, "selective": 1.05, "ops": 1.15, "full": 1.33}
"""Time of a step with recompute over one without, to order plans before any is predicted: full runs the forward pass again."""


@dataclass(frozen=True)
class Together:
    """Changes that make the job fit when all are made, bytes left on the fullest GPU, seconds of a step with them."""

    changes: tuple[tuple[str, str | int], ...]
    spare: float
    seconds: float | None


def together(job: Job, step_time: Callable[[Job], float]) -> tuple[Together, ...]:
    """At most `SHOWN` plans for `job`'s model, batch and machine that fit, the shortest step first; none where there is none.

    Over tp inside a scale-up domain (with sequence parallelism), pp, ep, sharded optimizer state and recompute no weaker than the
    job's; micro batch, context parallelism and the runtime stay. All plans' memory is counted; the best by a rule of thumb are
    predicted.
    """
    fitting: list[tuple[float, Job, float]] = []
    least = _weights(job)
    for family in _plans(job):
        for changed in family:  # from the weakest recompute to the strongest; the first that fits is enough
            if least(changed.plan) > changed.cluster.gpu.memory:
                break
            try:
                memory = memory_of(changed, build(check(changed)))
            except WindtunnelError:
                continue
            if all(stage.fits for stage in memory):
                fitting.append((_guess(changed), changed, spare(memory)))
                break
    roomy = [entry for entry in fitting if entry[2] >= HEADROOM * job.cluster.gpu.memory]
    found = []
    for _, changed, left in sorted(roomy or fitting, key=lambda entry: entry[0])[:PRICED]:
        try:
            seconds = step_time(changed)
        except WindtunnelError:
            continue
        found.append(Together(_changes(job.plan, changed.plan), left, seconds))
    return tuple(sorted(found, key=lambda entry: (entry.seconds, len(entry.changes)))[:SHOWN])


def _weights(job: Job) -> Callable[[Plan], float]:
    """Bytes of weights, and of gradients that are not cut, on a GPU under a plan: what no recompute makes smaller."""
    model, runtime = job.model, job.runtime
    whole = parameter_count(model)
    experts = 0.0
    if model.experts is not None and model.experts > model.top_k:
        experts = (whole - active_parameters(model)) * model.experts / (model.experts - model.top_k)
    weight, gradient = DTYPE_BYTES[runtime.weight_dtype], DTYPE_BYTES[runtime.gradient_dtype]

    def least(plan: Plan) -> float:
        if plan.shards_parameters:
            return 0.0
        each = weight + (0.0 if plan.sharding == "zero2" else gradient)
        return each * ((whole - experts) / plan.tp + experts / (plan.ep * plan.etp)) / plan.pp

    return least


def _plans(job: Job) -> Iterator[Iterator[Job]]:
    """Plans of one division of the model over GPUs, from weak to strong recompute, for each division."""
    plan, model, gpus = job.plan, job.model, job.cluster.gpus
    widths = _powers(min(job.cluster.node.domain, model.heads))
    experts = _powers(model.experts) if model.experts else [1]
    sharding = "zero1" if plan.sharding == "none" and gpus > 1 else plan.sharding
    recompute = [str(plan.recompute)]
    while recompute[-1] in RECOMPUTE:
        recompute.append(RECOMPUTE[recompute[-1]])
    for tp in sorted({*widths, plan.tp}):
        for pp in sorted({*_powers(min(model.layers, gpus // tp)), plan.pp}):
            stages = plan.stages if pp == plan.pp else _even(model.layers, pp)
            if pp * tp * plan.cp > gpus or plan.global_batch * tp * pp * plan.cp < pp * plan.micro_batch * gpus:
                continue  # fewer micro batches than stages
            for ep in sorted({*experts, plan.ep}):
                fields: dict[str, Any] = {
                    "tp": tp,
                    "pp": pp,
                    "ep": ep,
                    "etp": min(plan.etp, tp),
                    "dp": None,
                    "sharding": sharding,
                    "stages": stages,
                    "sequence_parallel": tp > 1 and (plan.sequence_parallel or plan.tp == 1),
                }
                if pp != plan.pp:
                    fields |= {"vpp": 1, "schedule": "auto"}
                yield (_changed(job, {**fields, "recompute": again}) for again in recompute)


def _changed(job: Job, fields: dict[str, Any]) -> Job:
    if fields["recompute"] != "selective":
        fields["recompute_modules"] = ("core_attn",)
    return with_plan(job, **fields)


def _powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def _even(layers: int, pp: int) -> tuple[int, ...] | None:
    """Layers of each stage, the first ones with one more, where they do not divide evenly."""
    base, extra = divmod(layers, pp)
    return tuple(base + (stage < extra) for stage in range(pp)) if extra else None


def _guess(job: Job) -> float:
    """Relative time of a step: bubble, recompute, calls inside layers, experts beyond a scale-up domain. It orders plans for
    prediction and is not told to anybody."""
    plan, domain = job.plan, job.cluster.node.domain
    bubble = 1.0 + (plan.pp - 1) / job.micro_batches
    calls = 1.0 + 0.1 * (plan.tp.bit_length() - 1) + 0.05 * (plan.pp.bit_length() - 1)
    calls += 0.15 if plan.ep * plan.etp > domain else 0.0
    return bubble * calls * AGAIN[plan.recompute]


def _changes(old: Plan, new: Plan) -> tuple[tuple[str, str | int], ...]:
    """What to `--set`: fields that differ, a derived dp left out."""
    found: list[tuple[str, str | int]] = []
    for name in Plan.model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after or name == "dp" and before is None:
            continue
        if isinstance(after, tuple):
            words: str | int = f"[{','.join(map(str, after))}]"
        else:
            words = "none" if after is None else str(after).lower() if isinstance(after, bool) else after
        found.append((f"plan.{name}", words))
    return tuple(found)
