"""The section `verbs`: any verb that the service offers, with a form made from its options."""

from __future__ import annotations

from typing import Any

from nicegui import events, ui

from windtunnel.base.options import options_of
from windtunnel.base.verbs import Verb, all_verbs, load_named
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, choose_files, pick_typed
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.studies import SHEET, show_sheet, use_looks, use_sheets
from windtunnel.service.questions import offered_verbs

PICKED = "of"
"""Field of the address that has the verb."""
OF_A_JOB = ("on", "set")
"""Options of a verb with a job that its class does not have."""


def shown_verbs() -> dict[str, Verb]:
    """Name -> each verb whose options are a class and whose answer has a sheet."""
    verbs = {" ".join(verb.words): verb for verb in all_verbs().values() if verb.options is not None}
    offered = offered_verbs()
    return {name: verb for name, verb in verbs.items() if name in offered and {*SHEET} <= {out[0] for out in offered[name].outputs}}


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    use_sheets()
    heading(context.say("verbs.title"), context.say("verbs.about"))
    verbs, name = shown_verbs(), context.view.more.get(PICKED, "")

    def pick(event: Any) -> None:
        ui.navigate.to(context.link("verbs", context.view.with_field(PICKED, event.value)).removeprefix("/ui"))

    label, chosen = context.say("verbs.verb"), name if name in verbs else None
    with card(name="pick"):
        field = ui.select([*verbs], value=chosen, label=label, with_input=True, on_change=pick)
        pick_typed(field, [*verbs]).classes("wt-field wt-wide").props("outlined dense")
    if name in verbs:
        _build_form(context, name, verbs[name])


def _build_form(context: PageContext, name: str, verb: Verb) -> None:
    """The card of one verb: a field for each option that a request may say, and its answer."""
    kind = load_named(verb.options)
    form, files, offered = Form(context, f"{name}.", kind), dict[str, bytes](), offered_verbs()[name]
    stated = {one.request_name: one for one in options_of(kind) if offered.option(one.request_name) is not None}
    yes_or_no = [option for option, one in stated.items() if one.kind == "flag"]
    of_job = [other for other in OF_A_JOB if other not in stated and offered.option(other) is not None]
    with card(f"windtunnel {name}", verb.about, "verb"):
        with ui.element("div").classes("wt-form"):
            for option, one in stated.items():
                if option in yes_or_no:
                    form.choice(option, option, {"": "", "true": context.say("verbs.yes"), "false": context.say("verbs.no")}, "")
                else:
                    form.option(option, option, first="" if one.many else None)
            for option in of_job:
                form.text(option, option)

        async def take(event: events.UploadEventArguments) -> None:
            files[event.file.name] = await event.file.read()
            told.set_text(", ".join(files))

        with ui.element("div").classes("wt-buttons"):
            choose_files(context.say("verbs.upload"), take, max_total_size=context.door.settings.body_bytes // 2)
            go = ui.button(context.say("verbs.go"), color=None).props("unelevated").classes("wt-go")
        told = ui.label("").classes("wt-soft").props('aria-live="polite"')
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "verb-answer")

    def wanted_verb() -> Wanted:
        flags = {option: value == "true" for option in yes_or_no if (value := form.value(option))}
        said = form.arguments(*(option for option in stated if option not in yes_or_no))
        said |= {option: form.value(option) for option in of_job if form.value(option)}
        lists = {option: str(value).split() for option, value in said.items() if (found := offered.option(option)) and found.many}
        return Wanted(name, {**said, **lists, **flags}, files, SHEET)

    ask_on_click(form, "run", go, lambda: asking.run(wanted_verb))
