"""Parts of the section `run`: neighbours, incidents, checkpoints, and the run beside what its job should take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from windtunnel.service.page.asking import draw_chart, show_numbers, show_table
from windtunnel.service.page.charts.heat import incident_line
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.frame import card, show_error
from windtunnel.service.page.sections.trust_parts import show_comparison
from windtunnel.sheet import numbers as say

MOST_ROWS = 100


def show_story(context: PageContext, found: Mapping[str, Any]) -> None:
    """Who is whose neighbour, what happened to the run, and which of its states were kept."""
    watched = found.get("watched") or {}
    if watched.get("mesh") and watched.get("mesh_ranks"):
        with card(context.say("run.neighbours"), context.say("run.neighbours_about"), "neighbours"):
            _neighbours(context, watched)
    incidents = found.get("incidents")
    if incidents:
        with card(context.say("run.incidents"), "", "incidents"):
            _incidents(context, incidents)
    saves = found.get("saves")
    if saves:
        with card(context.say("run.checkpoints"), "", "checkpoints"):
            _saves(context, saves)


def _neighbours(context: PageContext, watched: Mapping[str, Any]) -> None:
    """Groups with what flows in them, who waits for whom, and of each rank its place and who shares an axis with it."""
    waits = {one["rank"]: one for one in watched.get("waits") or ()}
    rows = [
        {"rank": rank, "place": place, **others,
         "waits": "" if rank not in waits else f"{waits[rank]['for']}: {say.seconds(waits[rank]['seconds'])}"}
        for rank, place, others in places_of(watched["mesh"], watched["mesh_ranks"])[:MOST_ROWS]
    ]  # fmt: skip
    axes = [str(axis) for axis in watched["mesh"]["axes"]]
    columns = [("rank", context.say("run.rank")), ("place", context.say("run.place")),
               *((f"on_{axis}", context.say("run.same", axis=axis)) for axis in axes),
               ("waits", context.say("run.waits"))]  # fmt: skip
    show_table(columns, rows, context.say("run.neighbours"))
    flows = watched.get("flows") or ()
    if flows:
        cells = [{"name": one["name"], "ranks": _few(one["ranks"]), "calls": one["calls"], "bytes": say.size(one["bytes"]),
                  "ms": one["ms"]} for one in flows[:MOST_ROWS]]  # fmt: skip
        ui.html(f"<h3>{context.say('run.groups')}</h3>", sanitize=False)
        show_table([(key, context.say(f"run.group_{key}")) for key in ("name", "ranks", "calls", "bytes", "ms")], cells,
                   context.say("run.groups"))  # fmt: skip


def places_of(mesh: Mapping[str, Any], ranks: Sequence[int]) -> list[tuple[int, str, dict[str, str]]]:
    """Of each rank its place in the mesh in words, and `on_AXIS`: the ranks that differ from it in that axis alone."""
    axes, places = list(mesh["axes"]), [tuple(place) for place in mesh["coordinates"]]
    lines: list[dict[tuple[int, ...], list[int]]] = [{} for _ in axes]
    for rank, place in zip(ranks, places, strict=True):
        for at in range(len(axes)):
            lines[at].setdefault(place[:at] + place[at + 1 :], []).append(rank)
    found = []
    for rank, place in zip(ranks, places, strict=True):
        words = ", ".join(f"{axis} {one}" for axis, one in zip(axes, place, strict=True))
        others = {
            f"on_{axis}": _few([one for one in lines[at][place[:at] + place[at + 1 :]] if one != rank])
            for at, axis in enumerate(axes)
        }
        found.append((rank, words, others))
    return found


def _few(ranks: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:most])
    return f"{shown} … ({len(ranks)})" if len(ranks) > most else shown


def _incidents(context: PageContext, incidents: Mapping[str, Any]) -> None:
    if error := incidents.get("error"):
        show_error(context, error)
        return
    wall, ettr, listed = incidents.get("wall_s"), incidents.get("ettr"), incidents["incidents"]
    show_numbers([
        (context.say("run.ettr"), "–" if ettr is None else say.percent(ettr)),
        (context.say("run.wall"), "–" if wall is None else say.seconds(wall)),
        (context.say("run.count_incidents"), f"{len(listed):,}"),
        (context.say("run.down"), say.seconds(sum(one["down_s"] or 0.0 for one in listed))),
    ])  # fmt: skip
    if wall and listed:
        names = {"x": context.say("run.hours"), "y": context.say("run.down_s"), "down": context.say("run.down")}
        draw_chart(incident_line(wall, listed, names), context.say("run.incidents"), 220)
    rows = [{**{key: one.get(key) for key in ("number", "what", "node", "action", "outcome", "evidence")},
             "down": say.seconds(one["down_s"] or 0.0)} for one in reversed(listed)]  # fmt: skip
    heads = ("number", "what", "node", "action", "down", "outcome", "evidence")
    show_table([(key, context.say(f"run.{key}")) for key in heads], rows, context.say("run.incidents"))


def _saves(context: PageContext, saves: Any) -> None:
    if isinstance(saves, Mapping):
        show_error(context, saves["error"])
        return
    kept = [one for one in saves if one["committed"] and one["committed"] >= one["saved"] and not one["failed"]]
    show_numbers([
        (context.say("run.newest_save"), f"{kept[-1]['step']:,}" if kept else "–"),
        (context.say("run.saves"), f"{len(saves):,}"),
        (context.say("run.failed_saves"), f"{sum(bool(one['failed']) for one in saves):,}"),
        (context.say("run.held_up"), say.seconds(max(one["blocked_s"] for one in saves))),
    ])  # fmt: skip
    rows = [
        {"step": one["step"], "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one["unix"])),
         "blocked": say.seconds(one["blocked_s"]),
         "state": context.say("run.save_failed" if one["failed"] else "run.save_kept" if one in kept else "run.save_open"),
         "why": one["why"]}
        for one in reversed(saves)
    ]  # fmt: skip
    show_table([(key, context.say(f"run.save_{key}")) for key in ("step", "when", "blocked", "state", "why")], rows,
               context.say("run.checkpoints"))  # fmt: skip


def show_compared(context: PageContext, compared: Any) -> None:
    """The run beside its job: section by section, and the causes of what differs."""
    if compared is None:
        ui.label(context.say("run.not_compared")).classes("wt-soft")
        return
    if error := compared.get("error"):
        show_error(context, error)
        return
    show_comparison(context, compared)
    rows = [
        {"name": one["name"], "stage": one["stage"],
         "expected": f"{say.seconds(one['expected'])} ± {say.percent(one['error'] or 0.0)}",
         "median": say.seconds(one["median"]), "spread": f"{say.seconds(one['low'])} – {say.seconds(one['high'])}",
         "leaves": context.say("run.yes") if one["leaves"] else ""}
        for one in compared.get("sections", ()) if one.get("expected") is not None and one.get("median") is not None
    ]  # fmt: skip
    heads = ("name", "stage", "expected", "median", "spread", "leaves")
    show_table([(key, context.say(f"run.section_{key}")) for key in heads], rows, context.say("run.compared"))
