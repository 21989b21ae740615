"""What compose and answer both show of a prediction: figures with their ±, bars of the step and of memory."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from windtunnel.service.page.charts.bars import draw_parts, draw_stripe
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.figures import Answer, Piece, headline, memory_of, parts_of

MOST_STAGES = 16
"""Stages whose memory is drawn; the fullest are among them."""


def show_figures(context: PageContext, answer: Answer) -> None:
    """The headline as boxes."""
    with ui.element("div").classes("wt-figures"):
        for figure in headline(answer):
            with ui.element("div").classes(f"wt-figure {figure.mood}"):
                ui.label(context.say(figure.key)).classes("wt-soft")
                ui.label(figure.value).classes("wt-value wt-number")
                ui.label(figure.error or "\u00a0").classes("wt-soft wt-number")


def show_step(context: PageContext, answer: Answer) -> None:
    """Where the time of a step goes."""
    pieces = _name_parts(context, parts_of(answer))
    ui.html(draw_stripe(pieces, context.say("answer.breakdown")) + draw_parts(pieces), sanitize=False)


def show_memory(context: PageContext, answer: Answer) -> None:
    """The memory of each stage's fullest GPU, as a share of what it has."""
    stages = sorted(answer.get("memory") or [], key=lambda one: -one["total"] / one["capacity"])[:MOST_STAGES]
    for stage in sorted(stages, key=lambda one: int(one["stage"])):
        pieces = _name_parts(context, memory_of(stage))
        name = context.say("answer.stage", stage=stage["stage"], share=f"{100 * stage['total'] / stage['capacity']:.0f}")
        ui.label(name).classes("wt-soft wt-number")
        ui.html(draw_stripe(pieces, name), sanitize=False)
    if stages:
        ui.html(draw_parts(_name_parts(context, memory_of(stages[0]))), sanitize=False)


def _name_parts(context: PageContext, pieces: Sequence[Piece]) -> list[Piece]:
    """The same parts with their names in the reader's language, where it has them."""
    return [piece._replace(label=context.language.find(f"parts.{piece.label}") or piece.label) for piece in pieces]
