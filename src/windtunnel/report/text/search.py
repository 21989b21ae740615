"""A search in a terminal: its space, the best plans with what they differ in, its certificate and its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.predict import predict
from windtunnel.report.words.search import (
    certificate_lines,
    loss_of,
    machine_decision,
    number_of,
    plan_words,
    reason_lines,
    titles,
    value_text,
)
from windtunnel.search.explain import Explanation
from windtunnel.search.objective import OBJECTIVES, Objective, values_of
from windtunnel.search.result import SearchResult
from windtunnel.search.space import Space
from windtunnel.sheet import numbers as say


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
            table.add_row(path, ", ".join(value_text(value) for value in values))
    for label in labels if len(spaces) > 1 else ():
        table.add_row("frame", say.clean(label))
    lines.append(Padding(table, (0, 0, 0, 2)))
    lines.append(Text(f"{sum(space.size for space in spaces):,} combinations"))
    return Group(*lines)


def render(result: SearchResult, top: int = 10) -> RenderableType:
    """The whole report."""
    sections: list[RenderableType] = [
        Text(f"Best on {result.where(result.ranked[0])}", style="bold") if len(result.jobs) > 1 else Text(""),
        _table(result, top),
        *([_section("Best of each machine", _list_machines(result))] if result.machines else []),
        *([_section(f"The first plans over {result.network}", _list_again(result))] if result.again else []),
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


def _list_machines(result: SearchResult) -> RenderableType:
    """The best plan of each machine, with what it costs beside the winner."""
    prices = _prices(result)
    table = listing(
        ("machine", "left"), ("step", "right"), *((SHORT[each.name], "right") for each in prices),
        ("more", "right"), ("±", "right"), ("plan", "left"), wraps=("machine", "plan"),
    )  # fmt: skip
    best = min(one.values[0] for one in result.machines)
    for one in result.machines:
        priced = values_of(prices, result.job_of(one), one.outcome)
        table.add_row(
            result.where(one),
            say.seconds(one.outcome.step_time_s),
            *(number_of(each, value) for each, value in zip(prices, priced, strict=True)),
            say.percent(one.values[0] / best - 1.0) if one.values[0] > best else "",
            f"{100 * predict(result.job_of(one)).relative_error:.0f} %",
            plan_words(result.fields(one)),
        )
    return table


def _list_again(result: SearchResult) -> RenderableType:
    """Step times over another network; the order is theirs."""
    table = listing(("plan", "right"), (result.network, "right"), ("closed form", "right"))
    for place, seconds in result.again:
        table.add_row(str(place + 1), say.seconds(seconds), say.seconds(result.ranked[place].outcome.step_time_s))
    return table


def _prices(result: SearchResult) -> list[Objective]:
    """Days and dollars of the run where the job states its tokens, else dollars and joules of a token: where all machines state
    them, nobody asked for them, and they leave room for the plan."""
    asked = {each.name for each in result.objectives}
    of_run = all(job.tokens is not None for job in result.jobs)
    room = () if len(asked) >= MANY else ("days", "bill") if of_run else ("dollars", "joules")
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
            moves = (f"{one.unit} {_format_change(one, value, before)}" for one, value, before in pairs)
            lines.append(f"Plan {place + 1} is the best in {each.unit}; beside plan 1: {', '.join(moves)}.")
    return lines or ["Plan 1 is the best in every objective."]


def _format_change(of: Objective, value: float, before: float) -> str:
    """The change of an objective as people read it: `+3.2 %`."""
    after, was = of.shown(value), of.shown(before)
    return f"{100.0 * (after / was - 1.0):+.1f} %" if was else "as before"


def _reasons(result: SearchResult, why: Explanation) -> list[RenderableType]:
    out: list[RenderableType] = []
    reasons, decisions = titles(result, why)
    if lines := reason_lines(result, why):
        out.append(_section(reasons, Text("\n".join(lines))))
    machine = machine_decision(result)
    if why.decisions or machine:
        table = listing(("decision", "left"), ("best", "left"), ("next best", "left"), ("costs", "right"))
        if machine:
            table.add_row(*machine)
        for one in why.decisions:
            table.add_row(
                one.path, value_text(one.value), "none fits" if one.other is None else value_text(one.other), loss_of(one)
            )
        out.append(_section(decisions, table))
    return out


def _section(title: str, body: RenderableType) -> RenderableType:
    return Padding(Group(Text(title, style="bold"), Padding(body, (0, 0, 0, 2))), (1, 0, 0, 0))
