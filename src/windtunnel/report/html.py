"""One self-contained page: readable offline, no request to anywhere, light and dark, every text escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.compute import PROVENANCES
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.predict.prediction import Prediction, UnequalResult
from windtunnel.report import words as say
from windtunnel.report.fabric_picture import fabric
from windtunnel.report.parts import COLOUR, MEMORY_COLOUR, MEMORY_PARTS, each_of, group_sums, label_of, parts_of
from windtunnel.report.picture import KINDS, memory_bars, memory_curves, pipeline
from windtunnel.report.reason import reasons
from windtunnel.report.terminal import closing_sentence, elsewhere, evidence_sentence, figures, profile_lines
from windtunnel.report.traffic import network_sentence
from windtunnel.report.unequal import HEADS, cells, maps, sentence

_ASSETS = Path(__file__).resolve().parent / "assets"
MOST_ROWS = 400
"""Rows of a table at most, largest first."""


def write_html(prediction: Prediction, path: str | Path) -> None:
    """Write the page; FileError if the path cannot be written."""
    try:
        Path(path).write_text(page(prediction), encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError("--html", str(path), "a file that can be written", f"{error.strerror}.") from error


def page(prediction: Prediction) -> str:
    """The page's text."""
    picture = pipeline(prediction)
    job = prediction.job
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
        sections.append(section("The network over one step", _traffic(prediction.traffic)))
    if prediction.critical_path:
        sections.append(section("Critical path", _critical_path(prediction)))
    sections.append(section("What this rests on", _evidence(prediction)))
    data = json.dumps(picture or {}, allow_nan=False, separators=(",", ":"), sort_keys=True)
    for raw, safe in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        data = data.replace(raw, safe)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(job.name)}: windtunnel</title><style>{asset('page.css')}</style></head><body><main>"
        f"{_header(prediction)}{_cards(prediction)}{''.join(sections)}</main>"
        f'<script type="application/json" id="data">{data}</script><script>{asset("page.js")}</script></body></html>\n'
    )


def asset(name: str) -> str:
    """The text of a file of `assets/`."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def section(title: str, body: str) -> str:
    """A titled part of a page; `body` is HTML."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _header(prediction: Prediction) -> str:
    job, plan = prediction.job, prediction.job.plan
    parameters = f", {say.tokens(prediction.parameters)} parameters" if prediction.parameters else ""
    who = (
        f"{job.model.name}{parameters}, {job.cluster.gpus:,} × {job.cluster.gpu.name} ({job.cluster.id}), "
        f"{job.runtime.framework} {job.runtime.version} {job.runtime.precision}"
    )
    experts = (f" · ep {plan.ep}" if plan.ep > 1 else "") + (f" · etp {plan.etp}" if plan.etp > 1 else "")
    how = (
        f"tp {plan.tp} · cp {plan.cp} · pp {plan.pp} · vpp {plan.vpp} · dp {job.dp}{experts} · "
        f"{plan.global_batch} × {plan.seq} tokens a step, "
        f"{job.micro_batches} micro batches of {plan.micro_batch} · {plan.schedule_name} · recompute {plan.recompute} · "
        f"sharding {plan.sharding}"
    )
    return (
        f'<header><div><h1>{escape(job.name)}</h1><p>{escape(who)}</p><p class="soft">{escape(how)}</p></div>'
        '<button id="theme" type="button">light / dark</button></header>'
    )


def _cards(prediction: Prediction) -> str:
    made = []
    for name, value, style in figures(prediction):
        mood = " good" if "green" in style and name == "memory" else " bad" if "red" in style else ""
        made.append(f'<div class="card{mood}"><b>{escape(value)}</b><span>{escape(name)}</span></div>')
    return f'<div class="cards">{"".join(made)}</div>'


def _reasons(prediction: Prediction) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in reasons(prediction, 5))
    warnings = "".join(f'<li class="warn">{escape(text)}</li>' for text in prediction.warnings)
    return f'<ol class="reasons">{items}</ol>' + (f'<ul class="notes">{warnings}</ul>' if warnings else "")


def _stripe(breakdown: Mapping[str, float], step: float) -> str:
    made = []
    for group, seconds in group_sums(breakdown).items():
        share = 100.0 * seconds / step if step > 0 else 0.0
        told = f"{group} {share:.0f} %"
        inside = told if share > 12 else f"{share:.0f} %" if share > 4 else ""
        made.append(
            f'<div style="flex:{share:.4f} 0 0;background:{COLOUR[group]};{"" if inside else "padding:0"}" '
            f'title="{escape(told)}, {say.seconds(seconds)}">{escape(inside)}</div>'
        )
    return f'<div class="stripe">{"".join(made)}</div>'


