"""The section `compose`: a job from the catalogue or from what was pasted, its fields, and what moves when one of them changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.base.errors import WindtunnelError
from windtunnel.service.door import StillRunning
from windtunnel.service.page.context import PageContext, error_of
from windtunnel.service.page.fields import pick_typed
from windtunnel.service.page.figures import head_sheet, headline
from windtunnel.service.page.forms import FormField, form_fields, group_fields
from windtunnel.service.page.frame import card, heading, show_error
from windtunnel.service.page.history import remember
from windtunnel.service.page.pasting import paste_card
from windtunnel.service.page.state import Question, anchor
from windtunnel.service.page.studies import draw_sheet, machine_words, use_sheets
from windtunnel.sheet.sentence import translate
from windtunnel.spec import names

FIRST = "llama3-8b-8xh100"
"""The job that an empty page begins with."""
FIRST_RUN = {"tokens": "10B"}
"""Its length there: one that eight GPUs train in days. The 15 trillion tokens of its model would take them years."""
PEEK = ("step_time_s", "memory", "cost", "cost_per_step")
"""Figures that stay in sight of a narrow window, where the outcome is below the form."""


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_sheets()
    heading(context.say("compose.title"), context.say("compose.about"))
    if not context.question.is_asked:
        context.view = context.view.with_question(Question(FIRST, FIRST_RUN))
    with ui.element("div").classes("wt-two"):
        with ui.element("div"):
            _start_card(context)
            paste_card(context)
            form = JobForm(context)
            form.build()
        with ui.element("div").classes("wt-sticky"):
            outcome = LiveOutcome(context, form)
            outcome.build()
    context.listen(outcome.refresh)
    context.when_refused(outcome.forget)
    context.labels |= {"--on": context.say("compose.machine"), "--gpus": context.say("compose.gpus")}
    ui.timer(0.01, outcome.refresh, once=True)


def _start_card(context: PageContext) -> None:
    """A job, or a model on a machine, of the catalogue."""
    asked = context.question
    known = [*names("jobs"), *names("models")]
    job = asked.job if isinstance(asked.job, str) else ""

    async def pick() -> None:
        picked, machine = str(what.value or ""), str(where.value or "")
        if not picked:
            return
        if picked in names("models") and not machine:
            machine = "h100-ib"
            where.set_value(machine)
        gpus = {} if picked in names("jobs") else {"cluster.gpus": "8"}
        files = context.question.files if picked in context.question.files else {}
        await context.show(context.view.with_question(Question(picked, gpus, on=machine, files=files)))

    async def move() -> None:
        kept = context.question
        machine = str(where.value or "")
        await context.show(context.view.with_question(Question(kept.job, kept.changes, kept.verb, machine, kept.files)))

    with card(context.say("compose.start"), context.say("compose.start_about"), "start"), ui.element("div").classes("wt-row"):
        options = known if job in known or not job else [job, *known]
        what = ui.select(options, value=job or None, label=context.say("compose.job"), with_input=True, on_change=pick)
        machines = list(names("clusters"))
        where = ui.select(
            machines, value=asked.on if asked.on in machines else None, label=context.say("compose.machine"), with_input=True,
            clearable=True, on_change=move,
        )  # fmt: skip

        def hint_machine() -> None:
            own = "" if where.value else machine_words(context.question)
            where.props(f'hint="{context.say("compose.of_job", machine=own)}"' if own else "", remove="" if own else "hint")

        context.listen(hint_machine)
        hint_machine()
        for one, offered in ((what, options), (where, machines)):
            pick_typed(one, offered).classes("wt-grow").props("outlined dense")


class JobForm:
    """The fields of the job. Each shows what the job has now, its unit, its help, and what is wrong with it."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._inputs: dict[str, tuple[FormField, Any]] = {}
        self._shown: dict[str, Any] = {}

    def build(self) -> None:
        """Builds the groups of fields, and one for every other field."""
        say = self._context.say
        with card(say("compose.fields"), say("compose.fields_about"), "fields"):
            for group in ("plan", "machine", "runtime"):
                opened = ui.expansion(say(f"compose.{group}"), value=group != "runtime").classes("full-width").props("dense")
                with opened, ui.element("div").classes("wt-form"):
                    for field in group_fields(group):
                        self._inputs[field.path] = (field, self._input(field))
            with ui.element("div").classes("wt-row"):
                other = ui.select(list(form_fields()), label=say("compose.other"), with_input=True, clearable=True)
                value = ui.input(say("compose.value"))
                for one in (other, value):
                    one.classes("wt-grow").props("outlined dense")

                async def set_other() -> None:
                    if other.value:
                        await self._change(str(other.value), str(value.value or "") or None)

                ui.button(say("compose.set"), on_click=set_other).props("outline no-caps")

    def _input(self, field: FormField) -> Any:
        name = field.path.rpartition(".")[2]
        label = f"{name} ({field.unit})" if field.unit else name

        async def take_change(event: Any) -> None:
            if event.value != self._shown.get(field.path):
                self._shown[field.path] = event.value
                await self._change(field.path, field.text_of(event.value))  # numbers as typed: `128k` is read as in `--set`

        made: Any
        if field.kind == "boolean":
            made = ui.checkbox(label, on_change=take_change).props("dense")
        elif field.kind == "choice":
            made = ui.select(list(field.choices), label=label, on_change=take_change).props("outlined dense")
        else:
            made = ui.input(label, on_change=take_change).props("outlined dense debounce=250")
        made.props(f'data-field="{field.path}"')
        if about := self._about(field):
            with made:
                ui.tooltip(about)
        return made

    def _about(self, field: FormField) -> str:
        key = f"compose.help.{field.path}"
        said = self._context.language.find(key)
        return said or field.help

    async def _change(self, path: str, value: str | None) -> None:
        view = self._context.view
        await self._context.show(view.with_question(view.question.with_change(path, value)))

    def fill(self, job: Mapping[str, Any]) -> None:
        """Shows the job of an answer, and marks the fields that were changed."""
        for path, (field, made) in self._inputs.items():
            value = field.show_value(field.value_in(job), made.value)
            self._shown[path] = value
            if made.value != value and not (field.kind == "choice" and value not in field.choices):
                made.set_value(value)
            made.classes(**{"add" if path in self._context.question.changes else "remove": "wt-changed"})
            self._tell(path, "")

    def show_error(self, path: str, text: str) -> None:
        """Writes what is wrong below its field, if the form has it."""
        for known in self._inputs:
            self._tell(known, text if known == path else "")

    def _tell(self, path: str, text: str) -> None:
        made = self._inputs[path][1]
        if hasattr(made, "error"):
            made.error = text or None


