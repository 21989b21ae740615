"""The page of a kept run's incidents: a timeline, where each second went, and what every incident was and cost."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.frame import Cell
from windtunnel.goodput.measured import FleetRun, Twin
from windtunnel.records.incidents import Incident, replayed_seconds
from windtunnel.report.fleet.twin import ettr_text, replay_notes, shares, twin_lines
from windtunnel.report.page.prediction import section
from windtunnel.sheet import numbers as say

PHASES = (
    ("detect", "detecting", "#b91c1c"), ("diagnose", "diagnosing", "#ea580c"), ("wait", "waiting for a node", "#a16207"),
    ("start", "starting", "#7c3aed"), ("load", "loading", "#0e7490"), ("replay", "repeating steps", "#64748b"),
)  # fmt: skip
"""Field of an incident's seconds, its word and its colour."""
TRAINS = "#16a34a"
COLOURS = {
    "training that counts": TRAINS, "until the fault was detected": PHASES[0][2], "self-tests and the decision": PHASES[1][2],
    "waiting for a node": PHASES[2][2], "starting processes and groups": PHASES[3][2], "reading the checkpoint": PHASES[4][2],
    "repeated steps": PHASES[5][2], "saves that hold training up": "#2563eb",
}  # fmt: skip
"""By the words of `twin.PARTS`."""
MOST_LANES, LANE_INCIDENTS = 12, 12
"""Lines of the timeline at most, and incidents from which on it gets another."""
WIDE, TALL, LEFT = 1180.0, 30.0, 64.0


def incidents_page(name: str, run: FleetRun, found: Twin | None, command: str = "") -> str:
    """The page's text. `found`: what the run's own laws predict, None without an incident that the run recovered from."""
    incidents = run.incidents
    down = sum(one.seconds.down for one in run.counted_incidents)
    again = sum(replayed_seconds(one, run.step) for one in run.counted_incidents)
    parts = [section("The run", _timeline(run)), section("Where the time went", _shares(run, found))]
    if found is not None:
        lines = Markup().join(Markup("<li>{}</li>").format(line) for line in twin_lines(found, run))
        parts.append(section("What the run's own rates predict", Markup('<ul class="notes">{}</ul>').format(lines)))
    if found is None and (notes := replay_notes(run)):
        told_notes = Markup().join(Markup("<li>{}</li>").format(line) for line in notes)
        parts.append(section("Repeated steps", Markup('<ul class="notes">{}</ul>').format(told_notes)))
    parts.append(section("Incidents", _table(run) if incidents else Markup("<p>None.</p>")))
    worst = max(incidents, key=lambda one: one.seconds.down + replayed_seconds(one, run.step), default=None)
    cards = [
        ("ETTR measured", ettr_text(run), ""),
        ("ETTR predicted", say.percent(found.predicted) if found is not None else "unknown", ""),
        ("incidents", f"{len(incidents):,}", ""),
        ("without training", say.seconds(down), ""),
        ("repeated steps", f"{'at least ' if run.unknown_replays else ''}{say.seconds(again)}", ""),
        (
            "costliest incident",
            "none" if worst is None else say.seconds(worst.seconds.down + replayed_seconds(worst, run.step)),
            "",
        ),
    ]
    kinds = ", ".join(f"{count} {what}" for what, count in Counter(one.what for one in incidents).most_common())
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.began))
    told = [f"Began {begun}, {say.seconds(run.wall)}, a step takes {say.seconds(run.step)}"] + ([kinds] if kinds else [])
    return frame.page(name, told, cards, Markup().join(parts), {}, command)


def write_incidents_page(text: str, path: str | Path) -> None:
    """Writes the page; FileError if the path cannot be written."""
    frame.write_page(text, path)


def incidents_dict(run: FleetRun) -> dict[str, Any]:
    """What the page's table has, as data."""
    return {
        "ettr": run.ettr,
        "step_s": run.step,
        "wall_s": run.wall,
        "parts": run.parts,
        "incidents": [
            {"number": one.number, "what": one.what, "node": one.node, "action": one.action, "outcome": one.outcome,
             "evidence": one.evidence, "went_on": run.went_on.get(one.number),
             "down_s": one.seconds.down, "replay_s": None if one.is_replay_unknown else replayed_seconds(one, run.step)}
            for one in run.incidents
        ],
    }  # fmt: skip


