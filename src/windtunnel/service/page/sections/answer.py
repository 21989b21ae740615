"""The section `answer`: a prediction in full, answers side by side, the command and the link that give the same, tables to keep."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nicegui import ui

from windtunnel.api.compare_sheet import within_errors
from windtunnel.base.errors import WindtunnelError
from windtunnel.service.door import Asked, StillRunning
from windtunnel.service.page.asking import show_numbers
from windtunnel.service.page.context import PageContext, error_of
from windtunnel.service.page.figures import GIB, Answer, difference, facts_of, head_sheet, headline, lists_of, tables_of, write_csv
from windtunnel.service.page.frame import card, heading, show_error
from windtunnel.service.page.history import history_card, remember
from windtunnel.service.page.state import anchor
from windtunnel.service.page.studies import draw_sheet, kept_sheet, use_looks, use_sheets
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Items, Sheet
from windtunnel.sheet.sentence import Sentence, translate

BESIDE, MOST_BESIDE, MOST_ROWS = "beside", 4, 500
"""Field of the address with the keys of kept answers, how many it holds, and rows of a table that are shown."""
_KEY = re.compile(r"[0-9a-f]{64}")


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    use_sheets()
    heading(context.say("answer.title"), context.say("answer.about"))
    box = ui.element("div")

    async def fill() -> None:
        box.clear()
        with box:
            await _fill(context)

    context.listen(fill)
    ui.timer(0.01, fill, once=True)


async def _fill(context: PageContext) -> None:
    key = context.view.more.get("key", "")
    if not context.question.is_asked and not key:
        ui.label(context.say("answer.none"))
        anchor(context.say("compose.title"), context.link("compose"))
        return
    try:
        if _KEY.fullmatch(key) or not context.question.is_asked:
            asked = await context.door.answer(key)
        else:
            asked = await context.predict(["sheet"])
    except StillRunning as running:
        ui.label(context.say("compose.running", job=running.job.id))
        ui.timer(1.0, lambda: ui.navigate.reload(), once=True)
        return
    except WindtunnelError as error:
        show_error(context, error_of(error))
        return
    if asked is None:
        ui.label(context.say("answer.gone"))
        return
    answer = json.loads(asked.bytes) if asked.media.startswith("application/json") else {}
    if isinstance(answer, dict) and "step_time_s" in answer and "breakdown" in answer:
        await _prediction(context, asked, answer)
    else:
        with card(context.say("answer.other", verb=asked.verb), name="other"):
            sheet = await kept_sheet(context, asked)
            if sheet is not None:
                draw_sheet(context, sheet)
            show_numbers(facts_of(answer))
            if "html" in asked.artefacts:
                _show_page(context, asked)
        _again_card(context, asked)
        _tables_card(context, lists_of(answer))


async def _prediction(context: PageContext, asked: Asked, answer: Answer) -> None:
    sheet = await kept_sheet(context, asked)
    if sheet is not None and context.question.is_asked:
        _advice_row(context, sheet)
    draw_sheet(context, sheet or head_sheet(answer))
    await _beside_card(context, asked, answer)
    _again_card(context, asked)
    _page_card(context, asked)
    _tables_card(context, tables_of(answer))
    if context.question.is_asked:
        remember(context, asked, headline(answer)[0].words())
    await history_card(context)


def _advice_row(context: PageContext, sheet: Sheet) -> None:
    """Each change that the answer advises as a link: Compose opens with it."""
    with ui.element("div").classes("wt-row").props('id="advice"'):
        for change in changes_of(sheet):
            question = context.question
            for name, value in change.items():
                question = question.with_change(name, value)
            words = ", ".join(f"{name} = {value}" for name, value in change.items())
            anchor(context.say("answer.apply", change=words), context.link("compose", context.view.with_question(question)))


def changes_of(sheet: Sheet) -> list[dict[str, str]]:
    """The changes that a sheet's numbered sentences advise, in their order: field -> value."""

    def walk(text: object) -> Iterator[dict[str, str]]:
        for name, fact in text.facts.items() if isinstance(text, Sentence) else ():
            if name == "change":
                yield dict(re.findall(r"--set ([\w.]+)=(\S+)", str(fact)))
            yield from walk(fact)

    items = (item for section in sheet.sections for block in section.blocks if isinstance(block, Items) for item in block.items)
    return [change for item in items for change in walk(item.text) if change]


def _again_card(context: PageContext, asked: Asked) -> None:
    """The command and the links that give the same answer."""
    with card(context.say("answer.again"), context.say("answer.again_about"), "again"):
        with ui.element("div").classes("wt-row"):
            ui.label(asked.command).classes("wt-code").props("data-command")

            def copy() -> None:
                ui.clipboard.write(asked.command)
                ui.notify(context.say("answer.copied"))

            ui.button(context.say("answer.copy"), on_click=copy).props("outline no-caps")
        with ui.element("div").classes("wt-row"):
            anchor(context.say("answer.link"), f"/ui/answer?key={asked.key}")
            anchor(context.say("answer.data"), f"/api/v1/answers/{asked.key}", "answer.json")
            if context.question.is_asked:
                anchor(context.say("answer.change"), context.link("compose", context.view.with_field("key", None)))


