"""A search in a terminal: its space, the best plans with what they differ in, its certificate and its reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from windtunnel.report.text.table import listing
from windtunnel.report.words import numbers as say
from windtunnel.report.words.parts import label_of
from windtunnel.search.change import format_value
from windtunnel.search.explain import SPARE, Decision, Explanation, OwnPlan
from windtunnel.search.find import Certificate
from windtunnel.search.objective import OBJECTIVES, Objective, amount, values_of
from windtunnel.search.result import SearchResult
from windtunnel.search.space import Space


def space_lines(spaces: Sequence[Space], labels: Sequence[str]) -> RenderableType:
    """What will be searched."""
    first = spaces[0]
    job = first.job
    lines: list[RenderableType] = []
    head = Text()
    head.append(say.clean(job.name), style="bold")
    machine = (
        f"{job.cluster.gpus:,} x {job.cluster.gpu.name or job.cluster.gpu.id}"
        if len(spaces) == 1
        else f"{len(spaces)} machines or runtimes"
    )
    head.append(f" on {machine}, batch of {job.plan.global_batch:,} sequences of {job.plan.seq:,} tokens")
    lines.append(head)
    table = listing(("open field", "left"), ("values", "left"), wraps=("values",))
    for path, values in first.fields.items():
        if len(values) > 1:
            table.add_row(path, ", ".join(short(value) for value in values))
    for label in labels if len(spaces) > 1 else ():
        table.add_row("frame", say.clean(label))
    lines.append(Padding(table, (0, 0, 0, 2)))
    lines.append(Text(f"{sum(space.size for space in spaces):,} combinations"))
    return Group(*lines)


def short(value: Any) -> str:
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
            words.append(f"{name} {short(value)}")
    return ", ".join(words)


def render(result: SearchResult, top: int = 10) -> RenderableType:
    """The whole report."""
    sections: list[RenderableType] = [
        _table(result, top),
        _section("How sure this is", Text("\n".join(certificate_lines(result.certificate, result)))),
    ]
    if len(result.objectives) > 1:
        sections.append(_section("What each is for", Text("\n".join(front_lines(result)))))
    for why in result.explanations:
        sections += _reasons(result, why)
    if result.ranked:
        sections.append(_section("To predict the best plan in full", Text(result.command, overflow="fold")))
    return Group(*sections)


def _table(result: SearchResult, top: int) -> RenderableType:
    several = len(result.objectives) > 1
    ranks = front_shown(result, top) if several else list(range(min(top, len(result.ranked))))
    shown = [result.ranked[rank] for rank in ranks]
    columns: list[tuple[str, Any]] = [("", "right"), ("step", "right")]
    columns += [(SHORT.get(each.name, each.unit), "right") for each in result.objectives if each.name != "time"]
    prices = _prices(result)
    columns += [(SHORT[each.name], "right") for each in prices]
    columns += [("MFU", "right"), ("memory", "right"), ("plan" if len(result.jobs) == 1 else "machine and plan", "left")]
    table = listing(*columns, wraps=("plan", "machine and plan"))
    first = result.fields(shown[0]) if shown else {}
    for number, (rank, one) in enumerate(zip(ranks, shown, strict=True)):
        fields = result.fields(one)
        words = plan_words(fields) if number == 0 else plan_words(fields, first) or "the same"
        label = result.labels[one.frame]
        priced = values_of(prices, result.job_of(one), one.outcome)
        extra = [number_of(each, value) for each, value in zip(result.objectives, one.values, strict=True) if each.name != "time"]
        table.add_row(
            str(rank + 1),
            say.seconds(one.outcome.step_time_s),
            *extra,
            *(number_of(each, value) for each, value in zip(prices, priced, strict=True)),
            say.percent(one.outcome.mfu),
            say.size(one.outcome.memory),
            f"{label}: {words}" if label else words,
            style="bold" if number == 0 else None,
        )
    title = (
        "Plans that no other plan beats in every objective"
        + (f"; {len(shown)} of {result.front}" if len(shown) < result.front else "")
        if several
        else "Best plans; from the second on, what differs from the first"
    )
    return _section(title, table)


def _prices(result: SearchResult) -> list[Objective]:
    """Dollars and joules of a token, where all machines state them, nobody asked for them, and they leave room for the plan."""
    asked = {each.name for each in result.objectives}
    room = ("dollars", "joules") if len(asked) < MANY else ()
    return [OBJECTIVES[name] for name in room if name not in asked and not any(map(OBJECTIVES[name].needs, result.jobs))]


SHORT = {"dollars": "$/M tokens", "joules": "J/token", "days": "days", "bill": "$ in all"}
"""Headings of objectives whose unit is long."""

MANY = 3
"""Objectives beside which a table shows nothing that nobody asked for."""


def front_shown(result: SearchResult, top: int) -> list[int]:
    """Places of at most `top` plans of the front: the best in each objective first of all, then the others in order."""
    front = range(result.front)
    best = [_best_at(result, at) for at in range(len(result.objectives))]
    return sorted(list(dict.fromkeys([*best, *front]))[:top])


def _best_at(result: SearchResult, at: int) -> int:
    """The place in the front of the best plan in objective number `at`."""
    return min(range(result.front), key=lambda place: result.ranked[place].values[at])


def front_lines(result: SearchResult) -> list[str]:
    """What the best plan of each objective gains and costs beside the first plan."""
    lines = []
    first = result.ranked[0]
    for at, each in enumerate(result.objectives):
        place = _best_at(result, at)
        if place:
            pairs = zip(result.objectives, result.ranked[place].values, first.values, strict=True)
            moves = (f"{one.unit} {_moved(one, value, before)}" for one, value, before in pairs)
            lines.append(f"Plan {place + 1} is the best in {each.unit}; beside plan 1: {', '.join(moves)}.")
    return lines or ["Plan 1 is the best in every objective."]


def _moved(of: Objective, value: float, before: float) -> str:
    """The change of an objective as people read it: `+3.2 %`."""
    after, was = of.shown(value), of.shown(before)
    return f"{100.0 * (after / was - 1.0):+.1f} %" if was else "as before"


def number_of(objective: Objective, value: float) -> str:
    """A value of an objective as people read it, without its unit."""
    shown = objective.shown(value)
    return say.count(shown) if shown >= 1e4 else f"{shown:,.4g}"


def certificate_lines(of: Certificate, result: SearchResult) -> list[str]:
    """What became of the plans, and how much better one could be."""
    rate = of.plans / of.bound_s if of.bound_s else 0.0
    lines = [
        f"{of.combinations:,} combinations, {of.plans:,} of them plans: {of.refused:,} contradict themselves, {of.too_large:,} "
        "need more memory than there is" + (f", {of.over_limit:,} miss a limit." if of.over_limit else "."),
        f"A lower bound of the step ruled out {of.ruled_out:,} ({of.cells:,} micro batches priced, {say.seconds(of.bound_s)}, "
        f"{rate:,.0f} plans/s); {of.predicted:,} predicted ({say.seconds(of.predict_s)}); "
        f"{of.did_not_fit:,} of these did not fit.",
    ]
    if len(result.objectives) > 1:
        left = f"{of.open:,} plans were left open."
        lines.append(left if of.open else "No plan of this space beats a plan of the front in every objective.")
    elif of.exact:
        better = "faster" if result.objectives[0].name == "time" else "better"
        lines.append(f"No plan of this space is {better} than the first.")
    else:
        lines.append(
            f"{of.open:,} plans were left open; none of them can be better than the first by more than {say.percent(of.gap, 2)}."
        )
    return lines


def reason_lines(result: SearchResult, why: Explanation) -> list[str]:
    """Why the user's plan is not the best in an objective, and whether memory or a limit binds."""
    lines = []
    place = result.place(why.best)
    best, timed = result.fields(result.ranked[place]), why.objective.name == "time"
    if why.known is not None:
        lines += _known(result.own, why.known, why)
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
            f"memory is predicted 2 to 4 % off. With {say.percent(SPARE, 0)} kept free (--margin {SPARE}), {fields} {loss}."
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


def _known(whose: str, known: OwnPlan, why: Explanation) -> list[str]:
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


def _reasons(result: SearchResult, why: Explanation) -> list[RenderableType]:
    out: list[RenderableType] = []
    reasons, decisions = titles(result, why)
    if lines := reason_lines(result, why):
        out.append(_section(reasons, Text("\n".join(lines))))
    if why.decisions:
        table = listing(("decision", "left"), ("best", "left"), ("next best", "left"), ("costs", "right"))
        for one in why.decisions:
            table.add_row(one.path, short(one.value), "none fits" if one.other is None else short(one.other), loss_of(one))
        out.append(_section(decisions, table))
    return out


def loss_of(one: Decision) -> str:
    """What the next best value costs: a share, or the range that is known of it."""
    if not math.isfinite(one.loss):
        return ""
    if one.exact or one.loss <= one.least:
        return say.percent(one.loss)
    return f"{say.percent(one.least)} to {say.percent(one.loss)}"


def _section(title: str, body: RenderableType) -> RenderableType:
    return Padding(Group(Text(title, style="bold"), Padding(body, (0, 0, 0, 2))), (1, 0, 0, 0))
