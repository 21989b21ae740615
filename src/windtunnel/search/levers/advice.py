"""What to change first: changes that could shorten the largest losses of a step, each priced by a prediction of its own.

A part of the breakdown states the cost of a loss, not the gain of a setting. So each candidate is predicted, and its gain
is the difference of two predictions, per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.search.change import Change, predict_or_none
from windtunnel.search.layouts import lighter_ends
from windtunnel.spec import Job

WORTH = 0.02
"""Parts below this share of the step are ignored."""

GAIN = 0.003
"""Gains below this share of the step are not shown: predictions cannot distinguish less."""

TRAINING = ("plan.global_batch",)
"""Fields that change what is trained; their candidates stand last in each list below."""

LARGEST_PROGRAM = 400_000
"""Limit of passes of all stages up to which jobs are predicted again for advice; more would take seconds."""


@dataclass(frozen=True)
class Advice:
    """A loss, its cost, and the best change for it.

    `part` is the breakdown's key, or `slow_ranks` for ranks that the job says are slow; `cost_s` seconds of the step that it takes;
    `change` is None if no tried change gains. With the change: `step_time_s`, the share `gain` by which a token gets
    cheaper, and whether the job `fits`. `trains_otherwise`: the change affects training, such as the batch.
    """

    part: str
    cost_s: float
    change: Change | None = None
    step_time_s: float | None = None
    gain: float = 0.0
    fits: bool = True
    trains_otherwise: bool = False


def advise(prediction: Prediction, limit: int = 5) -> tuple[Advice, ...]:
    """The largest gains first, then losses without a helpful change; at most `limit`.

    All candidates are predicted in closed form, against the same job in closed form; a step of more than LARGEST_PROGRAM passes is
    not predicted again. A change of the batch is advised only if nothing else gains.
    """
    job = prediction.job
    if job.plan.pp * job.plan.vpp * job.micro_batches > LARGEST_PROGRAM:
        return ()
    base = predict(job) if prediction.network != "closed" else prediction
    losses = {part: seconds for part, seconds in base.breakdown.items() if seconds >= WORTH * base.step_time_s}
    prices: dict[Change, tuple[float, float, bool] | None] = {}
    advice_list = list(_culprits(base))
    for part, candidates in CANDIDATES.items():
        if part not in losses:
            continue
        best = Advice(part, losses[part])
        for candidate in candidates(job):
            change = candidate.without_no_ops(job)
            other = any(path in TRAINING for path, _ in change.fields)
            if not change.fields or other and best.change is not None:
                continue
            if change not in prices:
                prices[change] = _price_change(base, change)
            price = prices[change]
            if price is not None and price[1] > max(GAIN, best.gain) and (price[2] or not base.fits):
                best = replace(best, change=change, step_time_s=price[0], gain=price[1], fits=price[2], trains_otherwise=other)
        advice_list.append(best)
    by_change: dict[Change | str, Advice] = {}
    for advice in sorted(advice_list, key=lambda one: (one.trains_otherwise, -one.gain, -one.cost_s)):
        by_change.setdefault(advice.change or advice.part, advice)
    return tuple(by_change.values())[:limit]


def _price_change(base: Prediction, change: Change) -> tuple[float, float, bool] | None:
    """Step time with the change, the share by which a token gets cheaper, whether it fits; None if the job is invalid."""
    other = predict_or_none(base.job, change)
    if other is None:
        return None
    return other.step_time_s, 1.0 - base.tokens_per_s / other.tokens_per_s, other.fits


def _culprits(base: Prediction) -> Iterator[Advice]:
    """Cost of the ranks that the job states as slow, by a prediction without them."""
    if base.job.unequal is None:
        return
    priced = _price_change(base, Change.of(unequal=None))
    if priced is not None and priced[1] >= WORTH:
        yield Advice("slow_ranks", base.step_time_s - priced[0], Change.of(unequal=None), priced[0], priced[1], priced[2])


def _bubble(job: Job) -> Iterator[Change]:
    plan = job.plan
    for vpp in (2, 4):
        if plan.schedule_name in ("1f1b", "interleaved") and plan.pp > 1:
            yield Change.of(plan__vpp=plan.vpp * vpp, plan__schedule="auto", plan__stages=None)
    for schedule in ("zb-h1", "interleaved-zb"):
        if plan.schedule_name in ("1f1b", "interleaved"):
            yield Change.of(plan__schedule=schedule)
    if plan.pp > 1:
        yield Change.of(plan__pp=plan.pp // 2, plan__dp=None, plan__stages=None)
    if plan.micro_batch > 1:
        yield Change.of(plan__micro_batch=plan.micro_batch // 2)
    yield Change.of(plan__global_batch=2 * plan.global_batch)


def _tp(job: Job) -> Iterator[Change]:
    plan = job.plan
    if not job.runtime.overlap_tp and plan.sequence_parallel:
        yield Change.of(runtime__overlap_tp=True)
    if plan.tp > 1:
        yield Change.of(plan__tp=plan.tp // 2, plan__dp=None)
        yield Change.of(plan__tp=plan.tp // 2, plan__pp=plan.pp * 2, plan__dp=None, plan__stages=None)


def _reduce(job: Job) -> Iterator[Change]:
    if not job.runtime.overlap_grad_reduce:
        yield Change.of(runtime__overlap_grad_reduce=True)
        if not job.runtime.overlap_param_gather:
            yield Change.of(runtime__overlap_grad_reduce=True, runtime__overlap_param_gather=True)
    yield Change.of(plan__global_batch=2 * job.plan.global_batch)


def _gather(job: Job) -> Iterator[Change]:
    if not job.runtime.overlap_param_gather:
        yield Change.of(runtime__overlap_param_gather=True)
    domain = job.cluster.node.domain
    if job.plan.sharding in ("fsdp", "zero3") and 1 < domain < job.dp:
        yield Change.of(plan__sharding="hsdp", plan__shard_group=domain)
    if job.plan.sharding in ("fsdp", "zero3", "hsdp") and job.runtime.reshard_after_forward:
        yield Change.of(runtime__reshard_after_forward=False)


def _pipeline(job: Job) -> Iterator[Change]:
    if not job.runtime.overlap_p2p:
        yield Change.of(runtime__overlap_p2p=True)
    if job.plan.vpp > 1:
        yield Change.of(plan__vpp=job.plan.vpp // 2, plan__stages=None)
    if job.plan.pp > 1:
        yield Change.of(plan__pp=job.plan.pp // 2, plan__dp=None, plan__stages=None)


def _context(job: Job) -> Iterator[Change]:
    if job.plan.cp > 1:
        yield Change.of(plan__cp=job.plan.cp // 2, plan__dp=None)
        for kind in ("p2p", "all_gather", "a2a"):
            if kind != job.cp_kind:
                yield Change.of(plan__cp_kind=kind, plan__cp_sizes=None)


def _experts(job: Job) -> Iterator[Change]:
    if not job.runtime.moe_a2a_overlap:
        yield Change.of(runtime__moe_a2a_overlap=True)
    for dispatch in ("deepep", "hybridep"):
        if job.runtime.moe_dispatch != dispatch:
            yield Change.of(runtime__moe_dispatch=dispatch)
    if job.plan.ep > 1:
        yield Change.of(plan__ep=job.plan.ep // 2)


def _host(job: Job) -> Iterator[Change]:
    for launch in {"eager": ("compile", "cuda_graph"), "compile": ("cuda_graph",)}.get(job.runtime.launch, ()):
        yield Change.of(runtime__launch=launch)
    yield Change.of(plan__micro_batch=2 * job.plan.micro_batch)


def _recompute(job: Job) -> Iterator[Change]:
    for weaker in {"full": ("none", "selective"), "selective": ("none",), "ops": ("none",)}.get(job.plan.recompute, ()):
        yield Change.of(plan__recompute=weaker, plan__recompute_layers=None)
    largest = max(max(stage) for stage in job.layers_per_stage)
    again = largest if job.plan.recompute_layers is None else job.plan.recompute_layers
    if job.plan.recompute == "full":
        for quarter in (1, 2, 3):
            if (layers := largest * quarter // 4) < again:
                yield Change.of(plan__recompute_layers=layers)


def _optimizer(job: Job) -> Iterator[Change]:
    if job.plan.sharding == "none" and job.dp * job.plan.cp > 1:
        yield Change.of(plan__sharding="zero1")
    if not job.runtime.fused_optimizer:
        yield Change.of(runtime__fused_optimizer=True)


def _stages(job: Job) -> Iterator[Change]:
    return (Change.of(plan__stages=stages) for stages in lighter_ends(job))


def _slowest(job: Job) -> Iterator[Change]:
    yield Change.of(cluster__slow_nodes=0.0)


def _data(job: Job) -> Iterator[Change]:
    if job.runtime.data.overlap != "step":
        yield Change.of(runtime__data__overlap="step")
    if job.runtime.data.reader != "node":
        yield Change.of(runtime__data__reader="node")


def _offload(job: Job) -> Iterator[Change]:
    if job.plan.offload.optimizer != "none":
        yield Change.of(plan__offload__optimizer="none", plan__offload__optimizer_fraction=1.0)
    if job.plan.offload.activations:
        yield Change.of(plan__offload__activations=job.plan.offload.activations // 2)


CANDIDATES: dict[str, Callable[[Job], Iterator[Change]]] = {
    "bubble": _bubble,
    "exposed_tensor_parallel": _tp,
    "exposed_gradient_reduce": _reduce,
    "exposed_parameter_gather": _gather,
    "exposed_pipeline_transfer": _pipeline,
    "exposed_context_parallel": _context,
    "exposed_expert_parallel": _experts,
    "host": _host,
    "recompute": _recompute,
    "optimizer": _optimizer,
    "other_stages": _stages,
    "slowest_gpu": _slowest,
    "exposed_data": _data,
    "exposed_offload": _offload,
    "exposed_cpu_update": _offload,
}
"""Key of the breakdown -> changes that could shorten it."""
