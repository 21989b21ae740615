"""What became of the plans of a search, and why another plan is not better, in words."""

from __future__ import annotations

import math

from windtunnel.predict.sheet.parts import label_of
from windtunnel.search.change import plan_words
from windtunnel.search.find import Certificate
from windtunnel.search.levers.pricing import PricedLever
from windtunnel.search.margin import margin_words, usual_margin
from windtunnel.search.objective import Objective, amount, number_of
from windtunnel.search.result import SPARE, Decision, Explanation, OwnPlan, SearchResult
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence, join, quote


def certificate_lines(of: Certificate, result: SearchResult) -> list[str]:
    """What became of the plans, and how much better one could be."""
    rate = of.plans / of.bound_s if of.bound_s else 0.0
    text = (
        "{combinations} combinations, {plans} of them plans: {refused} contradict themselves, {large} need more memory than {left}"
    )
    looked = Sentence(
        text, combinations=f"{of.combinations:,}", plans=f"{of.plans:,}", refused=f"{of.refused:,}", large=f"{of.too_large:,}",
        left=_memory_left(result),
    )  # fmt: skip
    if of.over_limit:
        looked = join((looked, Sentence("{count} miss a limit", count=f"{of.over_limit:,}")))
    lines: list[str] = [Sentence("{said}.", said=looked)]
    text = (
        "A lower bound of the step ruled out {ruled} ({cells} micro batches priced, {time}, {rate} plans/s); {predicted} predicted "
        "({seconds}); {unfit} of these did not fit."
    )
    lines.append(
        Sentence(
            text, ruled=f"{of.ruled_out:,}", cells=f"{of.cells:,}", time=say.seconds(of.bound_s), rate=f"{rate:,.0f}",
            predicted=f"{of.predicted:,}", seconds=say.seconds(of.predict_s), unfit=f"{of.did_not_fit:,}",
        )
    )  # fmt: skip
    if len(result.objectives) > 1:
        text = "No plan of this space beats a plan of the front in every objective, with the network in closed form."
        lines.append(Sentence("{count} plans were left open.", count=f"{of.open:,}") if of.open else Sentence(text))
    elif of.exact:
        better = Sentence("faster" if result.objectives[0].name == "time" else "better")
        first = Sentence("second, that of the space," if result.pulled else "first")
        text = "No plan of this space is {better} than the {first} with the network in closed form."
        lines.append(Sentence(text, better=better, first=first))
    else:
        text = "{count} plans were left open; none of them can be better than the first by more than {share}."
        lines.append(Sentence(text, count=f"{of.open:,}", share=say.percent(of.gap, 2)))
    return lines + [_say_pulled(lever) for lever in result.pulled]


def _memory_left(result: SearchResult) -> Sentence:
    """What plans may use, in words."""
    if not result.margin:
        return Sentence("there is")
    left = Sentence("there is less {share}, which are kept free", share=say.percent(result.margin))
    if abs(result.margin - usual_margin()) < 1e-9:
        return Sentence("{left} ({why})", left=left, why=margin_words())
    return left


def _change(lever: PricedLever) -> str:
    flags = f" [{' '.join(lever.flags)}]" if lever.flags else ""
    return " ".join(f"--set {text}" for text in lever.change.sets) + flags


def _say_pulled(lever: PricedLever) -> Sentence:
    """A lever of the first plan that the space does not have."""
    text = "Beyond the space, of all levers at its best plan: {change} gains {share}; the first plan has it."
    return Sentence(text, change=_change(lever), share=say.percent(lever.gain))


