"""The answers that a reader has seen, newest first: kept in the reader's browser alone, and bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.service.door import Asked
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.frame import card
from windtunnel.service.page.state import anchor

MOST_KEPT = 30
_ADDRESS = re.compile(r"/ui/answer(\?[^\s\"'<>]*)?")
_READ = "JSON.parse(localStorage.getItem('windtunnel_history') || '[]')"
_WRITE = (
    "{{ const one = {one}; const kept = " + _READ + ".filter(other => other.key !== one.key); "
    "localStorage.setItem('windtunnel_history', JSON.stringify([one, ...kept].slice(0, {most}))); }}"
)


def remember(context: PageContext, asked: Asked, step: str) -> None:
    """Adds an answer; `step` is its step time in words."""
    one = {"key": asked.key, "command": asked.command[:300], "step": step, "address": context.link("answer")[:7000]}
    ui.run_javascript(_WRITE.format(one=json.dumps(one), most=MOST_KEPT))


def read_rows(found: Any) -> list[Mapping[str, str]]:
    """What a browser says that it kept, without what is none of ours."""
    rows: list[Mapping[str, str]] = []
    for one in found if isinstance(found, list) else []:
        if not isinstance(one, dict) or not all(isinstance(one.get(name), str) for name in ("key", "command", "step", "address")):
            continue
        if _ADDRESS.fullmatch(one["address"]) and re.fullmatch(r"[0-9a-f]{64}", one["key"]):
            rows.append({name: one[name][:7000] for name in ("key", "command", "step", "address")})
    return rows[:MOST_KEPT]


async def history_card(context: PageContext) -> None:
    """The answers seen so far, with their links."""
    rows = read_rows(await ui.run_javascript(f"return {_READ}", timeout=10.0))
    if not rows:
        return
    with card(context.say("answer.history"), context.say("answer.history_about"), "history"):
        for row in rows:
            with ui.element("div").classes("wt-past"):
                ui.label(row["step"]).classes("wt-number wt-strong")
                anchor(row["command"].removesuffix(" --json -"), row["address"])
