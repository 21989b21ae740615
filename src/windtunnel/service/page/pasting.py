"""Pasting: a configuration, a launch script, flags, a log or a trace; what was read of it, assumed and ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from nicegui import events, ui

from windtunnel.base.units import parse_whole
from windtunnel.cli.imports import SENTENCES, format_fact
from windtunnel.formats.jobs.servers.drafts import weights_of
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import choose_files, why_unread
from windtunnel.service.page.frame import show_error
from windtunnel.service.page.state import MOST_PACKED, Question, anchor, pack_table
from windtunnel.service.page.studies import SHEET, show_sheet
from windtunnel.spec import names

PASTED = "pasted.txt"
MOST_TEXT = 4 << 20
"""Bytes of an upload that may become a question of the page."""

MOST_MESSAGE = 500_000
"""Characters of a paste that travel as a field does; the page's socket takes no message of more than 1 MB."""
LONG_PASTE = (
    "event => { const text = event.clipboardData.getData('text'); if (text.length > %d) { event.preventDefault(); "
    "runMethod(%d, 'addFiles', [[new File([text], '%s')]]); } }"
)
"""A longer one is uploaded as a file is."""


def name_of(text: str) -> str:
    """The name under which a pasted text is uploaded: readers recognise files by content, and a few by their ending."""
    start = text.lstrip()[:200]
    if start.startswith("{"):
        return "config.json"
    if start.startswith("#!") or start.startswith(("torchrun", "python", "srun", "deepspeed", "export ")):
        return "launch.sh"
    return "flags.args" if start.startswith("--") else PASTED


def paste_card(context: PageContext) -> None:
    """A box for text and files, and what `import` says of them."""
    files: dict[str, bytes] = {}

    async def take(event: events.UploadEventArguments) -> None:
        name, data = event.file.name.replace("/", "_"), await event.file.read()
        files[name_of(data[:400].decode("utf-8", "replace")) if name == PASTED else name] = data
        await read()
        files.clear()

    def refuse(error: Mapping[str, Any]) -> None:
        context.refuse()
        reading.result.clear()
        with reading.result:
            show_error(context, error)

    async def read() -> None:
        text = str(area.value or "")
        uploads: dict[str, bytes] = dict(files)
        if text.strip():
            uploads[name_of(text)] = text.encode("utf-8", "replace")
        if not uploads:
            return refuse({"message": context.say("compose.empty")})
        if not gpus.validate():
            gpus.run_method("focus")
            return
        place = _place(on := str(machine.value or ""), str(gpus.value or "").strip())
        told, error = await _read(reading, uploads, place)
        if error is not None:
            return refuse(error)
        if told.get("content") == "server":
            with reading.result:
                anchor(context.say("compose.to_serving"), serving_link(told.get("facts") or {}, on))
                await _serve(context, uploads, on)
        if told.get("content") == "job" and len(uploads) == 1:
            await _use(context, *next(iter(uploads.items())), place, reading.result)

    opened = ui.expansion(context.say("compose.paste")).classes("wt-card wt-fold").props('dense id="paste"')
    with opened:
        ui.label(context.say("compose.paste_about")).classes("wt-soft wt-about")
        area = ui.textarea(context.say("compose.text")).props("outlined dense rows=4").classes("full-width")
        with ui.element("div").classes("wt-row"):
            known = list(names("clusters"))
            machine = ui.select(known, label=context.say("compose.machine"), with_input=True, clearable=True, value="h100-ib")
            machine.props("outlined dense").classes("wt-grow")
            gpus = ui.input(
                context.say("compose.gpus"), placeholder=context.say("compose.as_read"), validation=partial(why_unread, parse_whole)
            )
            gpus.props("outlined dense stack-label hide-bottom-space")
        with ui.element("div").classes("wt-row"):
            ui.button(context.say("compose.read"), on_click=read).props("unelevated no-caps")
            size = {"size": f"{MOST_TEXT >> 20} MiB"}
            large = {"message": context.say("compose.too_large", **size)}
            label = context.say("compose.upload", **size)
            upload = choose_files(label, take, max_file_size=MOST_TEXT, on_rejected=lambda: refuse(large))
            area.on("paste", js_handler=LONG_PASTE % (MOST_MESSAGE, upload.id, PASTED))
        reading = Asking(context, lambda told, _: _say_reading(context, told), "pasted")
        reading.result.props('aria-live="polite"')