def reason_lines(result: SearchResult, why: Explanation) -> list[str]:
    """Why the user's plan is not the best in an objective, and whether memory or a limit binds."""
    lines: list[str] = []
    place = result.place(why.best)
    best, timed = result.fields(result.ranked[place]), why.objective.name == "time"
    if why.known is not None:
        lines += _known_plan(result.own, why.known, why)
    if result.first is not None and why is result.explanations[0]:
        text = "One change of it alone that gains most: {change}, {share} a token."
        lines.append(Sentence(text, change=_change(result.first), share=say.percent(result.first.gain)))
    if why.relaxed is not None:
        fields = plan_words(result.fields(why.relaxed.candidate), best)
        text = (
            "Memory binds: with {size} more on each GPU, {plan} would take {share} less."
            if timed
            else "Memory binds: with {size} more on each GPU, {plan} would be {share} better."
        )
        lines.append(Sentence(text, size=say.size(why.relaxed.missing), plan=fields, share=say.percent(why.relaxed.gain)))
    if (roomy := why.roomier) is not None:
        text = (
            "{first} keeps {size} of its fullest GPU free, and {margin}. With {spare} kept free (--margin {share}), {plan} {loss}."
        )
        loss = Sentence("takes {share} more" if timed else "is {share} worse", share=say.percent(roomy.loss))
        first = Sentence("Plan {number}", number=place + 1) if place else Sentence("The first plan")
        lines.append(
            Sentence(
                text, first=first, size=say.size(roomy.free), margin=margin_words(), spare=say.percent(SPARE, 0), share=SPARE,
                plan=plan_words(result.fields(roomy.candidate), best), loss=loss,
            )
        )  # fmt: skip
    if (free := why.unlimited) is not None:
        fields = plan_words(result.fields(free.candidate), best)
        plan = quote(fields) if fields else Sentence("the same plan")
        if label := result.labels[free.candidate.frame]:
            plan = Sentence("{machine}: {plan}", machine=label, plan=plan)
        needs = [
            Sentence(
                "{value} {unit} instead of {limit}",
                value=amount(value),
                unit=Sentence(most.objective.unit),
                limit=amount(most.limit),
            )
            for most, value in free.needs
        ]
        text = "A limit binds: with {needs}, {plan} would be {share} better."
        lines.append(Sentence(text, needs=join(needs, " and "), plan=plan, share=say.percent(free.gain)))
    if why.relaxed is None and (result.certificate.too_large or result.certificate.did_not_fit):
        lines.append(Sentence("Memory does not bind: no plan that needs up to twice of it would be better."))
    return lines


def _known_plan(whose: str, known: OwnPlan, why: Explanation) -> list[str]:
    """What the user's own plan lacks, or costs beside the best."""
    outcome, who = known.outcome, Sentence(whose)
    step = say.seconds(outcome.step_time_s)
    if outcome.missing > 0.0:
        text = "{plan} lacks {size} on its fullest GPU; its step would take {time}."
        return [Sentence(text, plan=who, size=say.size(outcome.missing), time=step)]
    if known.loss <= 0.0:
        return []
    parts = join([Sentence("{part} +{time}", part=Sentence(label_of(part)), time=say.seconds(s)) for part, s in known.parts])
    share = say.percent(known.loss)
    if why.objective.name == "time":
        return [Sentence("{plan} takes {time}, {share} more: {parts}.", plan=who, time=step, share=share, parts=parts)]
    number = number_of(why.objective, why.best.values[0] * (1.0 + known.loss))
    text = "{plan}: {number} {unit}, {share} worse ({parts})." if parts else "{plan}: {number} {unit}, {share} worse."
    return [Sentence(text, plan=who, number=number, unit=Sentence(why.objective.unit), share=share, parts=parts)]


def best_in(result: SearchResult, number: int) -> int:
    """The place in the front of the best plan in an objective."""
    return min(range(result.front), key=lambda place: result.ranked[place].values[number])


def front_lines(result: SearchResult) -> list[str]:
    """What the best plan of each objective gains and costs beside the first plan."""
    lines: list[str] = []
    first = result.ranked[0]
    for number, each in enumerate(result.objectives):
        place = best_in(result, number)
        if place:
            pairs = zip(result.objectives, result.ranked[place].values, first.values, strict=True)
            moves = [
                Sentence("{unit} {change}", unit=Sentence(objective.unit), change=_format_change(objective, value, before))
                for objective, value, before in pairs
            ]
            text = "Plan {number} is the best in {unit}; beside plan 1: {moves}."
            lines.append(Sentence(text, number=place + 1, unit=Sentence(each.unit), moves=join(moves)))
    return lines or [Sentence("Plan 1 is the best in every objective.")]


def _format_change(of: Objective, value: float, before: float) -> Sentence:
    """The change of an objective as people read it: `+3.2 %`."""
    after, was = of.shown(value), of.shown(before)
    return quote(f"{100.0 * (after / was - 1.0):+.1f} %") if was else Sentence("as before")


def loss_of(decision: Decision) -> str:
    """What the next best value costs: a share, or the range that is known of it."""
    if not math.isfinite(decision.loss):
        return ""
    if decision.exact or decision.loss <= decision.least:
        return say.percent(decision.loss)
    return Sentence("{least} to {most}", least=say.percent(decision.least), most=say.percent(decision.loss))
