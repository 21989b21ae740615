"""The section `trust`: predicted against measured of every published row, the support matrix, and a reader's own measurements.

A reader's own measurements, uploaded and scored: a table of measured steps, or the traces and logs of a run beside its job.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from nicegui import events, ui

from windtunnel.base.files import without_gz
from windtunnel.reality.options import ValidateOptions
from windtunnel.reality.page.labels import NAMES, UNITS
from windtunnel.service.door import Asked
from windtunnel.service.page import published
from windtunnel.service.page.asking import Asking, Wanted, draw_chart, show_command, show_table
from windtunnel.service.page.charts import accuracy_points, support_matrix
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, choose_files
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.published import FILTERS, PublishedRow
from windtunnel.service.page.sections.trust_parts import axis_names, show_accuracy, show_row, tell_row, use_measured_looks
from windtunnel.service.page.studies import SHEET, job_arguments, show_sheet, use_sheets
from windtunnel.service.questions import ask_question

STEP_TIME = "step_time_s"
PREFIX = "t_"
"""What fields of this section begin with in the address."""
MOST_ROWS = 400
"""Rows of the table: those with the largest errors."""
_KEPT_REPORTS = 4


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_measured_looks()
    heading(context.say("trust.title"), context.say("trust.about"))
    with card(context.say("trust.published"), context.say("trust.published_about"), "published"):
        PublishedView(context)
    with card(context.say("trust.own"), context.say("trust.own_about"), "own"):
        own_measurements(context)


@lru_cache(maxsize=_KEPT_REPORTS)
def _rows_of(key: str, data: bytes) -> tuple[PublishedRow, ...]:
    """The rows of an answer, once for all who have the page open."""
    import json

    return tuple(published.scored_rows(json.loads(data), published.published_facts()))


class PublishedView:
    """Every published row that was scored: filters, points, the support matrix, and one row that was picked."""

    def __init__(self, context: PageContext) -> None:
        self.context, self.form = context, Form(context, PREFIX, ValidateOptions)
        self.rows: tuple[PublishedRow, ...] = ()
        self._shown: dict[str, PublishedRow] = {}
        with ui.element("div").classes("wt-form"):
            self.only = self.form.option(
                "family", context.say("trust.only"), name="only", titles={"": context.say("trust.every_family")}
            )
        with ui.element("div").classes("wt-buttons") as self.start:
            ui.button(context.say("trust.score"), on_click=self.score, color=None).classes("wt-go").props("no-caps unelevated")
            ui.label(context.say("trust.score_about")).classes("wt-soft")
        self.start.set_visibility(False)
        self.asking = Asking(context, self.draw, "scored")
        self.drawn: ui.element | None = None
        self.asked = self.form.value("only")
        context.listen(self.follow)
        ui.timer(0.0, self.look_up, once=True)

    def wanted_question(self) -> Wanted:
        """The question whose answer has the rows."""
        only = self.form.value("only")
        return Wanted("validate", {"family": only} if only else {})

    async def look_up(self) -> None:
        """Shows what has been scored before; else asks whether to score."""
        families = await asyncio.to_thread(published.published_families)
        self.only.set_options({"": self.context.say("trust.every_family"), **{name: name for name in families}})
        wanted = self.wanted_question()
        question = await asyncio.to_thread(ask_question, wanted.verb, wanted.arguments)
        kept = await self.context.door.answer(question.key)
        self.start.set_visibility(kept is None)
        if kept is not None:
            await self.asking.run(wanted)
        else:
            self.asking.result.clear()
            self.drawn = None

    async def score(self) -> None:
        """Scores the rows, which takes a while the first time."""
        self.start.set_visibility(False)
        if await self.asking.run(self.wanted_question) is None:
            self.start.set_visibility(True)

    async def follow(self) -> None:
        """The view has changed: another question, or other filters of the same rows."""
        if self.form.value("only") != self.asked:
            self.asked = self.form.value("only")
            await self.look_up()
        elif self.drawn is not None:
            self.redraw()

    async def draw(self, report: dict[str, Any], asked: Asked) -> None:
        """Shows the rows of an answer, with filters that fit them."""
        self.rows = await asyncio.to_thread(_rows_of, asked.key, asked.bytes)
        say_, rows = self.context.say, self.rows
        quantities = {name: f"{NAMES.get(name, name)} ({UNITS.get(name, '1')})" for name in published.values_of(rows, "quantity")}
        first = STEP_TIME if STEP_TIME in quantities else next(iter(quantities), STEP_TIME)
        with ui.element("div").classes("wt-form"):
            self.form.choice("quantity", say_("trust.quantity"), quantities or {first: first}, first)
            for name in FILTERS:
                values = {"": say_("trust.any"), **{value: value for value in published.values_of(rows, name)}}
                self.form.choice(name, say_(f"trust.{name}"), values, "")
            self.form.choice("by", say_("trust.by"), {name: say_(f"trust.{name}") for name in FILTERS}, "family")
        self.drawn = ui.element("div").classes("wt-result")
        self.redraw()
        show_command(self.context, asked.command, asked.key)

    def redraw(self) -> None:
        """Shows the rows that the filters leave."""
        if self.drawn is None:
            return
        form = self.form
        quantity = form.value("quantity") or STEP_TIME
        rows = published.chosen_rows(self.rows, {name: form.value(name) for name in FILTERS}, quantity)
        self._shown = {row.id: row for row in rows}
        self.drawn.clear()
        with self.drawn:
            if not rows:
                ui.label(self.context.say("trust.none")).classes("wt-soft")
                return
            show_accuracy(self.context, rows)
            options = accuracy_points(
                rows, form.value("by") if form.value("by") in FILTERS else "family", axis_names(self.context, quantity), tell_row
            )
            draw_chart(options, self.context.say("trust.chart", n=len(rows)), 460, self.pick_point)
            self.picked = ui.element("div").props('id="picked" aria-live="polite"')
            with self.picked:
                ui.label(self.context.say("trust.pick")).classes("wt-soft")
            self._matrix(quantity)
            self._table(rows)

    async def pick_point(self, event: Any) -> None:
        """A point of the chart was clicked."""
        data = event.data if isinstance(event.data, dict) else {}
        await self.pick(str(data.get("id", "")))

    async def pick(self, row_id: str) -> None:
        """Shows one row with the way to its job."""
        row = self._shown.get(row_id)
        if row is None:
            return
        job = await asyncio.to_thread(published.job_of_row, row)
        self.picked.clear()
        with self.picked:
            show_row(self.context, row, job)

    def _matrix(self, quantity: str) -> None:
        cells = published.support_cells(row for row in self.rows if row.quantity == quantity)
        if not cells:
            return
        context = self.context
        ui.html(f"<h3>{context.say('trust.matrix')}</h3>", sanitize=False)

        def link(cell: published.SupportCell) -> str:
            view = context.view
            for name in ("gpu", "model", "framework", "precision"):
                view = view.with_field(PREFIX + name, getattr(cell, name) or None)
            return context.link("trust", view)

        words = {key: context.say(f"trust.{key}") for key in ("gpu", "precision", "rows")}
        drawn = support_matrix(cells, link, {**words, "caption": context.say("trust.matrix_about")})
        ui.html(drawn, sanitize=False).classes("wt-scroll").props(
            f'tabindex="0" role="region" aria-label="{context.say("trust.matrix")}"'
        )

    def _table(self, rows: Sequence[PublishedRow]) -> None:
        context = self.context
        worst = sorted(rows, key=lambda row: -abs(row.error))[:MOST_ROWS]
        keys = ("id", "family", "gpu", "model", "framework", "precision", "measured", "predicted", "error")
        columns = [("row" if key == "id" else key, context.say(f"trust.{'row' if key == 'id' else key}")) for key in keys]
        cells = [
            {"row" if key == "id" else key: getattr(row, key) for key in keys}
            | {"error": round(row.error, 1), "measured": _digits(row.measured), "predicted": _digits(row.predicted)}
            for row in worst
        ]
        ui.html(f"<h3>{context.say('trust.rows_of')}</h3>", sanitize=False)
        show_table(columns, cells, context.say("trust.rows_of"), lambda at: self.pick(worst[at].id))


def _digits(value: float) -> float:
    """Four significant digits: those of most published figures."""
    return float(f"{value:.4g}")


MOST_FILES = 64
"""Uploads of one question."""
COLUMNS = "id,family,framework,model,gpu,gpus,gpus_per_node,tp,pp,dp,seq,gbs,mbs,precision,iter_time_s"
"""Columns of a table that suffice for a model of the catalogue."""
EXAMPLE = f"{COLUMNS}\nmine-1,mine,megatron,llama3-8b,h100-sxm-80gb,8,8,2,1,4,8192,32,1,bf16,4.1\n"


def are_tables(names: Iterable[str]) -> bool:
    """Whether files are tables of measurements by their names, packed or not; others are of a run."""
    return all(without_gz(name).suffix.lower() in (".csv", ".parquet") for name in names)


def most_uploaded(body: int) -> int:
    """Bytes of files that a request of at most `body` bytes holds: they travel in base64, four bytes for three."""
    return body * 3 // 4


class OwnMeasurements:
    """The files of a reader, and what became of them."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self.files: dict[str, bytes] = {}
        most = most_uploaded(context.door.settings.body_bytes)
        self.size = f"{most >> 20} MiB"
        with ui.element("div").classes("wt-buttons"):
            self.upload = choose_files(
                context.say("trust.upload", size=self.size), self.take, max_files=MOST_FILES, max_total_size=most,
                on_rejected=self.refuse,
            )  # fmt: skip
            go = ui.button(context.say("trust.score_own"), on_click=self.score, color=None)
            go.classes("wt-go").props("no-caps unelevated")
            ui.button(context.say("trust.clear"), on_click=self.clear, color=None).classes("wt-other").props("no-caps unelevated")
            ui.button(
                context.say("trust.example"), on_click=lambda: ui.download.content(EXAMPLE, "measured.csv"), color=None
            ).props("flat no-caps").classes("wt-other")
        self.told = ui.label("").classes("wt-soft").props('aria-live="polite"')
        self.told.set_visibility(False)
        self.asking = Asking(context, lambda _, asked: show_sheet(context, asked), "own-scored")

    async def take(self, event: events.UploadEventArguments) -> None:
        """Keeps a file of the reader until the page is left."""
        name = event.file.name.replace("\\", "/").rpartition("/")[2]
        self.files[name] = await event.file.read()
        self._tell(", ".join(self.files))

    def refuse(self) -> None:
        """More than may be uploaded."""
        self._tell(self.context.say("trust.too_large", files=MOST_FILES, size=self.size))

    def clear(self) -> None:
        """Forgets the files."""
        self.files.clear()
        self.upload.reset()
        self._tell("")
        self.asking.result.clear()

    async def score(self) -> None:
        """Scores what was uploaded."""
        if not self.files:
            self._tell(self.context.say("trust.no_file"))
            return
        await self.asking.run(self.wanted_question)

    def wanted_question(self) -> Wanted:
        """A table is validated; anything else is a run, and is compared with the job that the page is about."""
        if are_tables(self.files):
            return Wanted("validate", {"tables": list(self.files)}, dict(self.files), SHEET)
        asked = job_arguments(self.context)
        job = asked["job"]
        files: dict[str, Any] = dict(self.files)
        if not isinstance(job, str):
            files["job.json"] = json.dumps(job)
            job = "job.json"
        changes = {"set": asked["set"]} if asked.get("set") else {}
        return Wanted("compare", {"things": [*self.files, job], **changes}, files, SHEET)

    def _tell(self, text: str) -> None:
        self.told.set_text(text)
        self.told.set_visibility(bool(text))


def own_measurements(context: PageContext) -> None:
    """The form of uploads."""
    use_sheets()
    ui.label(context.say("trust.own_how")).classes("wt-soft")
    OwnMeasurements(context)
