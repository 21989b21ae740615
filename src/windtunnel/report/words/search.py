"""The plans, the certificate and the reasons of a search, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from windtunnel.report.words.parts import label_of
from windtunnel.search.change import format_value
from windtunnel.search.explain import SPARE, Decision, Explanation, OwnPlan
from windtunnel.search.find import Certificate
from windtunnel.search.levers.pricing import PricedLever
from windtunnel.search.margin import margin_words, usual_margin
from windtunnel.search.objective import Objective, amount
from windtunnel.search.result import SearchResult
from windtunnel.sheet import numbers as say


def value_text(value: Any) -> str:
    """A value, with runs of equal numbers folded: `[4 x 15, 1]`; words joined as Megatron joins axes: `tp-cp-ep-dp-pp`."""
    if isinstance(value, tuple) and value and all(isinstance(one, str) for one in value):
        return "-".join(value)  # brackets around words would be markup
    if isinstance(value, tuple) and len(value) > 4 and all(isinstance(one, int) for one in value):
        runs: list[list[int]] = []
        for one in value:
            if runs and runs[-1][0] == one:
                runs[-1][1] += 1
            else:
                runs.append([one, 1])
        return "[" + ", ".join(f"{one} x {times}" if times > 1 else str(one) for one, times in runs) + "]"
    return format_value(value)


def plan_words(fields: Mapping[str, Any], than: Mapping[str, Any] | None = None) -> str:
    """`tp 4, pp 8, …`; with `than`, only what differs from it."""
    words = []
    for path, value in fields.items():
        if than is not None and than.get(path, value) == value and path in than:
            continue
        name = path.removeprefix("plan.").removeprefix("runtime.").replace("_", " ")
        if value is None or isinstance(value, bool):
            words.append(name if value else f"no {name}")
        else:
            words.append(f"{name} {value_text(value)}")
    return ", ".join(words)


def number_of(objective: Objective, value: float) -> str:
    """A value of an objective as people read it, without its unit."""
    shown = objective.shown(value)
    return say.count(shown) if shown >= 1e4 else f"{shown:,.4g}"


def certificate_lines(of: Certificate, result: SearchResult) -> list[str]:
    """What became of the plans, and how much better one could be."""
    rate = of.plans / of.bound_s if of.bound_s else 0.0
    lines = [
        f"{of.combinations:,} combinations, {of.plans:,} of them plans: {of.refused:,} contradict themselves, {of.too_large:,} "
        f"need more memory than {_memory_left(result)}" + (f", {of.over_limit:,} miss a limit." if of.over_limit else "."),
        f"A lower bound of the step ruled out {of.ruled_out:,} ({of.cells:,} micro batches priced, {say.seconds(of.bound_s)}, "
        f"{rate:,.0f} plans/s); {of.predicted:,} predicted ({say.seconds(of.predict_s)}); "
        f"{of.did_not_fit:,} of these did not fit.",
    ]
    if len(result.objectives) > 1:
        left = f"{of.open:,} plans were left open."
        lines.append(
            left
            if of.open
            else "No plan of this space beats a plan of the front in every objective, with the network in closed form."
        )
    elif of.exact:
        better = "faster" if result.objectives[0].name == "time" else "better"
        first = "second, that of the space," if result.pulled else "first"
        lines.append(f"No plan of this space is {better} than the {first} with the network in closed form.")
    else:
        lines.append(
            f"{of.open:,} plans were left open; none of them can be better than the first by more than {say.percent(of.gap, 2)}."
        )
    lines += [_say_pulled(one) for one in result.pulled]
    return lines


def _memory_left(result: SearchResult) -> str:
    """What plans may use, in words."""
    if not result.margin:
        return "there is"
    why = f" ({margin_words()})" if abs(result.margin - usual_margin()) < 1e-9 else ""
    return f"there is less {say.percent(result.margin)}, which are kept free{why}"


def _say_pulled(one: PricedLever) -> str:
    """A lever of the first plan that the space does not have."""
    flags = f" [{' '.join(one.flags)}]" if one.flags else ""
    sets = " ".join(f"--set {text}" for text in one.change.sets)
    return f"Beyond the space, of all levers at its best plan: {sets}{flags} gains {say.percent(one.gain)}; the first plan has it."


def reason_lines(result: SearchResult, why: Explanation) -> list[str]:
    """Why the user's plan is not the best in an objective, and whether memory or a limit binds."""
    lines = []
    place = result.place(why.best)
    best, timed = result.fields(result.ranked[place]), why.objective.name == "time"
    if why.known is not None:
        lines += _known_plan(result.own, why.known, why)
    if result.first is not None and why is result.explanations[0]:
        flags = f" [{' '.join(result.first.flags)}]" if result.first.flags else ""
        sets = " ".join(f"--set {text}" for text in result.first.change.sets)
        lines.append(f"One change of it alone that gains most: {sets}{flags}, {say.percent(result.first.gain)} a token.")
    if why.relaxed is not None:
        fields = plan_words(result.fields(why.relaxed.candidate), best)
        more, less = say.size(why.relaxed.missing), say.percent(why.relaxed.gain)
        gain = f"would take {less} less" if timed else f"would be {less} better"
        lines.append(f"Memory binds: with {more} more on each GPU, {fields} {gain}.")
    if (roomy := why.roomier) is not None:
        fields = plan_words(result.fields(roomy.candidate), best)
        loss = f"takes {say.percent(roomy.loss)} more" if timed else f"is {say.percent(roomy.loss)} worse"
        lines.append(
            f"{f'Plan {place + 1}' if place else 'The first plan'} keeps {say.size(roomy.free)} of its fullest GPU free, and "
            f"{margin_words()}. With {say.percent(SPARE, 0)} kept free (--margin {SPARE}), {fields} {loss}."
        )
    if (free := why.unlimited) is not None:
        fields = plan_words(result.fields(free.candidate), best) or "the same plan"
        label = result.labels[free.candidate.frame]
        needs = " and ".join(f"{amount(value)} {most.objective.unit} instead of {amount(most.limit)}" for most, value in free.needs)
        where = f"{label}: {fields}" if label else fields
        lines.append(f"A limit binds: with {needs}, {where} would be {say.percent(free.gain)} better.")
    if why.relaxed is None and (result.certificate.too_large or result.certificate.did_not_fit):
        lines.append("Memory does not bind: no plan that needs up to twice of it would be better.")
    return lines


