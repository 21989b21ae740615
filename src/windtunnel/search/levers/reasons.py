"""Sentences on the largest losses of a step and what to change first, each with its predicted gain."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from windtunnel.memory.sheet import MEMORY_PARTS
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.sheet.parts import COMPUTE, CONTENTION, RECOMPUTE, label_of, parts_of
from windtunnel.search import Advice, Change, Fix, advise, fixes
from windtunnel.search.change import apply_or_none
from windtunnel.search.levers.flags import flags_of, framework_name
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence, capital, join, quote
from windtunnel.spec import Job

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
