"""Sentences on the largest losses of a step and what to change first, each with its predicted gain.

What to change first: changes that could shorten the largest losses of a step, each priced by a prediction of its own.

A part of the breakdown states the cost of a loss, not the gain of a setting. So each lever of the one list (`registry.py`) is
predicted, and its gain is the difference of two predictions, per token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import ref

from windtunnel.base.dataclasses import dataclass
from windtunnel.memory.sheet import MEMORY_PARTS
from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.sheet.parts import COMPUTE, CONTENTION, RECOMPUTE, label_of, parts_of
from windtunnel.search import Fix, fixes
from windtunnel.search.change import Change, apply_or_none, predict_or_none, remember_facts
from windtunnel.search.levers.pricing import GAIN, flags_of, framework_name, price_levers
from windtunnel.search.levers.registry import LEVERS
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence, capital, join, quote
from windtunnel.spec import Job

WORTH = 0.02
"""Parts below this share of the step are ignored."""

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


@remember_facts()
def advise(prediction: Prediction, limit: int = 5) -> tuple[Advice, ...]:
    """The largest gains first, then losses without a helpful change; at most `limit`.

    All candidates are predicted in closed form, against the same job in closed form on a whole fabric; a step of more than
    LARGEST_PROGRAM passes is not predicted again. A change of the batch is advised only if nothing else gains.
    """
    job = prediction.job
    if job.plan.pp * job.plan.vpp * job.micro_batches > LARGEST_PROGRAM:
        return ()
    faulty = bool(job.cluster.fabric.faults)
    whole = job
    if faulty:
        from windtunnel.network.simulate.fabric_faults import without_faults  # here: it imports the packet engine

        whole = job.model_copy(update={"cluster": without_faults(job.cluster)})
    base = predict(whole) if prediction.network != "closed" else prediction
    losses = {part: seconds for part, seconds in base.breakdown.items() if seconds >= WORTH * base.step_time_s}
    best: dict[str, Advice] = {part: Advice(part, seconds) for part, seconds in losses.items() if part in FOR_PARTS}
    for one in price_levers(base):
        if one.gain <= GAIN or not one.fits and base.fits or one.part not in losses and not one.helps:
            continue
        known = best.get(one.part)
        if known is not None and known.change is not None and (one.trains_otherwise or one.gain <= known.gain):
            continue
        best[one.part] = Advice(
            one.part, base.breakdown[one.part], one.change, one.step_time_s, one.gain, one.fits, one.trains_otherwise
        )
    by_change: dict[Change | str, Advice] = {}
    others = sorted(best.values(), key=lambda one: (one.trains_otherwise, -one.gain, -one.cost_s))
    for advice in (*_culprits(base), *others):
        by_change.setdefault(advice.change or advice.part, advice)
    return tuple(by_change.values())[:limit]


FOR_PARTS = frozenset(part for lever in LEVERS for part in lever.parts) - {"matmul", "attention", "memory_bound"}
"""Losses that a lever is for; the other parts of a step are its computation."""


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


WORTH_SAYING = 0.02
"""Parts below this share of the step are not worth a sentence."""

SHOWN_FIXES = 2
"""Maximum of fixes for memory in the report; `windtunnel memory` lists more."""


def reasons(prediction: Prediction, limit: int = 4) -> list[str]:
    """At most `limit` sentences, the most important first: memory that does not fit, then changes by their gain.

    Predicts the job again for every change that it prices: 0.1 to 1 s, once for a prediction that is shown several times.
    """
    return sentences(prediction, *_price_once(prediction))[:limit]


_Priced = tuple[tuple[Advice, ...], tuple[Fix, ...]]
_last: tuple[ref[Prediction], _Priced] | None = None
"""The advice and fixes of the last prediction that was shown: the terminal and the page show the same one."""


def _price_once(prediction: Prediction) -> _Priced:
    global _last
    if _last is None or _last[0]() is not prediction:
        unfit = bool(prediction.memory) and not prediction.fits
        _last = ref(prediction), (advise(prediction), tuple(fixes(prediction.job)) if unfit else ())
    return _last[1]


def sentences(prediction: Prediction, advice: Sequence[Advice], fitting: Sequence[Fix] = ()) -> list[str]:
    """The sentences of `reasons`, from given advice and fixes."""
    lines = _memory(prediction, fitting)
    lines += [_advice(prediction, one) for one in advice]
    advised = {one.part for one in advice}
    parts = parts_of(prediction.breakdown, prediction.step_time_s)
    for part in sorted(parts, key=lambda part: -part.seconds):
        if part.key not in advised and part.group is not COMPUTE and part.share >= WORTH_SAYING:
            label = (
                "Computation beside overlapped communication runs slower: it" if part.group is CONTENTION else capital(part.label)
            )
            lines.append(Sentence("{part} costs {cost}.", part=Sentence(label), cost=_cost(prediction, part.seconds)))
    if not advised & {"other_stages", "slow_ranks"}:
        lines += _imbalance(prediction)
    if not lines:
        share = say.percent(sum(part.share for part in parts if part.group is COMPUTE), 0)
        text = "{share} of the step is computation: faster kernels, a lower precision or a faster GPU are left."
        lines.append(Sentence(text, share=share))
    return lines


def typed_change(job: Job, change: Change) -> str:
    """A change as `--set`s, with the flags of the job's framework in brackets if it has them."""
    sets = " ".join(f"--set {text}" for text in change.sets)
    after = apply_or_none(job, change)
    flags = flags_of(after, change.fields) if after is not None else ()
    return f"{sets} [{framework_name(job)}: {' '.join(flags)}]" if flags else sets


