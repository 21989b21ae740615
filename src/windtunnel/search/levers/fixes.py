"""Changes that make a job fit: single fields and combinations, each priced by a prediction.

`fixes` tries single changes first, then layouts (tp, cp, pp, ep with the weakest recompute that fits). The fix with the
cheapest token comes first, not the one that frees most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import predict
from windtunnel.search.change import Change, apply_or_none, memory_after, predict_or_none, spare_bytes
from windtunnel.search.levers.pricing import can_do
from windtunnel.search.space import even_stages, expert_parameters, lighter_ends, powers_of_two
from windtunnel.spec import Job, Model
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.plan import Plan
from windtunnel.workload import parameter_count

SHOWN = 5
"""Maximum of fixes shown."""

LAYOUTS, PRICED = 160, 10
"""Limit of layouts whose memory is computed, and of fitting layouts whose step is predicted; both most promising first."""

HEADROOM = 0.02
"""Share of the GPU's memory that a layout should leave free, because no model is exact to the byte. Assumed."""

SHARDING = {"none": "zero1", "zero1": "zero2", "zero2": "zero3"}
RECOMPUTE = {"none": "selective", "selective": "full", "ops": "full"}
AGAIN = {"none": 1.0, "selective": 1.02, "ops": 1.15, "full": 1.33}
"""Time of a step with recompute over one without, to order layouts before any is predicted: full runs the forward pass again."""


@dataclass(frozen=True)
class Fix:
    """A change with which the job fits, bytes left on the fullest GPU, seconds of a step, and the price of a token over today's.

    `price`: 0.05 means that a token costs 5 % more than in the unchanged job, if that fitted; 0 if that cannot be predicted.
    """

    change: Change
    spare: float
    step_time_s: float
    tokens_per_s: float
    price: float

    @property
    def single(self) -> bool:
        """Whether one field is enough, not counting a dp that follows."""
        return len(self.change.sets) == 1


def fixes(job: Job) -> tuple[Fix, ...]:
    """At most SHOWN fixes, cheapest first; empty if no tried change makes `job` fit.

    A fix with more fields than a cheaper one has is left out.
    """
    now = _rate(job)
    candidates = [fix for change in _smallest_that_fits(job) if (fix := _price_fix(job, change, now)) is not None]
    if not isinstance(job.model, GraphModel):
        candidates += [fix for change in _layouts(job) if (fix := _price_fix(job, change, now)) is not None]
    best: list[Fix] = []
    for fix in sorted(candidates, key=lambda one: (-one.tokens_per_s, len(one.change.sets))):
        if not any(set(other.change.sets) <= set(fix.change.sets) for other in best):
            best.append(fix)
    singles = [fix for fix in best if fix.single]
    shown = best[:SHOWN]
    if singles and not any(fix.single for fix in shown):
        shown[-1] = singles[0]  # prefer a fix of one field, even if several fields are faster
    return tuple(shown)


def _rate(job: Job) -> float | None:
    """Tokens per second, or None if the job cannot be predicted."""
    try:
        return predict(job).tokens_per_s
    except WindtunnelError:
        return None


def _price_fix(job: Job, change: Change, now: float | None) -> Fix | None:
    prediction = predict_or_none(job, change)
    if prediction is None:
        return None
    price = now / prediction.tokens_per_s - 1.0 if now else 0.0
    rate = prediction.tokens_per_s
    return Fix(change, prediction.spare, prediction.step_time_s, rate, price) if prediction.fits else None


def _smallest_that_fits(job: Job) -> Iterator[Change]:
    """Of each family of single changes, the first that makes the job fit."""
    for family in SINGLES:
        for candidate in family(job):
            change = candidate.without_no_ops(job)
            after = apply_or_none(job, change)
            memory = memory_after(after) if after is not None and can_do(after, change) else None
            if memory is not None and all(stage.fits for stage in memory):
                yield change
                break


def _sequence_parallel(job: Job) -> Iterator[Change]:
    if job.plan.tp > 1 and not job.plan.sequence_parallel:
        yield Change.of(plan__sequence_parallel=True)


def _sharding(job: Job) -> Iterator[Change]:
    sharding = str(job.plan.sharding)
    while sharding in SHARDING and job.shard_ranks > 1:
        sharding = SHARDING[sharding]
        yield Change.of(plan__sharding=sharding)


def _micro_batch(job: Job) -> Iterator[Change]:
    micro = job.plan.micro_batch
    while micro > 1:
        micro //= 2
        yield Change.of(plan__micro_batch=micro)


def _recompute(job: Job) -> Iterator[Change]:
    plan, largest = job.plan, max(max(stage) for stage in job.layers_per_stage)
    if plan.recompute == "none":
        yield Change.of(plan__recompute="selective")
    if plan.recompute != "full":
        for quarter in (1, 2, 3):
            yield Change.of(plan__recompute="full", plan__recompute_layers=math.ceil(largest * quarter / 4))
        yield Change.of(plan__recompute="full")
    elif plan.recompute_layers is not None and plan.recompute_layers < largest:
        yield Change.of(plan__recompute_layers=None)


