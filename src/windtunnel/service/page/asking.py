"""A question that a section asks: its progress with a way to cancel it, its error or its answer, and its command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import WindtunnelError
from windtunnel.service.door import AnswerError, Asked, JobView
from windtunnel.service.page.context import PageContext, error_of
from windtunnel.service.page.frame import show_error
from windtunnel.service.page.state import anchor
from windtunnel.service.questions import ask_question
from windtunnel.service.store.queue import error_table

LOOK_SECONDS = 0.3
"""Between two looks at a job."""
NARROW, NARROW_LABELS = 440, 108
"""Pixels of a chart from which on labels of y are cut, and what they have then."""
PAGE = ("html",)
"""The artefact that an answer's own link shows: the page of its verb."""
_FORMAT = "v => v == null ? '–' : Number(v).toLocaleString('en-US', {maximumSignificantDigits: 7})"


@dataclass(frozen=True)
class Wanted:
    """A question. `verb`, `arguments`, `files` and `artefacts` as the door takes them."""

    verb: str
    arguments: Mapping[str, Any]
    files: Mapping[str, Any] = field(default_factory=dict)
    artefacts: Sequence[str] = ()


Draw = Callable[[dict[str, Any], Asked], Awaitable[None] | None]


class Asking:
    """Asks questions one after the other and shows what becomes of them; a newer one replaces an older one.

    It builds itself where it is made: a line of progress, and below it the answer, which `draw` fills.
    """

    def __init__(self, context: PageContext, draw: Draw, name: str) -> None:
        self._context, self._draw, self._turn = context, draw, 0
        self._job: JobView | None = None
        self.error: Mapping[str, Any] | None = None
        """Of the last question."""
        with ui.element("div").classes("wt-progress").props('role="status"') as self._line:
            ui.spinner(size="18px")
            self._doing = ui.label().classes("wt-soft wt-number")
            self._bar = ui.linear_progress(0, show_value=False).props("rounded instant-feedback").classes("wt-bar")
            self._bar.props(f'aria-label="{context.say("frame.running")}"')
            ui.button(context.say("frame.cancel"), on_click=self._cancel, color=None).props("flat dense no-caps")
        self._line.set_visibility(False)
        self.result = ui.element("div").classes("wt-result").props(f'id="{name}"')

    async def run(
        self, wanted: Wanted | Callable[[], Wanted], draw: Draw | None = None,
        ignores: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> Asked | None:  # fmt: skip
        """Asks, shows progress, and draws the answer (with `draw`, where that is given); the error stands in its place. None where
        there is no answer. The answer before is dimmed meanwhile. `ignores`: errors after which somebody asks again."""
        self._turn += 1
        turn = self._turn
        self.error = None
        self.result.classes("wt-stale")
        try:
            asked = await self._answer(wanted() if callable(wanted) else wanted, turn)
            if asked is None or turn != self._turn or self._is_closed():
                return None
            self.result.clear()
            with self.result:
                drawn = (draw or self._draw)(json.loads(asked.bytes or b"{}"), asked)
                if drawn is not None:
                    await drawn
            return asked
        except WindtunnelError as error:
            if turn == self._turn and not self._is_closed():
                self.error = error_of(error)
                if ignores is None or not ignores(self.error):
                    self.result.clear()
                    with self.result:
                        show_error(self._context, self.error)
            return None
        finally:
            if turn == self._turn and not self._is_closed():
                self._line.set_visibility(False)
                self.result.classes(remove="wt-stale")

    def _is_closed(self) -> bool:
        """Whether the tab is gone, and with it whatever could be shown; its job goes on."""
        return self.result.is_deleted

    async def _answer(self, wanted: Wanted, turn: int) -> Asked | None:
        if not self._context.asker.may_write:
            return await self._kept_answer(wanted)
        job = await self._context.submit(wanted.verb, wanted.arguments, wanted.files, wanted.artefacts)
        while not job.has_ended and turn == self._turn and not self._is_closed():
            self._show(job)
            await asyncio.sleep(LOOK_SECONDS)
            found = await self._context.door.job(job.id)
            if found is None:
                break
            job = found
        if turn != self._turn or self._is_closed():
            return None
        asked = await self._context.door.answer(job.key)
        if asked is None:
            raise AnswerError(job.error or error_table("Cancelled", self._context.say("frame.cancelled")), job.id)
        return asked

    async def _kept_answer(self, wanted: Wanted) -> Asked:
        """The answer for somebody who may read alone."""
        question = await asyncio.to_thread(ask_question, wanted.verb, wanted.arguments, wanted.files, wanted.artefacts)
        asked = await self._context.door.answer(question.key)
        if asked is None:
            raise AnswerError(error_table("WrongRole", self._context.say("frame.read_only")), "")
        return asked

    def _show(self, job: JobView) -> None:
        self._job = job
        self._line.set_visibility(True)
        share = "" if job.progress is None else f" {100 * job.progress:3.0f} %"
        self._doing.set_text(f"{job.doing or self._context.say(f'frame.{job.state}')}{share}")
        self._bar.set_value(job.progress or 0.0)
        self._bar.props(remove="indeterminate") if job.progress is not None else self._bar.props("indeterminate")

    async def _cancel(self) -> None:
        if self._job is not None:
            await self._context.cancel(self._job.id)


def draw_chart(options: Mapping[str, Any], name: str, tall: int = 320, pick: Callable[[Any], Any] | None = None) -> ui.echart:
    """A chart. `name`: what it shows, for who cannot see it; `pick`: called with the point that is clicked."""
    chart = (
        ui.echart(_for_narrow(dict(options)), on_point_click=pick, renderer="svg").classes("wt-chart").style(f"height: {tall}px")
    )
    chart.props(f'role="img" aria-label="{_attribute(name)}"')
    return chart


def _for_narrow(options: dict[str, Any]) -> dict[str, Any]:
    """The same options; in a narrow window, long labels of y leave room for the bars."""
    if options.get("grid", {}).get("left", 0) <= NARROW_LABELS:
        return options
    labels = {"axisLabel": {"width": NARROW_LABELS - 14, "overflow": "truncate"}}
    return {
        "baseOption": options,
        "media": [
            {"query": {"maxWidth": NARROW}, "option": {"grid": {"left": NARROW_LABELS}, "yAxis": labels}},
            {"option": {"grid": {"left": options["grid"]["left"]}, "yAxis": {"axisLabel": options["yAxis"]["axisLabel"]}}},
        ],
    }


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def show_command(context: PageContext, command: str, key: str = "") -> None:
    """The command line that gives the same answer, with a button that copies it, and the link of the answer."""
    with ui.element("div").classes("wt-commandline"):
        code = ui.label(command).classes("wt-code").props(f'tabindex="0" role="textbox" aria-readonly="true" '
                                                         f'aria-label="{context.say("choose.command")}"')  # fmt: skip
        ui.button(icon="content_copy", on_click=lambda: ui.clipboard.write(code.text), color=None).props(
            f'flat dense round aria-label="{context.say("choose.copy")}"'
        )
        if key:
            anchor(context.say("choose.open_answer"), f"/ui/answer?key={key}").classes("wt-small")


def show_numbers(facts: Sequence[tuple[str, str]]) -> None:
    """Numbers side by side, each with what it is."""
    with ui.element("dl").classes("wt-facts"):
        for name, value in facts:
            with ui.element("div"):
                with ui.element("dt"):
                    ui.label(name)
                with ui.element("dd").classes("wt-number"):
                    ui.label(value)


def show_table(columns: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, Any]], name: str, pick: Any = None) -> ui.table:
    """A table that one sorts by its heads. `columns`: key and head of each; numbers are at the right."""
    numbers = {key for key, _ in columns if any(isinstance(row.get(key), (int, float)) for row in rows)}
    heads = [{"name": key, "label": head, "field": key, "sortable": True, "align": "right" if key in numbers else "left",
              **({":format": _FORMAT} if key in numbers else {})}
             for key, head in columns]  # fmt: skip
    numbered = [{"id": at, **row} for at, row in enumerate(rows)]
    table = ui.table(columns=heads, rows=numbered, row_key="id", pagination={"rowsPerPage": 10} if len(rows) > 10 else None)
    table.props(f'flat dense wrap-cells aria-label="{_attribute(name)}"').classes("wt-table wt-number")
    if pick is not None:
        table.classes("wt-pick").on("rowClick", lambda event: pick(event.args[1]["id"]))
    return table