def _advice(prediction: Prediction, advice: Advice) -> Sentence:
    job = prediction.job
    cost = _cost(prediction, advice.cost_s)
    if advice.part == "slow_ranks":
        who = quote(prediction.unequal.culprit) if prediction.unequal else Sentence("ranks that the job names")
        text = "Slow ranks cost {cost}: the step waits for {who}. Without them it takes {time}."
        return Sentence(text, cost=cost, who=who, time=_new(advice))
    label = capital(label_of(advice.part))
    if advice.part == "slowest_gpu":
        label = Sentence(
            "{part}, of all {gpus} ({share} of nodes are taken to be slow),",
            part=label, gpus=f"{job.cluster.gpus:,}", share=say.percent(job.cluster.slow_nodes),
        )  # fmt: skip
    costs = Sentence("{part} cost {cost}" if label.endswith("kernels") else "{part} costs {cost}", part=label, cost=cost)
    if advice.change is None:
        return Sentence("{costs}; nothing that was tried shortens it.", costs=costs)
    if advice.part == "slowest_gpu":
        return Sentence("{costs}. With no slow node the step takes {time}.", costs=costs, time=_new(advice))
    step = Sentence(
        "{time} a step, -{gain} a token" if prediction.network == "closed" else "{time} a step in closed form, -{gain} a token",
        time=say.seconds(advice.step_time_s or 0.0), gain=say.percent(advice.gain),
    )  # fmt: skip
    unless = [step]
    unless += [] if advice.fits else [Sentence("it does not fit into memory then")]
    unless += [Sentence("a larger batch may train differently")] if advice.trains_otherwise else []
    return Sentence(
        "{costs}. {change} gives {what}.", costs=costs, change=typed_change(job, advice.change), what=join(unless, "; ")
    )


def _new(advice: Advice) -> Sentence:
    return Sentence("{time}, {share} less", time=say.seconds(advice.step_time_s or 0.0), share=say.percent(advice.gain))


def _cost(prediction: Prediction, seconds: float) -> Sentence:
    share = say.percent(seconds / prediction.step_time_s)
    return Sentence("{time}, {share} of the step", time=say.seconds(seconds), share=share)


def _memory(prediction: Prediction, fitting: Sequence[Fix]) -> list[str]:
    """Missing memory of the fullest stage, its largest part, and the cheapest changes that make the job fit."""
    if prediction.fits or not prediction.memory:
        return []
    worst = max(prediction.memory, key=lambda stage: stage.missing)
    size = say.size(worst.missing)
    if worst.short != "GPU memory":
        text = "Stage {stage} lacks {size} of {place} for each GPU: offload less."
        return [Sentence(text, stage=worst.stage, size=size, place=Sentence(worst.short))]
    largest = max(MEMORY_PARTS, key=lambda part: float(getattr(worst, part)))
    missing = Sentence(
        "Stage {stage} lacks {size} of memory; the largest part is {part} with {most}.",
        stage=worst.stage, size=size, part=Sentence(largest), most=say.size(getattr(worst, largest)),
    )  # fmt: skip
    if not fitting:
        return [join((missing, Sentence("No change that was tried makes the job fit: use more GPUs.")), " ")]
    ways = [
        Sentence("{change} fits, {time} a step", change=typed_change(prediction.job, fix.change), time=say.seconds(fix.step_time_s))
        for fix in fitting[:SHOWN_FIXES]
    ]
    return [Sentence("{missing} {ways}.", missing=missing, ways=join(ways, "; "))]


def _imbalance(prediction: Prediction) -> list[str]:
    """Stages whose computation differs: the slowest sets the pace of a full pipeline."""
    if len(prediction.by_stage) < 2:
        return []
    busy = [sum(p.seconds for p in parts_of(stage, 1.0) if p.group in (COMPUTE, RECOMPUTE)) for stage in prediction.by_stage]
    mean, slowest = sum(busy) / len(busy), max(busy)
    if mean <= 0.0 or slowest / mean - 1.0 < 0.05:
        return []
    return [
        Sentence(
            "Stage {stage} computes {share} longer than the average stage ({time} against {mean}): "
            "the layers are spread unevenly (plan.stages).",
            stage=busy.index(slowest), share=say.percent(slowest / mean - 1.0, 0), time=say.seconds(slowest),
            mean=say.seconds(mean),
        )
    ]  # fmt: skip