def _loss(job: Job) -> Iterator[Change]:
    if not job.runtime.fused_cross_entropy:
        yield Change.of(runtime__fused_cross_entropy=True)
    for kind in ("chunked", "linear"):
        if job.runtime.cross_entropy not in (kind, "linear"):
            yield Change.of(runtime__cross_entropy=kind)


def _precision_of_state(job: Job) -> Iterator[Change]:
    if job.runtime.optimizer == "adam" and job.runtime.exp_avg_dtype == "fp32":
        yield Change.of(runtime__exp_avg_dtype="bf16", runtime__exp_avg_sq_dtype="bf16")
    if job.runtime.gradient_dtype == "fp32" and job.runtime.precision != "fp32":
        yield Change.of(runtime__gradient_dtype="bf16")


def _offload_optimizer(job: Job) -> Iterator[Change]:
    if job.plan.offload.optimizer == "none":
        for fraction in (0.25, 0.5, 0.75):
            yield Change.of(plan__offload__optimizer="host", plan__offload__optimizer_fraction=fraction)
        yield Change.of(plan__offload__optimizer="host")


def _offload_parameters(job: Job) -> Iterator[Change]:
    """Shards of the weights wait in host memory, alone or with the optimizer's states."""
    offload = job.plan.offload
    if job.plan.shards_parameters and offload.parameters == "none":
        yield Change.of(plan__offload__parameters="host")
        if offload.optimizer == "none":
            yield Change.of(plan__offload__optimizer="host", plan__offload__parameters="host")


def _changes_together(job: Job) -> Iterator[Change]:
    """What takes no other layout, together: a loss in slices, offload, the smallest micro batch, every layer run again."""
    plan, offload = job.plan, job.plan.offload
    sliced = (("runtime.cross_entropy", "chunked"),) if job.runtime.cross_entropy == "vocab_parallel" else ()
    small = (("plan.micro_batch", 1),) if plan.micro_batch > 1 else ()
    again = (("plan.recompute", "full"), ("plan.recompute_layers", None)) if plan.recompute != "full" else ()
    held = (("plan.offload.optimizer", "host"),) if offload.optimizer == "none" else ()
    away = (*held, *((("plan.offload.parameters", "host"),) if plan.shards_parameters and offload.parameters == "none" else ()))
    for parts in ((sliced, again), (sliced, small), (sliced, held), (sliced, away), (small, away), (sliced, small, again, away)):
        if sum(map(bool, parts)) > 1:
            yield Change(tuple(field for part in parts for field in part))


def _shorter(job: Job) -> Iterator[Change]:
    """Shorter sequences, where a tool cuts samples to them."""
    length = job.plan.seq
    while job.runtime.tool is not None and length >= 1024:
        length //= 2
        yield Change.of(plan__seq=length)


def _offload_activations(job: Job) -> Iterator[Change]:
    most = max(max(stage) for stage in job.layers_per_stage)
    for layers in dict.fromkeys(math.ceil(most * quarter / 4) for quarter in (1, 2, 3, 4)):
        if layers > job.plan.offload.activations:
            yield Change.of(plan__offload__activations=layers)


def _degree(axis: str) -> Callable[[Job], Iterator[Change]]:
    """Doublings of one degree, at the expense of dp."""

    def family(job: Job) -> Iterator[Change]:
        degree = getattr(job.plan, axis)
        while 2 * degree <= min(job.cluster.gpus, 64):
            degree *= 2
            if axis == "ep":
                yield Change.of(plan__ep=degree)
            elif axis == "pp":
                uneven = even_stages(job.model.layers, degree * job.plan.vpp)
                stages = () if uneven == job.plan.stages else (("plan.stages", uneven),)
                yield Change((("plan.pp", degree), ("plan.dp", None), *stages))
            else:
                beside = (("plan.sequence_parallel", True),) if axis == "tp" and isinstance(job.model, Model) else ()
                yield Change(((f"plan.{axis}", degree), ("plan.dp", None), *beside))

    return family


def _layout_of_stages(job: Job) -> Iterator[Change]:
    """Fewer layers on the ends of the pipeline, where embedding, logits and the deepest 1F1B backlog are."""
    if not isinstance(job.model, GraphModel):
        yield from (Change.of(plan__stages=stages) for stages in lighter_ends(job))


SINGLES: tuple[Callable[[Job], Iterator[Change]], ...] = (
    _sequence_parallel,
    _loss,
    _sharding,
    _micro_batch,
    _recompute,
    _precision_of_state,
    _layout_of_stages,
    _offload_activations,
    _offload_optimizer,
    _offload_parameters,
    _changes_together,
    _degree("cp"),
    _degree("tp"),
    _degree("pp"),
    _degree("ep"),
    _shorter,
)
"""Families of changes of one kind, each from the mildest to the strongest."""


