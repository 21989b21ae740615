"""One self-contained page: readable offline, no request to anywhere, light and dark, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from windtunnel.compute import PROVENANCES
from windtunnel.draw.page import frame
from windtunnel.draw.page.frame import Cell
from windtunnel.predict.prediction import Prediction, UnequalResult
from windtunnel.report.page.job_lines import describe_job, fields_part
from windtunnel.report.page.load import network_part
from windtunnel.report.page.pipeline import KINDS, memory_bars, memory_curves, pipeline
from windtunnel.report.page.sharing import sharing
from windtunnel.report.page.unequal import replica_maps
from windtunnel.report.words.bill import bill_lines
from windtunnel.report.words.errors import errors_of_figures
from windtunnel.report.words.evidence import closing_sentence, evidence_sentence, profile_lines
from windtunnel.report.words.faults import faults_sentence
from windtunnel.report.words.headline import headline_figures, parameters_of
from windtunnel.report.words.offload import tier_lines
from windtunnel.report.words.parts import COLOUR, MEMORY_COLOUR, MEMORY_PARTS, each_of, group_sums, label_of, parts_of
from windtunnel.report.words.published import bias_sentence
from windtunnel.report.words.reason import reasons
from windtunnel.report.words.sharing import saving_sentence, sharing_sentence
from windtunnel.report.words.unequal import HEADS, class_cells, unequal_sentence
from windtunnel.sheet import numbers as say

MOST_ROWS = 400
"""Rows of a table at most, largest first."""


def write_html(prediction: Prediction, path: str | Path, command: str = "") -> None:
    """Write the page; FileError if the path cannot be written. `command`: shown in the footer, to reproduce the page."""
    frame.write_page(page(prediction, command), path)


def page(prediction: Prediction, command: str = "") -> str:
    """The page's text."""
    picture = pipeline(prediction)
    sections = [section("What to look at first", _reasons(prediction)), section("Where the time goes", _breakdown(prediction))]
    if prediction.unequal is not None:
        sections.append(section("Ranks that differ", _unequal(prediction.unequal, prediction.step_time_s)))
    if picture:
        sections.append(_pipeline(picture, prediction))
    if prediction.memory:
        sections.append(section("Memory of the fullest GPU, by stage", _memory(prediction)))
    if prediction.kernels:
        sections.append(_kernels(prediction))
    if prediction.collectives:
        sections.append(section("Communication calls", _collectives(prediction)))
    if prediction.traffic is not None:
        sections.append(section("The network over one step", network_part(prediction.traffic)))
    if prediction.sharing is not None:
        sections.append(section("Beside other traffic", sharing(prediction.sharing)))
    if prediction.critical_path:
        sections.append(section("Critical path", _critical_path(prediction)))
    if bill := bill_lines(prediction):
        sections.append(section("Power and money", Markup().join(Markup("<p>{}</p>").format(line) for line in bill)))
    sections.append(section("What this rests on", _evidence(prediction)))
    sections.append(section("The job", fields_part(prediction.job)))
    body = Markup().join(sections)
    return frame.page(prediction.job.name, _subtitle(prediction), _cards(prediction), body, None, command)


def section(title: str, body: Markup) -> Markup:
    """A titled part of a page."""
    return frame.part("section", title, body)


def _subtitle(prediction: Prediction) -> tuple[str, str]:
    return describe_job(prediction.job, parameters_of(prediction) if prediction.parameters else "")


def _cards(prediction: Prediction) -> list[tuple[str, str, str]]:
    def mood(name: str, style: str) -> str:
        return "good" if "green" in style and name == "memory" else "bad" if "red" in style else ""

    within = errors_of_figures(prediction)
    return [(name, within.get(name, value), mood(name, style)) for name, value, style in headline_figures(prediction)]


def _reasons(prediction: Prediction) -> Markup:
    bias = bias_sentence(prediction)
    cost = [faults_sentence(prediction.faults)] if prediction.faults is not None else []
    cost += [sharing_sentence(prediction.sharing)] if prediction.sharing is not None else []
    cost += [saving_sentence(prediction.saving)] if prediction.saving is not None else []
    return frame.part("reasons", ([bias] if bias else []) + cost + reasons(prediction, 6), prediction.warnings)


def _stripe(breakdown: Mapping[str, float], step: float) -> Markup:
    parts = []
    for group, seconds in group_sums(breakdown).items():
        share = 100.0 * seconds / step if step > 0 else 0.0
        label = f"{group} {share:.0f} %"
        inside = label if share > 12 else f"{share:.0f} %" if share > 4 else ""
        title = f"{label}, {say.seconds(seconds)}"
        parts.append({"share": share, "colour": COLOUR[group], "title": title, "inside": inside})
    return frame.part("stripe", parts)