def _place(on: str, gpus: str) -> dict[str, Any]:
    """The machine that a text is read on; without a number of GPUs, as many as the text says."""
    place: dict[str, Any] = {"on": on} if on else {}
    if on and gpus:
        place["set"] = {"cluster.gpus": str(parse_whole(gpus))}
    return place


def _say_reading(context: PageContext, told: Mapping[str, Any]) -> None:
    """What was read, assumed and ignored."""
    ui.label(context.say("compose.recognised", format=told.get("format", ""), content=told.get("content", "")))
    if told.get("content") not in ("job", "server"):
        _say_facts(told.get("facts") or {})
    for part in ("built", "assumed", "ignored", "broken"):
        lines = told.get(part) or []
        if not lines:
            continue
        opened = ui.expansion(f"{context.say(f'compose.{part}')} ({len(lines)})", value=part != "built").props("dense")
        with opened, ui.element("ul").classes("wt-list"):
            for line in lines[:200]:
                with ui.element("li"):
                    ui.label(str(line))


def _say_facts(facts: Mapping[str, Any]) -> None:
    """What a log, a result or a trace says, as the terminal lists it."""
    with ui.element("ul").classes("wt-list").props("data-facts"):
        for name, value in facts.items():
            lines = value if name in SENTENCES else [value["text"] if name == "hang" and value else format_fact(name, facts)]
            for line in lines:
                with ui.element("li"):
                    ui.label(f"{name.replace('_', ' ')}: {line}")


async def _read(
    reading: Asking, uploads: Mapping[str, bytes], place: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:  # fmt: skip
    """What `import` says of uploads on a machine; without one where what was pasted is no job. With the first error where
    neither is answered; nothing where somebody asked anew meanwhile."""
    asked = await reading.run(Wanted("import", {"paths": list(uploads), **place}, uploads), ignores=lambda _: True)
    first = reading.error
    if asked is None and first is not None and first.get("kind") != "Cancelled":
        asked = await reading.run(Wanted("import", {"paths": list(uploads)}, uploads), ignores=lambda _: True)
    if asked is None:
        return {}, first if reading.error is not None else None
    told: Mapping[str, Any] = json.loads(asked.bytes)
    return told, first if told.get("content") == "job" else None


async def _serve(context: PageContext, uploads: Mapping[str, bytes], on: str) -> None:
    """The answer of the server that a pasted line or manifest starts, with its load where a client stands beside it."""
    asking = Asking(context, lambda _, asked: show_sheet(context, asked), "pasted-server")
    if on:
        name = next(iter(uploads))
        await asking.run(Wanted("serve-predict", {"model": name, "on": on}, uploads, SHEET))
    else:
        with asking.result:
            ui.label(context.say("compose.needs_machine")).classes("wt-soft")


_OF_SERVER = {
    "model": "model",
    "engine": "engine",
    "tp": "tp",
    "isl": "isl",
    "osl": "osl",
    "rate": "rate",
    "concurrency": "concurrent",
}
"""Field of a started server -> field of the section for servers."""


def serving_link(facts: Mapping[str, Any], on: str) -> str:
    """The address of the section for servers with what a pasted line says, where limits are set and plans searched."""
    said = {f"v.{field}": str(facts[name]) for name, field in _OF_SERVER.items() if name in facts}
    if (weights := weights_of(str(facts.get("quantization", "")))) is not None:
        said |= {"v.weights": weights, "v.formats": weights}
    if "engine" in facts:
        said["v.engines"] = str(facts["engine"])
    return "/ui/serving?" + urlencode(said | ({"v.on": on} if on else {}))


async def _use(context: PageContext, name: str, data: bytes, place: Mapping[str, Any], said: ui.element) -> None:
    """Asks for what was read, if it is text that describes a job."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return
    question = Question(name, place.get("set", {}), on=place.get("on", ""), files={name: text})
    if len(text) > MOST_PACKED and not pack_table({"files": {name: text}}):
        with said:
            ui.label(context.say("compose.long")).classes("wt-soft")
    await context.show(context.view.with_question(question))
