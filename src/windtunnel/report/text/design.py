"""Designs in a terminal: the best ones with their plans, what each field is worth, and what could not be judged."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.report.words.design import PLAN_FIELDS, tried_lines
from windtunnel.report.words.search import number_of, plan_words
from windtunnel.search.design import Design, DesignResult
from windtunnel.sheet import numbers as say


def render(result: DesignResult, top: int = 10) -> RenderableType:
    """The whole report."""
    several = len(result.objectives) > 1
    shown = result.designs[: min(top, result.front)] if several else result.designs[:top]
    title = "Designs that no other tried design beats in every objective" if several else "Best designs that were tried"
    parts: list[RenderableType] = [Text(title, style="bold"), Padding(_table(result, shown), (0, 0, 0, 2))]
    if result.importance:
        parts += [
            Text(f"What sets designs apart that are good in {result.objectives[0].name}", style="bold"),
            Padding(_importance(result), (0, 0, 0, 2)),
        ]
    parts += [Text(line) for line in tried_lines(result)]
    return Group(*parts)


def _table(result: DesignResult, shown: tuple[Design, ...]) -> RenderableType:
    columns: list[tuple[str, Any]] = [("", "right")]
    columns += [(axis.path.rsplit(".", 1)[1], "right") for axis in result.axes]
    columns += [(each.unit, "right") for each in result.objectives]
    made = any(one.silicon is not None for one in shown)
    columns += [("mm2", "right"), ("$ to make", "right")] if made else []
    table = listing(*columns, ("plan", "left"), wraps=("plan",))
    table.columns[-1].min_width = 24
    for number, one in enumerate(shown):
        values = [number_of(each, value) for each, value in zip(result.objectives, one.values, strict=True)]
        plan = {path: value for path, value in one.plan.change.fields if path in PLAN_FIELDS}
        fields = [say.clean(one.fields[axis.path]) for axis in result.axes]
        if made:
            values += ["-", "-"] if one.silicon is None else [f"{one.silicon.area:,.0f}", f"{one.silicon.dollars:,.0f}"]
        table.add_row(str(number + 1), *fields, *values, plan_words(plan) or "the job's own")
    return table


def _importance(result: DesignResult) -> RenderableType:
    table = listing(("field", "left"), ("share", "right"))
    for path, share in sorted(result.importance.items(), key=lambda one: -one[1]):
        table.add_row(path, say.percent(share))
    return table