class LiveOutcome:
    """What the job takes: it follows each change; an older answer never replaces a newer one."""

    def __init__(self, context: PageContext, form: JobForm) -> None:
        self._context, self._form, self._asked = context, form, 0

    def build(self) -> None:
        """Builds the box that `refresh` fills."""
        with card(self._context.say("compose.outcome"), name="outcome"):
            with ui.element("div").classes("wt-row"):
                self._open = anchor(self._context.say("compose.open"), self._context.link("answer"))
                ui.button(self._context.say("compose.undo"), on_click=ui.navigate.back).props("flat dense no-caps icon=undo")
            self._errors = ui.element("div")
            self._box = ui.element("div").props('aria-live="polite"')
        self._peek = ui.label().classes("wt-peek wt-number").props('aria-hidden="true"')

    async def refresh(self) -> None:
        """Asks for the view's question and shows its answer, or what is wrong with it beside its field."""
        self._asked += 1
        mine = self._asked
        self._open.props["href"] = self._context.link("answer")
        self._open.update()
        try:
            asked = await self._context.predict()
        except StillRunning as running:
            if mine == self._asked:
                self._say_running(running.job.id)
            return
        except WindtunnelError as error:
            if mine == self._asked:
                self._show_error(error)
            return
        if mine != self._asked:
            return
        answer = json.loads(asked.bytes)
        self._errors.clear()
        self._form.fill(answer["job"])
        self._box.clear()
        with self._box:
            draw_sheet(self._context, head_sheet(answer))
        self._box.props(f"data-key={asked.key}")
        peek = [figure.words() for figure in headline(answer) if figure.key in PEEK]
        self._peek.set_text(" · ".join(translate(text, self._context.language.code) for text in peek))
        remember(self._context, asked, headline(answer)[0].words())

    def forget(self) -> None:
        """Takes away figures of a job that is no longer asked about: beside an error they would read as its answer."""
        self._box.clear()
        self._box.props(remove="data-key")
        self._peek.set_text("")

    def _say_running(self, job: str) -> None:
        self._errors.clear()
        self.forget()
        with self._errors:
            ui.label(self._context.say("compose.running", job=job)).classes("wt-soft")
        ui.timer(1.0, self.refresh, once=True)

    def _show_error(self, error: WindtunnelError) -> None:
        table = error_of(error)
        text = f"{table.get('allowed') or table.get('message') or ''}"
        self._form.show_error(str(table.get("field") or ""), text)
        self._errors.clear()
        self.forget()
        with self._errors:
            show_error(self._context, table)
