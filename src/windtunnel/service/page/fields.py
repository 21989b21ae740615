"""Fields of a form: a label with its unit, a value that is kept in the address, a line of help."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import events, ui

from windtunnel.base.options import StatedOption, options_of
from windtunnel.base.units import parse_count, parse_time, parse_whole
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.state import ViewState

OPENED = 0.05
"""Seconds after a page was built in which it asks what its address says."""
Reads = Callable[[str], float]
"""A number from a text, in the units that the command line takes; ValueError says what is allowed."""
_INPUT = "outlined dense stack-label hide-bottom-space"


class Form:
    """The fields of one form. `prefix`: what their names in the address begin with, so that forms do not share them; `options`: the
    class of the verb that it asks."""

    def __init__(self, context: PageContext, prefix: str, options: type[Any] | None = None) -> None:
        self.context, self._prefix = context, prefix
        self._options = {} if options is None else {one.request_name: one for one in options_of(options)}
        self._options_of: dict[str, StatedOption] = {}
        self._first: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._fields: dict[str, ui.input | ui.textarea] = {}
        self._reads: dict[str, Reads] = {}
        context.when_typed(self._with_typed)

    def option(
        self, option: str, label: str, *, name: str = "", options: type[Any] | None = None, first: str | None = None,
        hint: str = "", titles: Mapping[str, str] | None = None, wide: bool = False, names: Sequence[str] = (),
        reads: Reads | None = None, times: float = 1.0,
    ) -> Any:  # fmt: skip
        """The field of an option of the form's verb, by its name in a request: with the option's default, choices, range and help.

        `name`: of the field in the address, where that is another one; `options`: of another verb. `first`: its value where it is
        not the option's default; `titles`: what choices are called, of all or of those that the form has. `reads`: of a number
        that is typed in another unit, of which the option has one for each `times`.
        """
        known = self._options if options is None else {one.request_name: one for one in options_of(options)}
        one = self._options_of[name or option] = known[option]
        self._labels[name or option] = label
        self.context.labels.setdefault(one.word, label)
        first = first_of(one) if first is None else first
        choices = titles or {choice: choice for choice in one.choices}
        if choices:
            made: Any = self.choice(name or option, label, choices, first, many=one.commas or one.joined)
        else:
            made = self.text(name or option, label, first, names=names, wide=wide, hint=hint, reads=reads_of(one, reads, times))
        with made:
            ui.tooltip(one.help)
        return made

    def arguments(self, *names: str) -> dict[str, Any]:
        """What a request says for these fields of options: those that are filled in."""
        asked: dict[str, Any] = {}
        for name in names:
            one, value, number = self._options_of[name], self.value(name).strip(), self.number(name)
            self.context.labels[one.word or f"--{one.request_name}"] = self._labels[name]
            if not value:
                continue
            if name in self._reads and number is not None:
                asked[one.request_name] = int(number) if number == int(number) else number
            else:
                asked[one.request_name] = value.replace(" ", "") if one.commas else value
        return asked

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


def first_of(option: StatedOption) -> str:
    """What a field has where nothing is typed: the option's default, or the example of one that has to be said."""
    if option.is_required:
        return option.example
    if isinstance(option.default, (tuple, list)):
        return ",".join(map(str, option.default))
    return "" if option.default is None else f"{option.default:g}" if isinstance(option.default, float) else str(option.default)


def reads_of(option: StatedOption, reads: Reads | None = None, times: float = 1.0) -> Reads | None:
    """What reads an option's number, in its range; None for an option that is text. `times`: what is typed for 1 of the option."""
    if option.many or option.reads or option.kind not in ("whole", "number"):
        return None
    known: dict[str, Reads] = {"whole": parse_whole, "number": parse_time if option.metavar == "SECONDS" else parse_count}
    read = reads or known[option.kind]

    def read_in_range(text: str) -> float:
        value = read(text)
        if (option.least is not None and value < option.least * times) or (option.most is not None and value > option.most * times):
            ends = [word for word, end in (("from {:g}", option.least), ("to {:g}", option.most)) if end is not None]
            raise ValueError(" ".join(ends).format(*(end * times for end in (option.least, option.most) if end is not None)))
        return value

    return read_in_range


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


def pick_typed(field: ui.select, options: Sequence[str]) -> ui.select:
    """Enter picks the option whose name was typed, in capitals or not, or the only one that has it; the field itself wants an arrow
    first."""
    typed = ""

    def note(event: events.GenericEventArguments) -> None:
        nonlocal typed
        typed = str(event.args or "").lower()

    def pick() -> None:
        near = [name for name in options if typed and typed in name.lower()]
        for name in near[:1] if len(near) == 1 else [name for name in near if name.lower() == typed]:
            field.set_value(name)

    return field.on("input-value", note).on("keydown.enter", pick)


def sets_of(text: str) -> dict[str, str]:
    """Changes of a job from lines or words such as `plan.tp=2,4`."""
    words = (word.strip() for line in text.splitlines() for word in line.split())
    return {name: value for name, _, value in (word.partition("=") for word in words) if name and value}


def sets_list(arguments: Mapping[str, Any], further: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of a question with further changes of its job."""
    known = {**dict(arguments.get("set") or {}), **further}
    return {**arguments, "set": known} if known else dict(arguments)