def _breakdown(prediction: Prediction) -> str:
    step = prediction.step_time_s
    parts = parts_of(prediction.breakdown, step)
    longest = max((p.share for p in parts), default=1.0) or 1.0
    rows = "".join(
        f'<div>{escape(p.label)}</div><div class="n">{say.seconds(p.seconds)}</div><div class="n soft">{say.percent(p.share)}</div>'
        f'<div class="bar" style="width:{100 * p.share / longest:.2f}%;background:{COLOUR[p.group]}" title="{p.group}"></div>'
        for p in parts
    )
    hidden = [f"{label_of(k)} {say.seconds(s)}" for k, s in sorted(prediction.overlapped.items(), key=lambda kv: -kv[1]) if s > 0]
    below = f'<p class="soft">Hidden behind computation: {escape(", ".join(hidden))}</p>' if hidden else ""
    stages = ""
    if len(prediction.by_stage) > 1:
        shown = prediction.by_stage[:64]
        lines = "".join(
            f'<div class="soft">stage {i}</div><div style="grid-column:2/5">{_stripe(stage, sum(stage.values()))}</div>'
            for i, stage in enumerate(shown)
        )
        stages = f'<details><summary>By stage</summary><div class="parts" style="margin-top:10px">{lines}</div></details>'
    return f'{_stripe(prediction.breakdown, step)}<div class="parts">{rows}</div>{below}{stages}'


def _pipeline(picture: Mapping[str, Any], prediction: Prediction) -> str:
    used = picture["used"]
    key = "".join(f'<span><i style="background:{KINDS[i][1]}"></i>{KINDS[i][0]}</span>' for i in used)
    key += '<span><i style="background:var(--idle)"></i>idle</span>'
    stages = picture["stages"]
    left_out = "" if picture["all_stages"] == len(stages) else f" {len(stages)} of {picture['all_stages']} stages are drawn."
    paler = " Later virtual stages are fainter." if prediction.job.plan.vpp > 1 else ""
    return (
        '<section><div class="row"><h2>The pipeline over one step</h2>'
        '<button id="reset" type="button" hidden>whole step</button></div>'
        '<div class="picture"><canvas id="pipeline" tabindex="0" role="img" aria-label="Timeline of every pipeline stage"></canvas>'
        f'<div id="tip"></div></div><div class="key">{key}<span>Numbers are micro batches.{paler}{left_out} '
        "Drag to move, double-click or Ctrl and wheel to zoom.</span></div></section>"
    )


def _memory(prediction: Prediction) -> str:
    key = "".join(
        f'<span><i style="background:{MEMORY_COLOUR[p]}"></i>{p}</span>'
        for p in MEMORY_PARTS
        if any(getattr(s, p) > 0 for s in prediction.memory)
    )
    curves = memory_curves(prediction)
    over = f'<h2 style="margin-top:20px">Allocated over the step</h2>{curves}' if curves else ""
    beside = "".join(f"<p>{escape(line.plain)}</p>" for line in elsewhere(prediction.memory))
    return f'{memory_bars(prediction.memory)}<div class="key">{key}</div>{beside}{over}'


Cell = tuple[str, float | None]
"""Text and, in number columns, the value to sort by."""


