"""Parts of the section `run`: how the run is, its heat map, and where its steps go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.service.page.asking import draw_chart, show_numbers, show_table
from windtunnel.service.page.charts.heat import PARTS, heat_map, pace_line, step_parts
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.frame import card, show_error
from windtunnel.service.page.watched.places import RunPlace
from windtunnel.sheet import numbers as say

LAYERS = {
    "own work": "run.layer_own_work", "forward": "run.layer_forward", "backward": "run.layer_backward",
    "optimizer": "run.layer_optimizer", "data": "run.layer_data", "gaps": "run.layer_gaps", "outside": "run.layer_outside",
    "no core": "run.layer_no_core",
}  # fmt: skip
"""Layers of the heat map, as `fleet show --html` has them -> what they are called."""
MOST_LISTED = 12


def state_text(context: PageContext, place: RunPlace, watched: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """One line: which run, whether it goes on, and when this was."""
    clock = time.strftime("%H:%M:%S")
    if watched.get("error") or found.get("error"):
        return context.say("run.state_bare", name=place.name, clock=clock)
    state = context.say("run.ended" if watched.get("ended") else "run.stopped" if watched.get("hang") else "run.going")
    return context.say("run.state", name=place.name, state=state, clock=clock)


def show_state(context: PageContext, watched: Mapping[str, Any]) -> None:
    """Size and pace of the run, why it does not move, and its findings."""
    with card(context.say("run.findings"), "", "findings"):
        if error := watched.get("error"):
            show_error(context, error)
            return
        step = watched.get("step_time_s")
        show_numbers([
            (context.say("run.ranks"), f"{len(watched.get('mesh_ranks') or ()):,} / {watched.get('world', 0):,}"),
            (context.say("run.steps"), f"{watched.get('steps', 0):,}"),
            (context.say("run.step_time"), "–" if step is None else say.seconds(step)),
            (context.say("run.count"), f"{len(watched.get('findings') or ()):,}"),
        ])  # fmt: skip
        if hang := watched.get("hang"):
            show_error(context, {"message": context.say("run.hang", text=hang["text"])})
        findings = watched.get("findings") or ()
        if not findings:
            ui.label(context.say("run.nothing")).classes("wt-soft")
        for one in findings[:MOST_LISTED]:
            with ui.element("div").classes("wt-finding"):
                ui.label(str(one["text"])).classes("wt-strong")
                for text in (*one.get("evidence", ()), *(context.say("run.not", text=text) for text in one.get("excluded", ()))):
                    ui.label(str(text)).classes("wt-soft")
        _alarms(context, watched)
        for note in watched.get("notes") or ():
            ui.label(str(note)).classes("wt-soft wt-small-text")


def _alarms(context: PageContext, watched: Mapping[str, Any]) -> None:
    alarms = watched.get("alarms") or ()
    if alarms:
        columns = [(key, context.say(f"run.{key}")) for key in ("verdict", "text")]
        rows = [{key: str(one.get(key, "")) for key in ("verdict", "text")} for one in reversed(alarms)]
        ui.html(f"<h3>{context.say('run.alarms')}</h3>", sanitize=False)
        show_table(columns, rows[:MOST_LISTED], context.say("run.alarms"))


def show_heat(context: PageContext, watched: Mapping[str, Any], layer: str) -> None:
    """Ranks by steps."""
    heat = watched.get("heat")
    if not heat or not heat["lines"]:
        return
    about = context.say("run.heat_about", layer=context.say(LAYERS[layer]))
    with card(context.say("run.heat"), about, "heat"):
        if layer not in heat["layers"]:
            ui.label(context.say("run.no_layer")).classes("wt-soft")
            return
        if heat["per_line"] > 1:
            ui.label(context.say("run.per_line", n=heat["per_line"])).classes("wt-soft")
        names = {"x": context.say("run.step"), "of": context.say("run.rank"), "shorter": context.say("run.shorter"),
                 "longer": context.say("run.longer")}  # fmt: skip
        tall = 110 + max(160, min(620, 20 * len(heat["lines"])))
        draw_chart(heat_map(heat, layer, watched["bins"], names), context.say("run.heat"), tall)


def show_step(context: PageContext, watched: Mapping[str, Any]) -> None:
    """The pace of the run, and where a step of each rank goes."""
    ranks = watched.get("ranks") or ()
    if not ranks:
        return
    with card(context.say("run.timeline"), context.say("run.timeline_about"), "timeline"), ui.element("div").classes("wt-two"):
        names = {"x": context.say("run.step"), "y": context.say("run.seconds")}
        draw_chart(pace_line(watched["bins"], watched["pace"], names), context.say("run.timeline"), 300)
        parts = {part: context.say(f"run.part_{part}") for part in PARTS}
        options = step_parts(ranks, {**parts, "x": context.say("run.milliseconds"), "of": context.say("run.rank")})
        draw_chart(options, context.say("run.parts"), 120 + 24 * min(len(ranks), 24))
