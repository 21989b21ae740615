"""The section `run`: watched runs of `fleet` in the places that the operator named, as they are now:
how each is, its heat map, where its steps go, its neighbours, incidents and checkpoints, and the run beside what its job should
take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from windtunnel.base.errors import WindtunnelError
from windtunnel.service.page.asking import draw_chart, show_numbers, show_table
from windtunnel.service.page.charts import PARTS, heat_map, incident_line, pace_line, step_parts
from windtunnel.service.page.context import PageContext, error_of
from windtunnel.service.page.fields import Form
from windtunnel.service.page.frame import card, heading, show_error
from windtunnel.service.page.sections.trust_parts import show_comparison, use_measured_looks
from windtunnel.service.page.studies import FIRST_JOB, job_line
from windtunnel.service.page.watched.places import Found, RunPlace, list_runs, looks_of
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


MOST_ROWS = 100


def show_story(context: PageContext, found: Mapping[str, Any]) -> None:
    """Who is whose neighbour, what happened to the run, and which of its states were kept."""
    watched = found.get("watched") or {}
    if watched.get("mesh") and watched.get("mesh_ranks"):
        with card(context.say("run.neighbours"), context.say("run.neighbours_about"), "neighbours"):
            _neighbours(context, watched)
    incidents = found.get("incidents")
    if incidents:
        with card(context.say("run.incidents"), "", "incidents"):
            _incidents(context, incidents)
    saves = found.get("saves")
    if saves:
        with card(context.say("run.checkpoints"), "", "checkpoints"):
            _saves(context, saves)


def _neighbours(context: PageContext, watched: Mapping[str, Any]) -> None:
    """Groups with what flows in them, who waits for whom, and of each rank its place and who shares an axis with it."""
    waits = {one["rank"]: one for one in watched.get("waits") or ()}
    rows = [
        {"rank": rank, "place": place, **others,
         "waits": "" if rank not in waits else f"{waits[rank]['for']}: {say.seconds(waits[rank]['seconds'])}"}
        for rank, place, others in places_of(watched["mesh"], watched["mesh_ranks"])[:MOST_ROWS]
    ]  # fmt: skip
    axes = [str(axis) for axis in watched["mesh"]["axes"]]
    columns = [("rank", context.say("run.rank")), ("place", context.say("run.place")),
               *((f"on_{axis}", context.say("run.same", axis=axis)) for axis in axes),
               ("waits", context.say("run.waits"))]  # fmt: skip
    show_table(columns, rows, context.say("run.neighbours"))
    flows = watched.get("flows") or ()
    if flows:
        cells = [{"name": one["name"], "ranks": _few(one["ranks"]), "calls": one["calls"], "bytes": say.size(one["bytes"]),
                  "ms": one["ms"]} for one in flows[:MOST_ROWS]]  # fmt: skip
        ui.html(f"<h3>{context.say('run.groups')}</h3>", sanitize=False)
        show_table([(key, context.say(f"run.group_{key}")) for key in ("name", "ranks", "calls", "bytes", "ms")], cells,
                   context.say("run.groups"))  # fmt: skip


def places_of(mesh: Mapping[str, Any], ranks: Sequence[int]) -> list[tuple[int, str, dict[str, str]]]:
    """Of each rank its place in the mesh in words, and `on_AXIS`: the ranks that differ from it in that axis alone."""
    axes, places = list(mesh["axes"]), [tuple(place) for place in mesh["coordinates"]]
    lines: list[dict[tuple[int, ...], list[int]]] = [{} for _ in axes]
    for rank, place in zip(ranks, places, strict=True):
        for at in range(len(axes)):
            lines[at].setdefault(place[:at] + place[at + 1 :], []).append(rank)
    found = []
    for rank, place in zip(ranks, places, strict=True):
        words = ", ".join(f"{axis} {one}" for axis, one in zip(axes, place, strict=True))
        others = {
            f"on_{axis}": _few([one for one in lines[at][place[:at] + place[at + 1 :]] if one != rank])
            for at, axis in enumerate(axes)
        }
        found.append((rank, words, others))
    return found


def _few(ranks: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:most])
    return f"{shown} … ({len(ranks)})" if len(ranks) > most else shown


def _incidents(context: PageContext, incidents: Mapping[str, Any]) -> None:
    if error := incidents.get("error"):
        show_error(context, error)
        return
    wall, ettr, listed = incidents.get("wall_s"), incidents.get("ettr"), incidents["incidents"]
    show_numbers([
        (context.say("run.ettr"), "–" if ettr is None else say.percent(ettr)),
        (context.say("run.wall"), "–" if wall is None else say.seconds(wall)),
        (context.say("run.count_incidents"), f"{len(listed):,}"),
        (context.say("run.down"), say.seconds(sum(one["down_s"] or 0.0 for one in listed))),
    ])  # fmt: skip
    if wall and listed:
        names = {"x": context.say("run.hours"), "y": context.say("run.down_s"), "down": context.say("run.down")}
        draw_chart(incident_line(wall, listed, names), context.say("run.incidents"), 220)
    rows = [{**{key: one.get(key) for key in ("number", "what", "node", "action", "outcome", "evidence")},
             "down": say.seconds(one["down_s"] or 0.0)} for one in reversed(listed)]  # fmt: skip
    heads = ("number", "what", "node", "action", "down", "outcome", "evidence")
    show_table([(key, context.say(f"run.{key}")) for key in heads], rows, context.say("run.incidents"))


def _saves(context: PageContext, saves: Any) -> None:
    if isinstance(saves, Mapping):
        show_error(context, saves["error"])
        return
    kept = [one for one in saves if one["committed"] and one["committed"] >= one["saved"] and not one["failed"]]
    show_numbers([
        (context.say("run.newest_save"), f"{kept[-1]['step']:,}" if kept else "–"),
        (context.say("run.saves"), f"{len(saves):,}"),
        (context.say("run.failed_saves"), f"{sum(bool(one['failed']) for one in saves):,}"),
        (context.say("run.held_up"), say.seconds(max(one["blocked_s"] for one in saves))),
    ])  # fmt: skip
    rows = [
        {"step": one["step"], "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one["unix"])),
         "blocked": say.seconds(one["blocked_s"]),
         "state": context.say("run.save_failed" if one["failed"] else "run.save_kept" if one in kept else "run.save_open"),
         "why": one["why"]}
        for one in reversed(saves)
    ]  # fmt: skip
    show_table([(key, context.say(f"run.save_{key}")) for key in ("step", "when", "blocked", "state", "why")], rows,
               context.say("run.checkpoints"))  # fmt: skip


def show_compared(context: PageContext, compared: Any) -> None:
    """The run beside its job: section by section, and the causes of what differs."""
    if compared is None:
        ui.label(context.say("run.not_compared")).classes("wt-soft")
        return
    if error := compared.get("error"):
        show_error(context, error)
        return
    show_comparison(context, compared)
    rows = [
        {"name": one["name"], "stage": one["stage"],
         "expected": f"{say.seconds(one['expected'])} ± {say.percent(one['error'] or 0.0)}",
         "median": say.seconds(one["median"]), "spread": f"{say.seconds(one['low'])} – {say.seconds(one['high'])}",
         "leaves": context.say("run.yes") if one["leaves"] else ""}
        for one in compared.get("sections", ()) if one.get("expected") is not None and one.get("median") is not None
    ]  # fmt: skip
    heads = ("name", "stage", "expected", "median", "spread", "leaves")
    show_table([(key, context.say(f"run.section_{key}")) for key in heads], rows, context.say("run.compared"))


EVERY = 5.0
"""Seconds between two looks of an open page."""
PREFIX = "r_"
FIRST_LAYER = "own work"


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_measured_looks()
    heading(context.say("run.title"), context.say("run.about"))
    if not context.runs:
        with card(context.say("run.nowhere"), "", "no-runs"):
            ui.label(context.say("run.nowhere_about")).classes("wt-soft")
            ui.label("windtunnel serve --runs out/fleet").classes("wt-code")
        return
    RunView(context)


class RunView:
    """One run, looked at again and again while the page is open. A part is drawn anew where it has changed."""

    def __init__(self, context: PageContext) -> None:
        self.context, self.form = context, Form(context, PREFIX)
        self.places: list[RunPlace] = []
        self.found: Found = {}
        self._drawn: dict[str, Any] = {}
        self._busy = False
        with card(context.say("run.pick"), "", "pick"):
            with ui.element("div").classes("wt-form") as self.line:
                self.choice = self.form.choice("run", context.say("run.run"), {"": context.say("run.newest")}, "")
                layers = {name: context.say(word) for name, word in LAYERS.items()}
                self.form.choice("layer", context.say("run.layer"), layers, FIRST_LAYER)
                self.beside = ui.switch(context.say("run.beside"), value=bool(self.form.value("beside")))
                self.beside.on_value_change(self._switch)
            job_line(context)
            self.told = ui.label("").classes("wt-soft wt-number").props('aria-live="polite" id="state"')
        self.parts = {name: ui.element("div") for name in ("state", "heat", "step", "story", "compared")}
        context.listen(self.look)
        ui.timer(0.0, self.look, once=True)
        ui.timer(EVERY, self.look)

    async def _switch(self) -> None:
        await self.form.keep("beside", "1" if self.beside.value else "")

    def place(self) -> RunPlace | None:
        """The run that was picked, by its name; else the newest."""
        name = self.form.value("run")
        return next((one for one in self.places if one.name == name), self.places[0] if self.places and not name else None)

    async def look(self) -> None:
        """Looks at the run, and draws what has changed."""
        if self._busy:
            return
        self._busy = True
        try:
            await self._look()
        finally:
            self._busy = False

    async def _look(self) -> None:
        context = self.context
        self.places = await asyncio.to_thread(list_runs, context.runs)
        named = self.form.value("run")
        known = {one.name: one.name for one in self.places}
        self.choice.set_options({"": context.say("run.newest"), **({named: named} if named else {}), **known})
        place = self.place()
        if place is None:
            self.told.set_text(context.say("run.unknown", name=named) if named else context.say("run.none"))
            return
        if not self._drawn:
            self.told.set_text(context.say("run.looking", name=place.name))
        question = context.question
        job, changes = (question.job, question.changes) if self.form.value("beside") else ("", {})
        if self.form.value("beside") and not job:
            job = FIRST_JOB
        try:
            self.found = await looks_of(context.door).look(place, job, changes)
        except WindtunnelError as error:
            self.found = {"error": error_of(error)}
        self._draw(place)

    def _draw(self, place: RunPlace) -> None:
        watched = self.found.get("watched") or {}
        self.told.set_text(state_text(self.context, place, watched, self.found))
        layer = self.form.value("layer")
        layer = layer if layer in LAYERS else FIRST_LAYER
        facts = {key: watched.get(key) for key in ("findings", "hang", "waits", "alarms", "error", "notes", "steps")}
        self._part("state", facts, lambda: show_state(self.context, watched))
        self._part("heat", [layer, watched.get("heat")], lambda: show_heat(self.context, watched, layer))
        self._part("step", [watched.get("ranks"), watched.get("pace")], lambda: show_step(self.context, watched))
        story = [self.found.get("incidents"), self.found.get("saves"), watched.get("flows"), watched.get("mesh")]
        self._part("story", story, lambda: show_story(self.context, self.found))
        beside = [bool(self.form.value("beside")), self.found.get("compared"), self.found.get("error")]
        self._part("compared", beside, self._draw_comparison)

    def _part(self, name: str, facts: Any, draw: Any) -> None:
        """Draws a part unless it stands as these facts have it."""
        if self._drawn.get(name) == facts:
            return
        self._drawn[name] = facts
        self.parts[name].clear()
        with self.parts[name]:
            draw()

    def _draw_comparison(self) -> None:
        if error := self.found.get("error"):
            show_error(self.context, error)
        if not self.form.value("beside"):
            return
        with card(self.context.say("run.compared"), self.context.say("run.compared_about"), "compared"):
            show_compared(self.context, self.found.get("compared"))
