"""The section `run`: watched runs of `fleet` in the places that the operator named, as they are now."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import ui

from windtunnel.base.errors import WindtunnelError
from windtunnel.service.page.context import PageContext, error_of
from windtunnel.service.page.fields import Form
from windtunnel.service.page.frame import card, heading, show_error
from windtunnel.service.page.sections import run_parts, run_story
from windtunnel.service.page.sections.trust_parts import use_measured_looks
from windtunnel.service.page.studies import FIRST_JOB, job_line
from windtunnel.service.page.watched.looks import Found, looks_of
from windtunnel.service.page.watched.places import RunPlace, list_runs

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
                layers = {name: context.say(word) for name, word in run_parts.LAYERS.items()}
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
        self.told.set_text(run_parts.state_text(self.context, place, watched, self.found))
        layer = self.form.value("layer")
        layer = layer if layer in run_parts.LAYERS else FIRST_LAYER
        facts = {key: watched.get(key) for key in ("findings", "hang", "waits", "alarms", "error", "notes", "steps")}
        self._part("state", facts, lambda: run_parts.show_state(self.context, watched))
        self._part("heat", [layer, watched.get("heat")], lambda: run_parts.show_heat(self.context, watched, layer))
        self._part("step", [watched.get("ranks"), watched.get("pace")], lambda: run_parts.show_step(self.context, watched))
        story = [self.found.get("incidents"), self.found.get("saves"), watched.get("flows"), watched.get("mesh")]
        self._part("story", story, lambda: run_story.show_story(self.context, self.found))
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
            run_story.show_compared(self.context, self.found.get("compared"))