def _breakdown(prediction: Prediction) -> Markup:
    step = prediction.step_time_s
    parts = parts_of(prediction.breakdown, step)
    longest = max((p.share for p in parts), default=1.0) or 1.0
    rows = [
        {
            "label": p.label,
            "value": say.seconds(p.seconds),
            "share": say.percent(p.share),
            "width": 100 * p.share / longest,
            "colour": COLOUR[p.group],
            "title": str(p.group),
        }
        for p in parts
    ]
    hidden = [f"{label_of(k)} {say.seconds(s)}" for k, s in sorted(prediction.overlapped.items(), key=lambda kv: -kv[1]) if s > 0]
    below = Markup('<p class="soft">Hidden behind computation: {}</p>').format(", ".join(hidden)) if hidden else Markup()
    stages = Markup()
    if len(prediction.by_stage) > 1:
        line = Markup('<div class="soft">stage {}</div><div style="grid-column:2/5">{}</div>')
        shown = enumerate(prediction.by_stage[:64])
        lines = Markup().join(line.format(i, _stripe(stage, sum(stage.values()))) for i, stage in shown)
        stages = Markup('<details><summary>By stage</summary><div class="parts" style="margin-top:10px">{}</div></details>').format(
            lines
        )
    return _stripe(prediction.breakdown, step) + frame.part("bars", rows) + below + stages


def _key(entries: Iterable[tuple[str, str]]) -> Markup:
    """The legend of colours."""
    return Markup().join(Markup('<span><i style="background:{}"></i>{}</span>').format(colour, name) for colour, name in entries)


def _pipeline(picture: Mapping[str, Any], prediction: Prediction) -> Markup:
    key = _key([*((KINDS[i][1], KINDS[i][0]) for i in picture["used"]), ("var(--idle)", "idle")])
    stages = picture["stages"]
    left_out = "" if picture["all_stages"] == len(stages) else f" {len(stages)} of {picture['all_stages']} stages are drawn."
    paler = " Later virtual stages are fainter." if prediction.job.plan.vpp > 1 else ""
    return Markup(
        '<section><div class="row"><h2>The pipeline over one step</h2>'
        '<button id="reset" type="button" hidden>whole step</button></div>'
        '<div class="picture"><canvas id="pipeline" tabindex="0" role="img" aria-label="Timeline of every pipeline stage"></canvas>'
        '<div id="tip"></div></div><div class="key">{}<span>Numbers are micro batches.{}{} '
        "Drag to move, double-click or Ctrl and wheel to zoom.</span></div>{}</section>"
    ).format(key, paler, left_out, frame.told_script("pipeline-data", {**picture, "stage": "stage"}))


def _memory(prediction: Prediction) -> Markup:
    used = [p for p in MEMORY_PARTS if any(getattr(s, p) > 0 for s in prediction.memory)]
    key = Markup('<div class="key">{}</div>').format(_key((MEMORY_COLOUR[p], p) for p in used))
    curves = memory_curves(prediction)
    over = _HEAD.format("Allocated over the step") + Markup(curves) if curves else Markup()  # drawn by picture.py, which escapes
    beside = Markup().join(Markup("<p>{}</p>").format(line.plain) for line in tier_lines(prediction.memory))
    return Markup(memory_bars(prediction.memory)) + key + beside + over


def _table(name: str, heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Cell]]) -> Markup:
    """A table that can be sorted; a head is (text, whether its column holds numbers)."""
    return frame.part("table", name, heads, list(rows))