def _layouts(job: Job) -> list[Change]:
    """The PRICED layouts that fit and promise the shortest step: tp, cp, pp and ep, with the weakest recompute that fits."""
    fitting: list[tuple[float, float, Change]] = []
    least, memory = _weights(job), job.cluster.gpu.memory
    done: set[tuple[object, ...]] = set()
    counted = 0
    for guess, division, change in sorted(_divisions(job), key=lambda one: one[0]):
        if division in done or (after := apply_or_none(job, change)) is None or least(after.plan) > memory:
            continue
        if not can_do(after, change):
            continue
        stages = memory_after(after)
        if stages is not None and all(stage.fits for stage in stages):
            done.add(division)
            fitting.append((guess, spare_bytes(stages), change))
        counted += 1
        if counted >= LAYOUTS or len(fitting) >= 2 * PRICED:
            break
    roomy = [one for one in fitting if one[1] >= HEADROOM * memory]
    return [change for _, _, change in (roomy or fitting)[:PRICED]]


def _divisions(job: Job) -> Iterator[tuple[float, tuple[object, ...], Change]]:
    """(relative time by a rule of thumb, identity of the layout, the change) for layouts of the same model, batch and GPUs."""
    plan, model, gpus, domain = job.plan, job.model, job.cluster.gpus, job.cluster.domain
    sharding = "zero1" if plan.sharding == "none" and gpus > 1 else str(plan.sharding)
    recomputes = list(dict.fromkeys(("none", str(plan.recompute), "selective", "full")))
    losses = [job.runtime.cross_entropy] + (["chunked"] if job.runtime.cross_entropy not in ("chunked", "linear") else [])
    widths = {plan.tp, *powers_of_two(min(domain, model.heads))}
    contexts = {plan.cp, *powers_of_two(min(16, plan.seq // 1024 or 1))}
    experts = {plan.ep, *powers_of_two(min(64, model.experts or 1))}
    for tp, cp, pp, ep in product(widths, contexts, {plan.pp, *powers_of_two(min(model.layers, 32))}, experts):
        dp, rest = divmod(gpus, tp * cp * pp)
        if rest or not dp or plan.global_batch % (dp * plan.micro_batch) or plan.global_batch < pp * dp * plan.micro_batch:
            continue
        for recompute, loss in product(recomputes, losses):
            new = {
                "plan.tp": tp,
                "plan.cp": cp,
                "plan.pp": pp,
                "plan.ep": ep,
                "plan.etp": min(plan.etp, tp),
                "plan.sharding": sharding,
                "plan.sequence_parallel": tp > 1 and (plan.sequence_parallel or plan.tp == 1),
                "plan.recompute": recompute,
                "runtime.cross_entropy": loss,
            }
            if pp != plan.pp:
                new |= {"plan.vpp": 1, "plan.schedule": "auto", "plan.stages": even_stages(model.layers, pp)}
            if recompute != plan.recompute:
                new |= {"plan.recompute_layers": None}
            old = {path: getattr(job.plan if path.startswith("plan") else job.runtime, path.partition(".")[2]) for path in new}
            differ = tuple((path, value) for path, value in new.items() if value != old[path])
            if not differ:
                continue
            moved = (tp, cp, pp) != (plan.tp, plan.cp, plan.pp)
            change = Change((*differ, ("plan.dp", None))) if moved else Change(differ)
            guess = _guess(job, tp, cp, pp, ep) * AGAIN[recompute] * (1.005 if loss != job.runtime.cross_entropy else 1.0)
            yield guess, (tp, cp, pp, ep), change


def _guess(job: Job, tp: int, cp: int, pp: int, ep: int) -> float:
    """Relative time of a step, to order layouts: bubble, calls inside layers, calls that leave a scale-up domain."""
    plan, domain = job.plan, job.cluster.domain
    dp = job.cluster.gpus // (tp * cp * pp)
    bubble = 1.0 + (pp - 1) * plan.micro_batch * dp / plan.global_batch
    calls = 1.0 + 0.1 * (tp.bit_length() - 1) + 0.04 * (cp.bit_length() - 1) + 0.05 * (pp.bit_length() - 1)
    calls += 0.3 if tp * cp > domain else 0.0
    calls += 0.15 if ep * plan.etp > domain else 0.0
    return bubble * calls


def _weights(job: Job) -> Callable[[Plan], float]:
    """Bytes of weights, and of unsharded gradients, on a GPU under a plan; recompute does not reduce them."""
    model, runtime = job.model, job.runtime
    parameters, experts = parameter_count(model), expert_parameters(model)
    weight, gradient = DTYPE_BYTES[runtime.weight_dtype], DTYPE_BYTES[runtime.gradient_dtype]

    def least(plan: Plan) -> float:
        if plan.shards_parameters or model.frozen or job.plan.offload.parameters != "none":
            return 0.0
        each = weight + (0.0 if plan.sharding == "zero2" else gradient)
        return each * ((parameters - experts) / plan.tp + experts / (plan.ep * plan.etp)) / plan.pp

    return least