def _timeline(run: FleetRun) -> Markup:
    """Lines of equal time with each incident's phases, and what the colours mean."""
    lanes = min(MOST_LANES, max(1, math.ceil(len(run.incidents) / LANE_INCIDENTS)))
    each, scale = run.wall / lanes, (WIDE - LEFT) / (run.wall / lanes)
    drawn = [
        Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="The run with its incidents">').format(WIDE, lanes * (TALL + 8) + 4)
    ]
    for lane in range(lanes):
        top = lane * (TALL + 8)
        drawn.append(Markup('<text x="0" y="{}">{}</text>').format(top + TALL / 2 + 4, _clock(lane * each)))
        drawn.append(_box(LEFT, top, WIDE - LEFT, TRAINS, f"training from {_clock(lane * each)} on"))
    for one in run.incidents:
        for start, end, word, colour in _spans(one, run):
            title = f"{one.number}: {one.what}{f' on {one.node}' if one.node else ''}; {word} {say.seconds(end - start)}"
            for lane in range(int(start // each), min(lanes - 1, int(end // each)) + 1):
                low, high = max(start, lane * each), min(end, (lane + 1) * each)
                if high > low:
                    wide = max(0.8, (high - low) * scale)
                    drawn.append(_box(LEFT + (low - lane * each) * scale, lane * (TALL + 8), wide, colour, title))
    keys = [("training", TRAINS), *((word, colour) for _, word, colour in PHASES)]
    legend = Markup().join(Markup('<span><i style="background:{}"></i>{}</span>').format(colour, word) for word, colour in keys)
    return Markup().join([*drawn, Markup('</svg><div class="key">{}</div>').format(legend)])


def _spans(one: Incident, run: FleetRun) -> list[tuple[float, float, str, str]]:
    """(start, end, word, colour) of an incident's phases, in seconds from the run's begin, one after the other."""
    now, spans = one.began - run.began, []
    for field, word, colour in PHASES:
        seconds = replayed_seconds(one, run.step) if field == "replay" else getattr(one.seconds, field) or 0.0
        if seconds > 0.0:
            spans.append((now, now + seconds, word, colour))
        now += seconds
    return spans


def _box(x: float, y: float, wide: float, colour: str, title: str) -> Markup:
    text = Markup('<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:g}" fill="{}"><title>{}</title></rect>')
    return text.format(x, y, wide, TALL, colour, title)


def _clock(seconds: float) -> str:
    """`1:02:03` since the run began."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _shares(run: FleetRun, found: Twin | None) -> Markup:
    """Bars of the measured shares, with the predicted ones beside them."""
    rows = shares(found, run) if found is not None else _measured_only(run)
    most = max((measured or 0.0 for _, measured, _ in rows), default=0.0) or 1.0
    bars = [
        {
            "label": what,
            "value": say.seconds((measured or 0.0) * run.wall),
            "share": f"{say.percent(measured or 0.0, 2)}" + ("" if found is None else f", predicted {say.percent(predicted, 2)}"),
            "width": 100.0 * (measured or 0.0) / most,
            "colour": COLOURS.get(what, "#64748b"),
            "title": what,
        }
        for what, measured, predicted in rows
    ]
    return frame.part("bars", bars)


def _measured_only(run: FleetRun) -> list[tuple[str, float | None, float]]:
    return [("training that counts", run.parts["useful"], 0.0), ("saves that hold training up", run.parts["save"], 0.0)]


def _table(run: FleetRun) -> Markup:
    heads = [
        ("number", True), ("after", True), ("what", False), ("where", False), ("why", False), ("action", False),
        ("no training", True), ("repeated steps", True), ("cost", True), ("outcome", False),
    ]  # fmt: skip
    return frame.part("table", "incidents", heads, [_row(one, run) for one in run.incidents])


def _row(one: Incident, run: FleetRun) -> Sequence[Cell]:
    again, after = replayed_seconds(one, run.step), one.began - run.began
    ranks = f"rank{'s' if len(one.ranks) > 1 else ''} {', '.join(map(str, one.ranks[:8]))}{' …' if len(one.ranks) > 8 else ''}"
    place = " ".join(part for part in (one.node or "", ranks if one.ranks else "") if part) or "unknown"
    steps = "unknown" if one.lost_steps is None else f"{one.lost_steps:,}"
    return [
        (str(one.number), float(one.number)), (_clock(after), after), (one.what, None), (place, None),
        (say.clean(run.story(one)) or "no details", None), (one.action, None),
        (say.seconds(one.seconds.down), one.seconds.down),
        (steps, float(one.lost_steps if one.lost_steps is not None else -1)),
        (say.seconds(one.seconds.down + again), one.seconds.down + again), (one.outcome, None),
    ]  # fmt: skip