def _kernels(prediction: Prediction) -> Markup:
    ordered = sorted(prediction.kernels, key=lambda k: -k.seconds_total)[:MOST_ROWS]
    heads = [
        ("kernel", False),
        ("module", False),
        ("class", False),
        ("phase", False),
        ("shape", False),
        ("times", True),
        ("each", True),
        ("total", True),
        ("share", True),
        ("evidence", False),
    ]
    rows = [
        [
            (k.name, None),
            (k.module, None),
            (k.kind, None),
            (k.phase, None),
            (k.shape, None),
            (f"{k.count:,}", float(k.count)),
            (say.seconds(each_of(k)), each_of(k)),
            (say.seconds(k.seconds_total), float(k.seconds_total)),
            (say.percent(k.share), float(k.share)),
            (f"{k.provenance} ±{100 * k.relative_error:.0f} %", None),
        ]
        for k in ordered
    ]
    return Markup(
        '<section><div class="row"><h2>Kernels of the slowest stage</h2><div><span class="soft" id="kernels-count"></span> '
        '<input data-filters="kernels" placeholder="filter, e.g. gemm wgrad" aria-label="filter kernels"></div></div>'
        "{}</section>"
    ).format(_table("kernels", heads, rows))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _collectives(prediction: Prediction) -> Markup:
    heads = [
        ("call", False),
        ("axis", False),
        ("ranks", True),
        ("nodes", True),
        ("buffer", True),
        ("algorithm", False),
        ("protocol", False),
        ("channels", True),
        ("time", True),
        ("busbw GB/s", True),
        ("times", True),
    ]
    rows: list[list[Cell]] = []
    for call in [call for call in prediction.collectives if _number(call.get("count", 1)) > 0][:MOST_ROWS]:
        n = {k: _number(call.get(k)) for k in ("ranks", "nodes", "bytes", "channels", "time_us", "busbw_GBs", "count")}
        text = {k: str(call.get(k) or "") for k in ("name", "axis", "algorithm", "protocol", "dimensions")}
        rows.append(
            [
                (text["name"], None),
                (text["axis"], None),
                (f"{n['ranks']:.0f}", n["ranks"]),
                (f"{n['nodes']:.0f}", n["nodes"]),
                (say.size(n["bytes"]), n["bytes"]),
                (text["algorithm"], None),
                (f"{text['protocol']} {text['dimensions']}".strip(), None),
                (f"{n['channels']:.0f}", n["channels"]),
                (say.seconds(n["time_us"] * 1e-6), n["time_us"]),
                (f"{n['busbw_GBs']:.1f}", n["busbw_GBs"]),
                (f"{n['count']:,.0f}", n["count"]),
            ]
        )
    return _table("collectives", heads, rows)


_HEAD = Markup('<h2 style="margin-top:20px">{}</h2>')


def _unequal(result: UnequalResult, step: float) -> Markup:
    """Who waits for whom: a sentence, the map, a table."""
    heads = [(head, False) for head in HEADS]
    rows: list[list[Cell]] = [[(text, None) for text in class_cells(one, result)] for one in result.classes[:MOST_ROWS]]
    return (
        Markup("<p>{}</p>").format(unequal_sentence(result, step)) + Markup(replica_maps(result)) + _table("unequal", heads, rows)
    )


def _critical_path(prediction: Prediction) -> Markup:
    """The critical path: seconds by category, and each link."""
    links = [
        (str(e.get("what", "")), e.get("stage"), _number(e.get("seconds")), _number(e.get("count", 1)), e.get("parts"))
        for e in prediction.critical_path
        if _number(e.get("seconds")) > 0.0
    ]
    path_seconds = sum(seconds for _, _, seconds, _, _ in links) or 1.0
    sums: dict[str, float] = {}
    for what, _, seconds, _, parts in links:
        for name, part in (parts if isinstance(parts, dict) else {what: seconds}).items():
            sums[str(name)] = sums.get(str(name), 0.0) + _number(part)
    total: list[list[Cell]] = [
        [(what, None), (say.seconds(s), s), (say.percent(s / path_seconds), s / path_seconds)]
        for what, s in sorted(sums.items(), key=lambda kv: -kv[1])
    ]
    chain: list[list[Cell]] = [
        [(f"{i}", float(i)), (f"{stage}", None), (what, None), (say.seconds(s), s), (f"{n:,.0f}", n)]
        for i, (what, stage, s, n, _) in enumerate(links[:MOST_ROWS], start=1)
    ]
    left = Markup('<p class="soft">and {} more</p>').format(len(links) - MOST_ROWS) if len(links) > MOST_ROWS else ""
    heads = [("link", True), ("stage", False), ("what", False), ("time", True), ("times", True)]
    details = Markup('<details style="margin-top:10px"><summary>Link by link</summary>{}{}</details>')
    return _table("path", [("what", False), ("time", True), ("share", True)], total) + details.format(
        _table("chain", heads, chain), left
    )


def _evidence(prediction: Prediction) -> Markup:
    shares = [
        {
            "label": k,
            "value": say.percent(share),
            "share": "",
            "width": 100 * min(1.0, max(0.0, share)),
            "colour": "var(--accent)",
            "title": k,
        }
        for k in (*PROVENANCES, *sorted(set(prediction.provenance) - set(PROVENANCES)))
        if (share := prediction.provenance.get(k, 0.0)) > 0
    ]
    from_profile = profile_lines(prediction)
    notes = prediction.assumptions
    return frame.part("evidence", evidence_sentence(prediction), from_profile, shares, notes, closing_sentence(prediction))