def _known_plan(whose: str, known: OwnPlan, why: Explanation) -> list[str]:
    """What the user's own plan lacks, or costs beside the best."""
    outcome = known.outcome
    step = say.seconds(outcome.step_time_s)
    if outcome.missing > 0.0:
        return [f"{whose} lacks {say.size(outcome.missing)} on its fullest GPU; its step would take {step}."]
    if known.loss <= 0.0:
        return []
    parts = ", ".join(f"{label_of(part)} +{say.seconds(seconds)}" for part, seconds in known.parts)
    if why.objective.name == "time":
        return [f"{whose} takes {step}, {say.percent(known.loss)} more: {parts}."]
    number = number_of(why.objective, why.best.values[0] * (1.0 + known.loss))
    return [f"{whose}: {number} {why.objective.unit}, {say.percent(known.loss)} worse" + (f" ({parts})." if parts else ".")]


def titles(result: SearchResult, why: Explanation) -> tuple[str, str]:
    """Titles of the reasons and of the decisions."""
    if len(result.objectives) == 1:
        return "Why not another", "Which decision matters most"
    return f"Why not another, by {why.objective.name}", f"Which decision matters most, by {why.objective.name}"


def machine_decision(result: SearchResult) -> tuple[str, str, str, str] | None:
    """The machine as a decision: (its name, the best one, the next, what that costs); None with one machine."""
    if len(result.machines) < 2:
        return None
    best, other = result.machines[:2]
    mine, theirs = (result.jobs[one.frame].cluster.id for one in (best, other))
    return ("machine", mine, theirs, say.percent(other.values[0] / best.values[0] - 1.0)) if best.values[0] else None


def loss_of(one: Decision) -> str:
    """What the next best value costs: a share, or the range that is known of it."""
    if not math.isfinite(one.loss):
        return ""
    if one.exact or one.loss <= one.least:
        return say.percent(one.loss)
    return f"{say.percent(one.least)} to {say.percent(one.loss)}"