def _table(name: str, heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Cell]]) -> str:
    head = "".join(
        f'<th data-sort="{"number" if numeric else "text"}"{" class=n" if numeric else ""}>{escape(text)}</th>'
        for text, numeric in heads
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(text)}</td>" if value is None else f'<td class="n" data-value="{value!r}">{escape(text)}</td>'
            for text, value in row
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table id="{name}" data-sortable><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _kernels(prediction: Prediction) -> str:
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
    return (
        '<section><div class="row"><h2>Kernels of the slowest stage</h2><div><span class="soft" id="kernels-count"></span> '
        '<input data-filters="kernels" placeholder="filter, e.g. gemm wgrad" aria-label="filter kernels"></div></div>'
        f"{_table('kernels', heads, rows)}</section>"
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _collectives(prediction: Prediction) -> str:
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
    for call in prediction.collectives[:MOST_ROWS]:
        n = {k: _number(call.get(k)) for k in ("ranks", "nodes", "bytes", "channels", "time_us", "busbw_GBs", "count")}
        text = {k: str(call.get(k) or "") for k in ("name", "axis", "algorithm", "protocol")}
        rows.append(
            [
                (text["name"], None),
                (text["axis"], None),
                (f"{n['ranks']:.0f}", n["ranks"]),
                (f"{n['nodes']:.0f}", n["nodes"]),
                (say.size(n["bytes"]), n["bytes"]),
                (text["algorithm"], None),
                (text["protocol"], None),
                (f"{n['channels']:.0f}", n["channels"]),
                (say.seconds(n["time_us"] * 1e-6), n["time_us"]),
                (f"{n['busbw_GBs']:.1f}", n["busbw_GBs"]),
                (f"{n['count']:,.0f}", n["count"]),
            ]
        )
    return _table("collectives", heads, rows)


_HEAD = '<h2 style="margin-top:20px">{}</h2>'


def _unequal(told: UnequalResult, step: float) -> str:
    """Who waits for whom: a sentence, the map, a table."""
    heads = [(head, False) for head in HEADS]
    rows: list[list[Cell]] = [[(text, None) for text in cells(one, told)] for one in told.classes[:MOST_ROWS]]
    return f"<p>{escape(sentence(told, step))}</p>{maps(told)}{_table('unequal', heads, rows)}"


def _traffic(traffic: Traffic) -> str:
    """The drawing, load by level, hot links, the transfers that others slowed most, and what the fabric had to do."""
    levels: list[list[Cell]] = [
        [(v.name, None), (f"{v.links:,}", float(v.links)), (say.rate(v.rate), v.rate), (say.size(v.bytes), v.bytes),
         (say.percent(v.mean_utilisation), v.mean_utilisation), (say.percent(v.max_utilisation), v.max_utilisation)]
        for v in traffic.levels
    ]  # fmt: skip
    hot: list[list[Cell]] = [
        [(h.name, None), (say.rate(h.rate), h.rate), (say.size(h.bytes), h.bytes), (say.percent(h.utilisation), h.utilisation)]
        for h in traffic.hot[:12]
    ]
    slow: list[list[Cell]] = [
        [(str(t["name"]), None), (f"{_number(t['count']):,.0f}", _number(t["count"])),
         (say.seconds(_number(t["seconds"])), _number(t["seconds"])), (f"{_number(t['slowdown']):.2f}", _number(t["slowdown"]))]
        for t in traffic.slowest
    ]  # fmt: skip
    loads = [("load", True), ("fullest", True)]
    carried = [("rate each", True), ("bytes", True)]
    parts = [fabric(traffic), f'<p class="soft">{escape(network_sentence(traffic))}</p>']
    parts.append(_table("levels", [("from → to", False), ("links", True), *carried, *loads], levels))
    if hot:
        parts.append(_HEAD.format("Hot links") + _table("hot", [("link", False), *carried, ("load", True)], hot))
    if slow:
        heads = [("transfer", False), ("times", True), ("mean time", True), ("over its time alone", True)]
        parts.append(_HEAD.format("Slowed most by others") + _table("slowed", heads, slow))
    return "".join(parts)


def _critical_path(prediction: Prediction) -> str:
    """What the chain that sets the step time consists of, in sum and link by link."""
    links = [
        (str(e.get("what", "")), e.get("stage"), _number(e.get("seconds")), _number(e.get("count", 1)), e.get("parts"))
        for e in prediction.critical_path
        if _number(e.get("seconds")) > 0.0
    ]
    whole = sum(seconds for _, _, seconds, _, _ in links) or 1.0
    sums: dict[str, float] = {}
    for what, _, seconds, _, parts in links:
        for name, part in (parts if isinstance(parts, dict) else {what: seconds}).items():
            sums[str(name)] = sums.get(str(name), 0.0) + _number(part)
    total: list[list[Cell]] = [
        [(what, None), (say.seconds(s), s), (say.percent(s / whole), s / whole)]
        for what, s in sorted(sums.items(), key=lambda kv: -kv[1])
    ]
    chain: list[list[Cell]] = [
        [(f"{i}", float(i)), (f"{stage}", None), (what, None), (say.seconds(s), s), (f"{n:,.0f}", n)]
        for i, (what, stage, s, n, _) in enumerate(links[:MOST_ROWS], start=1)
    ]
    left = f'<p class="soft">and {len(links) - MOST_ROWS} more</p>' if len(links) > MOST_ROWS else ""
    heads = [("link", True), ("stage", False), ("what", False), ("time", True), ("times", True)]
    return (
        f"{_table('path', [('what', False), ('time', True), ('share', True)], total)}"
        f'<details style="margin-top:10px"><summary>Link by link</summary>{_table("chain", heads, chain)}{left}</details>'
    )


def _evidence(prediction: Prediction) -> str:
    shares = "".join(
        f'<div>{escape(k)}</div><div class="n">{say.percent(prediction.provenance[k])}</div><div></div>'
        f'<div class="bar" style="width:{100 * min(1.0, max(0.0, prediction.provenance[k])):.2f}%;background:var(--accent)"></div>'
        for k in (*PROVENANCES, *sorted(set(prediction.provenance) - set(PROVENANCES)))
        if prediction.provenance.get(k, 0.0) > 0
    )
    known = "".join(f"<br>{escape(text)}" for text in profile_lines(prediction))
    notes = "".join(f"<li>{escape(text)}</li>" for text in prediction.assumptions)
    listed = f'<h2 style="margin-top:16px">Assumptions</h2><ul class="notes">{notes}</ul>' if notes else ""
    return (
        f'<p>{escape(evidence_sentence(prediction))}{known}</p><div class="parts" style="margin-top:8px">{shares}</div>{listed}'
        f'<p class="soft">{escape(closing_sentence(prediction))}</p>'
    )
