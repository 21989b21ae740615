"""Parts of the section `trust` that published rows and a reader's own share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nicegui import ui

from windtunnel.reality.page.labels import NAMES, UNITS
from windtunnel.service.page import published
from windtunnel.service.page.asking import show_numbers, show_table
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.published import PublishedRow
from windtunnel.service.page.state import Question, anchor
from windtunnel.service.page.studies import use_looks
from windtunnel.sheet import numbers as say

LOOKS = Path(__file__).parent.parent / "measured.css"


def use_measured_looks() -> None:
    """Adds the looks of the sections of measurements to the page that is built."""
    use_looks()
    ui.add_css(LOOKS.read_text(encoding="utf-8"))


def show_accuracy(context: PageContext, rows: Sequence[PublishedRow]) -> None:
    """The errors of rows together, in numbers."""
    found = published.accuracy_of(rows)
    if found is None:
        return
    show_numbers([
        (context.say("trust.count"), f"{found.count:,}"),
        (context.say("trust.typical"), f"{found.typical:.1f} %"),
        (context.say("trust.bias"), f"{found.bias:+.1f} %"),
        (context.say("trust.near"), say.percent(found.near)),
        (context.say("trust.far"), say.percent(found.far)),
        (context.say("trust.most"), f"{found.most:.1f} %"),
    ])  # fmt: skip


def show_row(context: PageContext, row: PublishedRow, job: tuple[str | dict[str, Any], dict[str, str]] | None) -> None:
    """One row: what was measured and predicted, and a link that opens its job, which is as of `published.job_of_row`."""
    unit = UNITS.get(row.quantity, "")
    ui.label(f"{row.id} · {row.job}").classes("wt-strong")
    claimed = "" if row.claimed is None else f" ± {row.claimed:.1f} %"
    show_numbers([
        (context.say("trust.measured"), f"{row.measured:.4g} {unit}"),
        (context.say("trust.predicted"), f"{row.predicted:.4g} {unit}{claimed}"),
        (context.say("trust.error"), f"{row.error:+.1f} %"),
        (context.say("trust.foresight"), context.say("trust.fitted" if row.fitted else "trust.test")),
    ])  # fmt: skip
    source = published.published_facts().get(row.id, {}).get("source", "")
    if source:
        ui.label(context.say("trust.source", source=source)).classes("wt-soft")
    if job is None:
        ui.label(context.say("trust.no_job")).classes("wt-soft")
        return
    view = replace(context.view, question=Question(job[0], job[1]), more={})
    anchor(context.say("trust.open_job"), context.link("compose", view))


def tell_row(row: PublishedRow) -> str:
    """What is said of a point."""
    return f"{row.id}, {row.family}: {row.error:+.1f} % ({row.predicted:.4g} / {row.measured:.4g} {UNITS.get(row.quantity, '')})"


def axis_names(context: PageContext, quantity: str) -> dict[str, str]:
    """Names of the axes, lines and leftover points of a quantity's chart."""
    unit, name = UNITS.get(quantity, "1"), NAMES.get(quantity, quantity)
    return {
        "x": context.say("trust.axis_measured", what=name, unit=unit),
        "y": context.say("trust.axis_predicted", what=name, unit=unit),
        **{key: context.say(f"trust.{key}") for key in ("equal", "near", "far", "others")},
    }  # fmt: skip


def show_comparison(context: PageContext, report: Mapping[str, Any]) -> None:
    """A measured step beside the expected one, and what the difference is made of: of `compare` and of `fleet compare`."""
    facts = [(context.say(f"trust.{key}"), report.get(name)) for key, name in
             (("measured", "measured_step_s"), ("predicted", "expected_step_s"), ("explained", "explained_step_s"))]  # fmt: skip
    show_numbers([(name, say.seconds(value)) for name, value in facts if isinstance(value, (int, float))])
    causes = [one for one in report.get("causes", ()) if isinstance(one, Mapping)]
    if not causes:
        ui.label(context.say("trust.no_cause")).classes("wt-soft")
        return
    rows = [
        {"cause": one["words"], "seconds": _signed_seconds(one.get("seconds")), "test": one.get("test") or ""} for one in causes
    ]
    heads = {"cause": "trust.cause", "seconds": "trust.seconds", "test": "trust.what_to_try"}
    show_table([(key, context.say(word)) for key, word in heads.items()], rows, context.say("trust.cause"))


def _signed_seconds(seconds: Any) -> str:
    return "" if not isinstance(seconds, (int, float)) else f"{'-' if seconds < 0 else '+'}{say.seconds(abs(seconds))}"