def _page_card(context: PageContext, asked: Asked) -> None:
    """The static page of the verb, asked for when somebody wants it."""
    if not context.question.is_asked and "html" not in asked.artefacts:
        return
    with card(context.say("answer.page"), context.say("answer.page_about"), "static"):
        place = ui.element("div")

        async def open_page() -> None:
            try:
                found = asked if "html" in asked.artefacts else await context.predict(["html"], 60.0)
            except WindtunnelError as error:
                with place:
                    show_error(context, error_of(error))
                return
            place.clear()
            with place:
                _show_page(context, found)

        with place:
            ui.button(context.say("answer.page_open"), on_click=open_page).props("outline no-caps")


def _show_page(context: PageContext, asked: Asked) -> None:
    """The static page of an answer, in an origin of its own."""
    address = f"/ui/shown/{asked.key}/html"
    anchor(context.say("answer.page_alone"), address)
    frame = ui.element("iframe").classes("wt-frame")
    frame.props["src"], frame.props["title"] = address, context.say("answer.page")
    frame.props["sandbox"] = "allow-scripts allow-downloads"


def _tables_card(context: PageContext, tables: Mapping[str, list[dict[str, Any]]]) -> None:
    """Every table of the answer, to read and to keep."""
    if not tables:
        return
    with card(context.say("answer.tables"), name="tables"):
        for name, rows in tables.items():
            with (
                ui.expansion(f"{context.language.find(f'answer.{name}') or name} ({len(rows)})")
                .classes("full-width")
                .props("dense")
            ):
                _table(context, name, rows)


def _table(context: PageContext, name: str, rows: list[dict[str, Any]]) -> None:
    with ui.element("div").classes("wt-row"):
        ui.button(
            context.say("answer.csv"), on_click=lambda: ui.download.content(write_csv(rows), f"{name}.csv", "text/csv")
        ).props("outline dense no-caps").props(f"data-download={name}.csv")
        ui.button(
            context.say("answer.json"),
            on_click=lambda: ui.download.content(json.dumps(rows, indent=1), f"{name}.json", "application/json"),
        ).props("outline dense no-caps")
    heads = list(dict.fromkeys(key for row in rows for key in row))
    columns = [{"name": head, "label": head, "field": head, "sortable": True, "align": _align(rows, head)} for head in heads]
    shown = [{key: _shorten(value) for key, value in row.items()} for row in rows[:MOST_ROWS]]
    ui.table(rows=shown, columns=columns, pagination=20).classes("full-width").props("dense flat")


def _align(rows: list[dict[str, Any]], head: str) -> str:
    return "right" if isinstance(rows[0].get(head), (int, float)) else "left"


def _shorten(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def kept_keys(text: str) -> list[str]:
    """The keys of kept answers in the field of an address."""
    return [key for key in dict.fromkeys(text.split(",")) if _KEY.fullmatch(key)][:MOST_BESIDE]


async def _beside_card(context: PageContext, asked: Asked, answer: Answer) -> None:
    """Kept answers in columns beside this one, with what differs."""
    keys = kept_keys(context.view.more.get(BESIDE, ""))
    with card(context.say("answer.beside"), context.say("answer.beside_about"), "beside"):
        with ui.element("div").classes("wt-row"):

            async def keep() -> None:
                await context.show(context.view.with_field(BESIDE, ",".join([*keys, asked.key][-MOST_BESIDE:])))

            async def clear() -> None:
                await context.show(context.view.with_field(BESIDE, None))

            if asked.key not in keys:
                ui.button(context.say("answer.keep"), on_click=keep).props("outline no-caps")
            if keys:
                ui.button(context.say("answer.clear"), on_click=clear).props("flat no-caps")
        found = [(context.say("answer.this"), asked, answer)]
        for number, key in enumerate(keys, 1):
            other = await context.door.answer(key)
            if other is not None and key != asked.key and b'"step_time_s"' in other.bytes:
                found.append((f"{number}", other, json.loads(other.bytes)))
        if len(found) > 1:
            _columns(context, found)


def _columns(context: PageContext, found: list[tuple[str, Asked, Answer]]) -> None:
    first = found[0][2]
    figures: dict[str, tuple[Callable[[Answer], float], Callable[[float], str]]] = {
        "answer.seconds": (lambda one: one["step_time_s"], "{:.4g}".format),
        "answer.mfu": (lambda one: one["mfu"], say.percent),
        "answer.tokens": (lambda one: one["tokens_per_s"], say.count),
        "answer.memory_gib": (lambda one: max((stage["total"] for stage in one["memory"]), default=0.0) / GIB, "{:.4g}".format),
        "answer.dollars": (lambda one: one.get("cost_per_step") or 0.0, "{:.4g}".format),
    }
    columns = [{"name": "figure", "label": context.say("answer.figure"), "field": "figure", "align": "left"}]
    columns += [{"name": name, "label": name, "field": name, "align": "right"} for name, *_ in found]
    rows = []
    for key, (read, show) in figures.items():
        row = {"figure": context.say(key)}
        for place, (name, _, one) in enumerate(found):
            differs = f" ({difference(read(one), read(first))})" if place else ""
            within = "" if key == "answer.memory_gib" else say.error_words(one["relative_error"])
            row[name] = f"{show(read(one))}{within}{differs}"
        rows.append(row)
    ui.table(rows=rows, columns=columns, row_key="figure").classes("full-width").props("dense flat hide-bottom")
    for name, asked, other in found[1:]:
        most = max(first["relative_error"], other["relative_error"])
        told = within_errors(first["step_time_s"], other["step_time_s"], most)
        ui.label(f"{name}: {translate(told, context.language.code)}").classes("wt-soft")
        ui.label(f"{name}: {asked.command}").classes("wt-command")
