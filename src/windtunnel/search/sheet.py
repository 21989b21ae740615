"""What `search` shows: its space, the best plans with what they differ in, the front, how sure it is, why no other is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from windtunnel.predict import predict
from windtunnel.predict.category import StepGroup
from windtunnel.predict.sheet.parts import COLOUR, group_sums
from windtunnel.search.change import plan_words, short_name, value_of, value_text
from windtunnel.search.find import Candidate
from windtunnel.search.objective import OBJECTIVES, Objective, number_of, values_of
from windtunnel.search.reasons import best_in, certificate_lines, front_lines, loss_of, reason_lines
from windtunnel.search.result import Explanation, SearchResult
from windtunnel.search.space import Space
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Block,
    Cell,
    Column,
    Figure,
    Layer,
    Lines,
    Mark,
    Picture,
    Plot,
    Scale,
    Section,
    Sheet,
    Stack,
    Stacks,
    Table,
)
from windtunnel.sheet.colours import COLOURS
from windtunnel.sheet.sentence import Sentence, join, quote

MOST_PLANS, MOST_LINES, MOST_STEPS = 20, 120, 10
"""Plans on a page, best first; in parallel coordinates; and whose step is drawn."""
MANY = 3
"""Objectives beside which a table shows nothing that nobody asked for."""
SHORT = {"dollars": "$/M tokens", "joules": "J/token", "days": "days", "bill": "$ in all"}
"""Headings of objectives whose unit is long."""
SHAPES = ("circle", "square", "cross")
_HIDDEN = ("plan.dp", "plan.stages", "plan.sequence_parallel", "plan.shard_group")
"""Fields that follow from others."""


def space_sheet(spaces: Sequence[Space], labels: Sequence[str]) -> Sheet:
    """What will be searched."""
    job = spaces[0].job
    machine = Sentence("{count} machines or runtimes", count=len(spaces))
    if len(spaces) == 1:
        machine = quote(f"{job.cluster.gpus:,} x {job.cluster.gpu.name or job.cluster.gpu.id}")
    head = Sentence(
        "{job} on {machine}, batch of {batch} sequences of {seq} tokens",
        job=say.clean(job.name), machine=machine, batch=f"{job.plan.global_batch:,}", seq=f"{job.plan.seq:,}",
    )  # fmt: skip
    rows = [
        (Cell(quote(path)), Cell(quote(", ".join(value_text(value) for value in values))))
        for path, values in spaces[0].fields.items()
        if len(values) > 1
    ]
    rows += [(Cell(Sentence("frame")), Cell(quote(say.clean(label)))) for label in labels] if len(spaces) > 1 else []
    table = Table("space", (Column("open field"), Column("values", wraps=True)), tuple(rows))
    count = Sentence("{count} combinations", count=f"{sum(space.size for space in spaces):,}")
    return Sheet("", head, (), (Section("What is searched", (table, Lines((count,)))),))


def search_sheet(result: SearchResult, top: int = 10) -> Sheet:
    """What `search` shows. `top`: plans in the terminal."""
    best, several = result.ranked[0], len(result.objectives) > 1
    shown = front_shown(result, top) if several else list(range(min(top, len(result.ranked))))
    where = result.where(best)
    more = len(shown) < result.front
    title = Sentence("Best plans")
    if several:
        title = Sentence("Plans that no other plan beats in every objective")
        title = join((title, Sentence("{count} of {all}", count=len(shown), all=result.front)), "; ") if more else title
    again = Sentence("The first plans over {network}", network=result.network)
    sections = [
        Section("Best of each machine", (_machines(result),) if result.machines else ()),
        Section(title, (_plans(result, shown, True), _plans(result, list(range(min(MOST_PLANS, len(result.ranked)))), False))),
        Section("The front", (_front(result),) if several else ()),
        Section("Where the time goes", _steps(result)),
        Section("Predicted plans in parallel coordinates; dark is better", _coordinates(result)),
        Section(again, (_again_line(result),) if result.again else ()),
        Section("How sure this is", (Lines(tuple(certificate_lines(result.certificate, result))),)),
        Section("What each is for", (Lines(tuple(front_lines(result))),) if several else ()),
    ]
    for why in result.explanations:
        sections += _reasons(result, why)
    if result.command:
        sections.append(Section("To predict the best plan in full", (Lines((quote(result.command),), mood="code"),)))
    job = result.jobs[best.frame]
    return Sheet(
        Sentence("Search: {job}", job=job.name),
        Sentence("Best on {machine}", machine=where) if len(result.jobs) > 1 else "",
        _figures(result),
        tuple(sections),
        (Sentence("{model} on {machine}", model=job.model.name, machine=where), quote(plan_words(result.fields(best)))),
        titled=True,
    )


def _figures(result: SearchResult) -> tuple[Figure, ...]:
    outcome, of = result.ranked[0].outcome, result.certificate
    figures = [
        Figure("plans.step_time_s", "best step", outcome.step_time_s, "s", mood="good"),
        Figure("plans.mfu", "MFU", outcome.mfu, "%", None, say.percent(outcome.mfu)),
        Figure("certificate.plans", "plans", float(of.plans)),
        Figure("certificate.predicted", "predicted", float(of.predicted)),
    ]
    if of.exact:
        figures.append(Figure("certificate.exact", "best of the space", Sentence("proven"), mood="good"))
    else:
        most = Sentence("at most {share}", share=say.percent(of.gap))
        figures.append(Figure("certificate.gap", "a plan may be better by", of.gap, "%", None, most))
    return tuple(figures)


def front_shown(result: SearchResult, top: int) -> list[int]:
    """Places of at most `top` plans of the front: the best in each objective first of all, then the others in order."""
    best = [best_in(result, number) for number in range(len(result.objectives))]
    return sorted(list(dict.fromkeys([*best, *range(result.front)]))[:top])


def _prices(result: SearchResult) -> list[Objective]:
    """Days and dollars of the run where the job states its tokens, else dollars and joules of a token: where all machines state
    them, nobody asked for them, and they leave room for the plan."""
    asked = {each.name for each in result.objectives}
    of_run = all(job.tokens is not None for job in result.jobs)
    room = () if len(asked) >= MANY else ("days", "bill") if of_run else ("dollars", "joules")
    return [OBJECTIVES[name] for name in room if name not in asked and not any(map(OBJECTIVES[name].needs, result.jobs))]


def _plans(result: SearchResult, places: Sequence[int], brief: bool) -> Table:
    """Plans with their numbers. `brief`: for the terminal, where later plans are said by what differs from the first."""
    prices, said = _prices(result), "plan" if len(result.jobs) == 1 else "machine and plan"
    asked = [(number, each) for number, each in enumerate(result.objectives) if each.name != "time"]
    columns = (
        Column("", True), Column("step", True),
        *(Column(Sentence(SHORT.get(each.name, each.unit)), True) for _, each in asked),
        *(Column(Sentence(SHORT[each.name]), True) for each in prices), Column("MFU", True), Column("memory", True),
        Column(Sentence("{what}; then what differs", what=Sentence(said)) if brief else said, wraps=True),
    )  # fmt: skip
    first = result.fields(result.ranked[places[0]])
    rows = []
    for number, place in enumerate(places):
        candidate = result.ranked[place]
        fields, outcome = result.fields(candidate), candidate.outcome
        words = quote(plan_words(fields))
        if brief and number:
            unsaid = {path: value_of(result.job_of(candidate), path) for path in first if path not in fields}
            differs = plan_words({**fields, **unsaid}, first)
            words = quote(differs) if differs else Sentence("the same")
        if label := result.labels[candidate.frame]:
            words = Sentence("{machine}: {plan}", machine=label, plan=words)
        priced = values_of(prices, result.job_of(candidate), outcome)
        rows.append(
            (
                Cell(str(place + 1), float(place + 1)), Cell(say.seconds(outcome.step_time_s), outcome.step_time_s),
                *(_number(each, candidate.values[index]) for index, each in asked),
                *(_number(each, value) for each, value in zip(prices, priced, strict=True)),
                Cell(say.percent(outcome.mfu), outcome.mfu), Cell(say.size(outcome.memory), outcome.memory), Cell(words),
            )
        )  # fmt: skip
    return Table("best" if brief else "plans", columns, tuple(rows), brief=brief, detail=not brief)


def _number(objective: Objective, value: float) -> Cell:
    return Cell(number_of(objective, value), objective.shown(value))


def _machines(result: SearchResult) -> Table:
    """The best plan of each machine, with what it costs beside the winner."""
    prices = _prices(result)
    columns = (
        Column("machine", wraps=True), Column("step", True), *(Column(Sentence(SHORT[each.name]), True) for each in prices),
        Column("more", True), Column("±", True), Column("plan", wraps=True),
    )  # fmt: skip
    best = min(candidate.values[0] for candidate in result.machines)
    rows = []
    for candidate in result.machines:
        priced = values_of(prices, result.job_of(candidate), candidate.outcome)
        more = candidate.values[0] / best - 1.0
        error = predict(result.job_of(candidate)).relative_error
        rows.append(
            (
                Cell(quote(result.where(candidate))),
                Cell(say.seconds(candidate.outcome.step_time_s), candidate.outcome.step_time_s),
                *(_number(each, value) for each, value in zip(prices, priced, strict=True)),
                Cell(say.percent(more) if more > 0.0 else "", more), Cell(f"{100 * error:.0f} %", error),
                Cell(quote(plan_words(result.fields(candidate)))),
            )
        )  # fmt: skip
    return Table("machines", columns, tuple(rows))


def _again_line(result: SearchResult) -> Table:
    """Step times over another network; the order is theirs."""
    columns = (Column("plan", True), Column(quote(result.network), True), Column("closed form", True))
    rows = []
    for place, seconds in result.again:
        closed = result.ranked[place].outcome.step_time_s
        rows.append(
            (Cell(str(place + 1), float(place + 1)), Cell(say.seconds(seconds), seconds), Cell(say.seconds(closed), closed))
        )
    return Table("again", columns, tuple(rows))


def _reasons(result: SearchResult, why: Explanation) -> list[Section]:
    several, sections = len(result.objectives) > 1, []
    of = Sentence(why.objective.name)
    reasons = Sentence("Why not another, by {objective}", objective=of) if several else Sentence("Why not another")
    decisions = Sentence("Which decision matters most")
    if several:
        decisions = Sentence("Which decision matters most, by {objective}", objective=of)
    if lines := reason_lines(result, why):
        sections.append(Section(reasons, (Lines(tuple(lines)),)))
    rows = []
    if len(result.machines) > 1:
        best, other = result.machines[:2]
        mine, theirs = (result.jobs[candidate.frame].cluster.id for candidate in (best, other))
        if best.values[0]:
            loss = other.values[0] / best.values[0] - 1.0
            rows.append((Cell(Sentence("machine")), Cell(quote(mine)), Cell(quote(theirs)), Cell(say.percent(loss), loss)))
    for decision in why.decisions:
        other_value = Sentence("none fits") if decision.other is None else quote(value_text(decision.other))
        loss = decision.loss if math.isfinite(decision.loss) else 1e9
        rows.append(
            (Cell(quote(decision.path)), Cell(quote(value_text(decision.value))), Cell(other_value), Cell(loss_of(decision), loss))
        )
    if rows:
        columns = (Column("decision"), Column("best"), Column("next best"), Column("costs", True))
        sections.append(Section(decisions, (Table(f"decisions-{why.objective.name}", columns, tuple(rows)),)))
    return sections


def _steps(result: SearchResult) -> tuple[Block, ...]:
    """One bar a plan, as long as its step, cut by what the time goes into."""
    shown = [(place, plan) for place, plan in enumerate(result.ranked[:MOST_STEPS]) if plan.outcome.breakdown]
    if not shown:
        return ()
    sums = [group_sums(plan.outcome.breakdown or {}) for _, plan in shown]
    groups = [group for group in StepGroup if any(group in of for of in sums)]
    stacks = tuple(
        Stack(str(place + 1), tuple(of.get(group, 0.0) for group in groups), said=quote(say.seconds(plan.outcome.step_time_s)))
        for (place, plan), of in zip(shown, sums, strict=True)
    )
    layers = tuple(Layer(str(group), COLOUR[group]) for group in groups)
    return (Stacks("where the time of each plan's step goes", "plan", layers, stacks, "s", (1.0, "s"), detail=True),)


def _machine_colours(result: SearchResult) -> dict[str, str]:
    """A colour for each cluster of the result."""
    clusters = dict.fromkeys(job.cluster.id for job in result.jobs)
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(clusters)}


def _front(result: SearchResult) -> Plot:
    """Predicted plans by the first two objectives, a colour and shape a machine; the undominated ones are filled."""
    first, second = result.objectives[:2]
    colours = _machine_colours(result)
    shapes = {name: SHAPES[place % len(SHAPES)] for place, name in enumerate(colours)}
    marks = []
    for number, plan in enumerate(result.ranked[:MOST_PLANS]):
        x, y, machine = first.shown(plan.values[0]), second.shown(plan.values[1]), result.jobs[plan.frame].cluster.id
        tip = f"{x:,.4g} {first.unit}, {y:,.4g} {second.unit}: {result.labels[plan.frame]} {plan_words(result.fields(plan))}"
        marks.append(Mark(x, y, quote(tip), colours[machine], shapes[machine], number >= result.front))
    legend = tuple((quote(name), colour) for name, colour in colours.items()) if len(colours) > 1 else ()
    label = Sentence("{up} against {across}", up=Sentence(second.unit), across=Sentence(first.unit))
    scales = Scale(Sentence(first.unit)), Scale(Sentence(second.unit))
    about = "Filled: no other plan beats it in every objective."
    return Plot(label, *scales, tuple(reversed(marks)), (), 320.0, legend, about, detail=True)


def _coordinates(result: SearchResult) -> tuple[Block, ...]:
    """One line a predicted plan over the fields in which plans differ, and its step time at the right."""
    shown = result.ranked[:MOST_LINES]
    fields = [dict(plan.change.fields) for plan in shown]
    paths = [path for path in fields[0] if len({str(table.get(path)) for table in fields}) > 1 and path not in _HIDDEN]
    if not paths:
        return (Lines(("All predicted plans have the same fields.",), detail=True),)
    values = {path: sorted({_order_key(table.get(path)) for table in fields}) for path in paths}
    steps = [plan.outcome.step_time_s for plan in shown]
    fastest, slowest = min(steps), max(steps)
    colours = _machine_colours(result)
    lines: list[list[Any]] = []
    for plan, table in zip(shown, fields, strict=True):
        heights = [(values[path].index(_order_key(table.get(path))) + 0.5) / len(values[path]) for path in paths]
        share = (plan.outcome.step_time_s - fastest) / (slowest - fastest) if slowest > fastest else 0.5
        tip = f"{say.seconds(plan.outcome.step_time_s)}: {plan_words(result.fields(plan))}"
        lines.append([[*heights, share], _line_colour(result, colours, plan), tip])
    ticks = [
        [number, (place + 0.5) / len(values[path]), value_text(value[1])]
        for number, path in enumerate(paths)
        for place, value in enumerate(values[path])
        if len(value_text(value[1])) < 14
    ]
    ends = [say.seconds(fastest), say.seconds(slowest if slowest > fastest else fastest + 0.5)]
    data = {"heads": [*map(short_name, paths), Sentence("step")], "lines": lines, "ticks": ticks, "ends": ends}
    data["legend"] = [list(pair) for pair in colours.items()] if len(colours) > 1 else []
    return (Picture("parallel", data, "Predicted plans over their fields", detail=True),)


def _line_colour(result: SearchResult, colours: dict[str, str], plan: Candidate) -> str:
    """That of the plan's machine, or of the text where there is one machine."""
    return colours[result.jobs[plan.frame].cluster.id] if len(colours) > 1 else "currentColor"


def _order_key(value: Any) -> tuple[str, Any]:
    """A value that can be sorted among others of its field."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:020.6f}", value
    return value_text(value) if value is not None else "", value
