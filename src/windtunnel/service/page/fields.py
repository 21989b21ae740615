"""Fields of a form: a label with its unit, a value that is kept in the address, a line of help."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import events, ui

from windtunnel.base.units import parse_count
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.state import ViewState

OPENED = 0.05
"""Seconds after a page was built in which it asks what its address says."""
Reads = Callable[[str], float]
"""A number from a text, in the units that the command line takes; ValueError says what is allowed."""
_INPUT = "outlined dense stack-label hide-bottom-space"


class Form:
    """The fields of one form. `prefix`: what their names in the address begin with, so that forms do not share them."""

    def __init__(self, context: PageContext, prefix: str) -> None:
        self.context, self._prefix = context, prefix
        self._first: dict[str, str] = {}
        self._fields: dict[str, ui.input | ui.textarea] = {}
        self._reads: dict[str, Reads] = {}
        context.when_typed(self._with_typed)

    def text(
        self, name: str, label: str, first: str = "", *, names: Sequence[str] = (), wide: bool = False, hint: str = "",
        reads: Reads | None = None,
    ) -> ui.input:  # fmt: skip
        """A field of text. `first`: its value where the address has none; `names`: what is offered while one types; `reads`: of a
        field of a number, what reads it. What it cannot read is told at the field, and nothing is asked until it is mended."""
        self._first[name] = first
        field = ui.input(label, value=self.value(name), autocomplete=list(names), placeholder=hint)
        self._fields[name] = field
        if reads is not None:
            self._reads[name] = reads
            field.validation = partial(why_unread, reads)
        field.props(_INPUT).classes("wt-field wt-wide" if wide else "wt-field")
        field.on("blur", lambda: self.keep(name, str(field.value or "")))
        field.on("keydown.enter", lambda: self.keep(name, str(field.value or "")))
        return field

    def lines(self, name: str, label: str, first: str = "", *, hint: str = "", kept: bool = True) -> ui.textarea:
        """A field of several lines. `kept`: whether the address has it."""
        self._first[name] = first
        area = ui.textarea(label, value=self.value(name), placeholder=hint).props(f"{_INPUT} autogrow").classes("wt-field wt-lines")
        if kept:
            self._fields[name] = area
            area.on("blur", lambda: self.keep(name, str(area.value or "")))
        return area

    def choice(
        self, name: str, label: str, options: Mapping[str, str] | Sequence[str], first: str, many: bool = False
    ) -> ui.select:
        """A choice among named things; with `many`, of several."""
        self._first[name] = first
        known = dict(options) if isinstance(options, Mapping) else {one: one for one in options}
        chosen = [one for one in self.value(name).split(",") if one in known]
        if not many:
            known = known if chosen else {self.value(name): self.value(name), **known}
        field = ui.select(known, label=label, multiple=many, value=chosen if many else self.value(name), with_input=len(known) > 12)
        field.props(_INPUT).classes("wt-field")

        async def keep_choice() -> None:
            await self.keep(name, ",".join(field.value) if many else str(field.value or ""))

        field.on_value_change(keep_choice)
        return field

    def value(self, name: str) -> str:
        """A field's value: that of the address, or the first one."""
        return self.context.view.more.get(self._prefix + name, self._first.get(name, ""))

    def number(self, name: str) -> float | None:
        """A field's value as a number; None where it is empty or none."""
        try:
            return float(self._reads.get(name, float)(self.value(name)))
        except ValueError:
            return None

    def refuses(self) -> bool:
        """Whether a field of a number cannot be read; the first such field gets the focus."""
        for name in self._reads:
            field = self._fields[name]
            if not field.validate():
                field.run_method("focus")
                return True
        return False

    def _with_typed(self, view: ViewState) -> ViewState:
        for name, field in self._fields.items():
            value = str(field.value or "")
            view = view.with_field(self._prefix + name, None if value == self._first.get(name, "") else value)
        return view

    async def keep(self, name: str, value: str) -> None:
        """Puts a field into the address; its first value is left out there."""
        kept = None if value == self._first.get(name, "") else value
        await self.context.show(self.context.view.with_field(self._prefix + name, kept))


def why_unread(reads: Reads, text: object) -> str | None:
    """What is allowed in a field of a number where `reads` cannot read it; None where it can, or where the field is empty."""
    try:
        if str(text or "").strip():
            reads(str(text))
    except ValueError as error:
        return str(error)
    return None


def read_percent(text: str) -> float:
    """Percent from `5`, `5.5` or `5 %`; ValueError for another text."""
    return parse_count(text.strip().removesuffix("%"))


def ask_on_click(form: Form, flag: str, go: ui.button, ask: Callable[[], Awaitable[object]]) -> None:
    """Asks what the fields say when `go` is pressed, and at once where the address says that it was: the form's field `flag` keeps
    that there."""

    async def keep_and_ask() -> None:
        await form.context.keep_typed()
        if not form.refuses():
            await form.keep(flag, "1")
            await ask()

    go.on_click(keep_and_ask)
    if form.value(flag):
        ui.timer(OPENED, keep_and_ask, once=True)


def choose_files(label: str, take: Callable[[events.UploadEventArguments], Any], **limits: Any) -> ui.upload:
    """A button that opens the reader's files. `take`: called with each; `limits`: of `ui.upload`, whose own box is not shown, as no
    reader of a screen can tell what its buttons do."""
    upload = ui.upload(auto_upload=True, multiple=True, on_upload=take, **limits).style("display: none")
    button = ui.button(label, icon="upload_file", color=None).props("outline no-caps").classes("wt-other")
    button.on("click", js_handler=f"() => runMethod({upload.id}, 'pickFiles', [])")
    return upload


def sets_of(text: str) -> dict[str, str]:
    """Changes of a job from lines or words such as `plan.tp=2,4`."""
    words = (word.strip() for line in text.splitlines() for word in line.split())
    return {name: value for name, _, value in (word.partition("=") for word in words) if name and value}


def sets_list(arguments: Mapping[str, Any], further: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of a question with further changes of its job."""
    known = {**dict(arguments.get("set") or {}), **further}
    return {**arguments, "set": known} if known else dict(arguments)
