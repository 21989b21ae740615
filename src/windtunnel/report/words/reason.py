"""Sentences on the largest losses of a step and what to change first, each with its predicted gain."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from windtunnel.predict.prediction import Prediction
from windtunnel.report.words.parts import COMPUTE, CONTENTION, MEMORY_PARTS, RECOMPUTE, label_of, parts_of
from windtunnel.search import Advice, Change, Fix, advise, fixes
from windtunnel.search.change import apply_or_none
from windtunnel.search.levers.flags import flags_of, framework_name
from windtunnel.sheet import numbers as say
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
            what = (
                "Computation beside overlapped communication runs slower: it" if part.group is CONTENTION else _capital(part.label)
            )
            lines.append(f"{what} costs {_cost(prediction, part.seconds)}.")
    if not advised & {"other_stages", "slow_ranks"}:
        lines += _imbalance(prediction)
    if not lines:
        share = sum(part.share for part in parts if part.group is COMPUTE)
        lines.append(
            f"{say.percent(share, 0)} of the step is computation: faster kernels, a lower precision or a faster GPU are left."
        )
    return lines


def typed_change(job: Job, change: Change) -> str:
    """A change as `--set`s, with the flags of the job's framework in brackets if it has them."""
    sets = " ".join(f"--set {text}" for text in change.sets)
    after = apply_or_none(job, change)
    flags = flags_of(after, change.fields) if after is not None else ()
    return f"{sets} [{framework_name(job)}: {' '.join(flags)}]" if flags else sets


def _advice(prediction: Prediction, advice: Advice) -> str:
    job = prediction.job
    if advice.part == "slow_ranks":
        who = prediction.unequal.culprit if prediction.unequal else "ranks that the job names"
        return (
            f"Slow ranks cost {_cost(prediction, advice.cost_s)}: the step waits for {who}. Without them it takes {_new(advice)}."
        )
    label = label_of(advice.part)
    if advice.part == "slowest_gpu":
        share = say.percent(job.cluster.slow_nodes)
        label = f"{label}, of all {job.cluster.gpus:,} ({share} of nodes are taken to be slow),"
    costs = f"{_capital(label)} {'cost' if label.endswith('kernels') else 'costs'} {_cost(prediction, advice.cost_s)}"
    if advice.change is None:
        return f"{costs}; nothing that was tried shortens it."
    if advice.part == "slowest_gpu":
        return f"{costs}. With no slow node the step takes {_new(advice)}."
    form = "" if prediction.network == "closed" else " in closed form"
    step = f"{say.seconds(advice.step_time_s or 0.0)} a step{form}, -{say.percent(advice.gain)} a token"
    unless = "; it does not fit into memory then" if not advice.fits else ""
    unless += "; a larger batch may train differently" if advice.trains_otherwise else ""
    return f"{costs}. {typed_change(job, advice.change)} gives {step}{unless}."


def _new(advice: Advice) -> str:
    return f"{say.seconds(advice.step_time_s or 0.0)}, {say.percent(advice.gain)} less"


def _cost(prediction: Prediction, seconds: float) -> str:
    return f"{say.seconds(seconds)}, {say.percent(seconds / prediction.step_time_s)} of the step"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _memory(prediction: Prediction, fitting: Sequence[Fix]) -> list[str]:
    """Missing memory of the fullest stage, its largest part, and the cheapest changes that make the job fit."""
    if prediction.fits or not prediction.memory:
        return []
    worst = max(prediction.memory, key=lambda stage: stage.missing)
    if worst.short != "GPU memory":
        return [f"Stage {worst.stage} lacks {say.size(worst.missing)} of {worst.short} for each GPU: offload less."]
    largest = max(MEMORY_PARTS, key=lambda part: float(getattr(worst, part)))
    missing = (
        f"Stage {worst.stage} lacks {say.size(worst.missing)} of memory; the largest part is {largest} with "
        f"{say.size(getattr(worst, largest))}."
    )
    if not fitting:
        return [f"{missing} No change that was tried makes the job fit: use more GPUs."]
    ways = [
        f"{typed_change(prediction.job, fix.change)} fits, {say.seconds(fix.step_time_s)} a step" for fix in fitting[:SHOWN_FIXES]
    ]
    return [f"{missing} {'; '.join(ways)}."]


def _imbalance(prediction: Prediction) -> list[str]:
    """Stages whose computation differs: the slowest sets the pace of a full pipeline."""
    if len(prediction.by_stage) < 2:
        return []
    busy = [sum(p.seconds for p in parts_of(stage, 1.0) if p.group in (COMPUTE, RECOMPUTE)) for stage in prediction.by_stage]
    mean, slowest = sum(busy) / len(busy), max(busy)
    if mean <= 0.0 or slowest / mean - 1.0 < 0.05:
        return []
    return [
        f"Stage {busy.index(slowest)} computes {say.percent(slowest / mean - 1.0, 0)} longer than the average stage "
        f"({say.seconds(slowest)} against {say.seconds(mean)}): the layers are spread unevenly (plan.stages)."
    ]
