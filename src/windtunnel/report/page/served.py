"""The page of a served model: latencies, what its passes do over time, where a pass's time goes, memory, money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from windtunnel.base.arrays import Floats
from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import (
    BLUE,
    COLOURS,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    ChartAxis,
    Curve,
    draw_curves,
    key_line,
    paragraphs,
    say_number,
    say_seconds,
)
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.prediction import section
from windtunnel.report.words.served_record import server_sentences
from windtunnel.serving import LatencySpread, Served
from windtunnel.serving.lane import PassRecord
from windtunnel.sheet import numbers as say

_SMALL = Markup('<p class="soft" style="margin-top:14px">{}</p>')

LEFT_OVER = "left"
"""Memory that nothing takes."""

POINTS = 400
"""Moments of a drawing over time."""

PART_COLOURS = dict(
    zip(
        ("products", "experts", "attention", "communication", "norms and activations", "head and sampling", "drafting", "host"),
        (BLUE, GREEN, ORANGE, PINK, SKY, GOLD, "#8a6d3b", GREY),
        strict=True,
    )
)
MEMORY_COLOURS = {"weights": BLUE, "activations": ORANGE, "context": GREY, "cache": GREEN, LEFT_OVER: "var(--idle)"}


def page(answer: Served, command: str = "") -> str:
    """The page's text. The answer has a `detail`."""
    detail = answer.detail
    assert detail is not None, "serve with record=True"
    sections = [section("Latencies", _latencies(answer))]
    sections.append(section("Over time", over_time(detail.log, detail.lanes)))
    sections.append(section("Where a pass's time goes", _passes(answer)))
    sections.append(section("Memory of a GPU", _memory(answer)))
    if lines := _money(answer):
        sections.append(section("Money and energy", paragraphs(lines)))
    if lines := server_sentences(answer):
        sections.append(section("How good", paragraphs(lines)))
    if answer.notes:
        sections.append(section("Notes", paragraphs(answer.notes)))
    data = {"over": thin_log(detail.log)}
    return frame.page(
        f"Serving {answer.server.model.name}",
        _subtitle(answer),
        _cards(answer),
        Markup().join(sections),
        data,
        command,
        "serving.js",
    )


def _subtitle(answer: Served) -> tuple[str, str]:
    server, cluster = answer.server, answer.server.job.cluster
    copies = f"{server.replicas} × {plan_words(server.plan)}"
    if answer.prefill is not None:
        side = answer.prefill
        copies = f"{side.copies} × {plan_words(side.plan)} for prompts, {side.decode_copies} × {plan_words(server.plan)} for tokens"
    drafted = "" if server.speculation is None else f" · drafts {server.speculation.words()}"
    asked = f"{answer.requests:,} requests in {say.seconds(answer.seconds)}"
    return (
        f"{server.engine.name} on {cluster.gpus} × {cluster.gpu.name} ({cluster.id})",
        f"{copies} · weights {server.weights} · cache {server.kv}{drafted} · {asked}",
    )


def plan_words(plan: Any) -> str:
    """Degrees of a plan that are more than one."""
    return " · ".join(f"{name} {getattr(plan, name)}" for name in ("tp", "dp", "pp", "ep") if getattr(plan, name) > 1) or "tp 1"


def _cards(answer: Served) -> list[tuple[str, str, str]]:
    errors = answer.relative_errors()
    token = say.seconds(answer.tpot.mean) + say.error_words(errors["tpot"]) if answer.tpot.mean > 0.0 else "-"
    cards = [
        ("output tokens/s a GPU", f"{answer.tokens_per_s_gpu:,.0f}" + say.error_words(errors["throughput"]), ""),
        ("a token, mean", token, ""),
        ("first token, mean", say.seconds(answer.ttft.mean) + say.error_words(errors["ttft"]), ""),
        ("requests/s", f"{answer.requests_per_s:.3g}", ""),
    ]
    if answer.limits is not None:
        cards.append(("keep the limits", say.percent(answer.limits.kept), "good" if answer.limits.kept >= 0.9 else "bad"))
    if answer.accepted is not None:
        cards.append(("tokens a pass of a request", f"{answer.accepted:.3g}", ""))
    if answer.dollars is not None:
        cards.append(("price of a million output tokens", say.dollars(answer.dollars) + say.error_words(errors["dollars"]), ""))
    if answer.joules is not None:
        cards.append(("energy of a million output tokens", say.energy(answer.joules) + say.error_words(errors["joules"]), ""))
    return cards


def _latencies(answer: Served) -> Markup:
    """A table of quantiles, and for each latency the share of requests that have waited no longer."""
    detail, limits = answer.detail, answer.limits
    assert detail is not None
    rows: list[list[Cell]] = []
    named = (("first token", answer.ttft), ("each further token", answer.tpot), ("whole request", answer.e2e))
    for name, spread in named:
        rows.append([(name, None), *(_cell(value) for value in _quantiles(spread))])
    heads = [("", False), ("mean", True), ("p50", True), ("p90", True), ("p99", True)]
    parts = [frame.part("table", "latencies", heads, rows)]
    stated = (None if limits is None else limits.ttft, None if limits is None else limits.tpot, None)
    for (name, _), values, colour, limit in zip(named, (detail.ttft, detail.tpot, detail.e2e), COLOURS, stated, strict=False):
        if len(values):
            parts.append(
                Markup('<p class="soft" style="margin-top:14px">{}: share of requests that wait no longer</p>').format(name)
            )
            parts.append(_shares(name, values, colour, limit))
    return Markup().join(parts)


def _quantiles(spread: LatencySpread) -> tuple[float, float, float, float]:
    return spread.mean, spread.p50, spread.p90, spread.p99


def _cell(value: float) -> Cell:
    return (say.seconds(value), value) if value == value else ("-", -1.0)


def _shares(name: str, values: Floats, colour: str, limit: float | None) -> Markup:
    """The share of requests below each value."""
    ordered = np.sort(values)
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), POINTS)).round().astype(int))
    points = [(0.0, 0.0), (float(ordered[0]), 0.0), *zip(ordered[kept].tolist(), shares[kept].tolist(), strict=True)]
    most = max(float(ordered[-1]), 1.1 * limit if limit is not None else 0.0)
    mark = None if limit is None else (limit, f"limit {say.seconds(limit)}")
    across = ChartAxis(most, say_seconds, mark=mark)
    return draw_curves(
        [Curve(name, colour, points, filled=True)], across, ChartAxis(1.0, lambda v: f"{100 * v:.0f} %"), name, 130.0
    )


def thin_log(log: Sequence[PassRecord]) -> dict[str, Any]:
    """Columns over equal pieces of time: requests that run and wait, tokens a second, and the cache in use."""
    if not log:
        return {"end": 0.0, "running": [], "waiting": [], "tokens": [], "used": []}
    begin, end = (np.array([getattr(one, name) for one in log]) for name in ("begin", "end"))
    whole = float(end.max())
    edges = np.linspace(0.0, whole, POINTS + 1)
    columns: dict[str, Any] = {"end": whole}
    busy = _spread_over(edges, begin, end, end - begin)
    for name in ("running", "waiting", "used"):
        each = np.array([float(getattr(one, name)) for one in log])
        held = _spread_over(edges, begin, end, each * (end - begin))
        columns[name] = [round(float(v), 4) for v in held / np.diff(edges)]
    tokens = np.array([float(one.tokens) for one in log])
    columns["tokens"] = [round(float(v), 2) for v in _spread_over(edges, begin, end, tokens) / np.diff(edges)]
    columns["busy"] = [round(float(v), 4) for v in busy / np.diff(edges)]
    return columns


def _spread_over(edges: Floats, begin: Floats, end: Floats, amounts: Floats) -> Floats:
    """[pieces] what falls between `edges` of amounts that are spent evenly from `begin` to `end`."""
    order = np.argsort(begin)
    times = np.stack([begin[order], end[order]], axis=1).ravel()
    grown = np.cumsum(amounts[order])
    known = np.stack([np.concatenate([[0.0], grown[:-1]]), grown], axis=1).ravel()
    return np.asarray(np.diff(np.interp(edges, np.maximum.accumulate(times), known)), np.float64)


def over_time(log: Sequence[PassRecord], lanes: int) -> Markup:
    """Requests, tokens a second and the cache of one lane over time."""
    thin = thin_log(log)
    if not thin["running"]:
        return paragraphs(["Nothing ran."])
    end, middle = thin["end"], (np.arange(POINTS) + 0.5) * thin["end"] / POINTS

    def points(name: str) -> list[tuple[float, float]]:
        return list(zip(middle.tolist(), thin[name], strict=True))

    across = ChartAxis(end, say_seconds)
    most = 1.08 * max(max(thin["running"]), max(thin["waiting"]), 1.0)
    requests = [
        Curve("requests that run", BLUE, points("running"), filled=True),
        Curve("that wait", ORANGE, points("waiting"), "6 3"),
    ]
    of_all = f"of one of {lanes} lanes" if lanes > 1 else ""
    return Markup().join(
        [
            key_line([("requests that run", BLUE), ("that wait (dashed)", ORANGE)], of_all),
            draw_curves(requests, across, ChartAxis(most, say_number), "requests over time", kind="over-time"),
            key_line([("tokens computed a second, prompts and drafts among them", GREEN)]),
            draw_curves(
                [Curve("tokens a second", GREEN, points("tokens"), filled=True)], across,
                ChartAxis(1.08 * max(max(thin["tokens"]), 1.0), say_number), "tokens a second over time", 150.0, "over-time",
            ),
            key_line([("share of the cache in use", PINK)]),
            draw_curves(
                [Curve("cache in use", PINK, points("used"), filled=True)], across, ChartAxis(1.0, lambda v: f"{100 * v:.0f} %"),
                "cache in use over time", 130.0, "over-time",
            ),
            Markup('<p id="over-told" class="soft" aria-live="polite">The mouse over a drawing says what was then.</p>'),
        ]
    )  # fmt: skip


def _passes(answer: Served) -> Markup:
    """Parts of a decoding pass and of one over prompts."""
    detail = answer.detail
    assert detail is not None
    drafted = f" and verifies {answer.server.drafts} drafts of each" if answer.server.drafts else ""
    decodes = f"A pass that decodes {detail.decodes:,} requests{drafted}"
    shown = [(decodes, detail.decode_parts), (f"A pass over {detail.prompt:,} prompt tokens", detail.prompt_parts)]
    out = []
    for title, parts in shown:
        total = sum(parts.values())
        out.append(Markup('<p style="margin-top:10px">{}: {}</p>').format(title, say.seconds(total)))
        out.append(share_bars(parts, PART_COLOURS, say.seconds))
    floor = f"The bytes of weights and cache alone take {say.seconds(answer.floor_tpot)} a token at full memory bandwidth."
    busy = f"Passes run {say.percent(answer.busy)} of the time, {answer.batch:.3g} requests in the mean one."
    if answer.prefill is not None:
        side = answer.prefill
        busy = (
            f"Copies for prompts compute {say.percent(side.busy)} of the time, those for tokens {say.percent(side.decode_busy)}; "
            f"a cache travels {say.seconds(side.transfer)}."
        )
    return Markup().join(out) + paragraphs([busy, floor])


def share_bars(parts: Mapping[str, float], colours: Mapping[str, str], words: Any) -> Markup:
    """A stripe of shares, and a bar with its value for each but what is left over."""
    total = sum(parts.values()) or 1.0
    stripe = [
        {"share": value / total, "colour": colours.get(name, GREY), "title": f"{name}: {words(value)}", "inside": ""}
        for name, value in parts.items()
    ]
    shown = {name: value for name, value in parts.items() if name != LEFT_OVER}
    most = max(shown.values(), default=1.0) or 1.0
    bars = [
        {
            "label": name, "value": words(value), "share": say.percent(value / total), "width": 100.0 * value / most,
            "colour": colours.get(name, GREY), "title": f"{name}: {words(value)}",
        }
        for name, value in sorted(shown.items(), key=lambda item: -item[1])
    ]  # fmt: skip
    return frame.part("stripe", stripe) + frame.part("bars", bars)


def _memory(answer: Served) -> Markup:
    room, whole = answer.room, answer.server.job.cluster.gpu.memory
    parts = {"weights": room.weights, "activations": room.activations, "context": room.context, "cache": room.cache}
    parts[LEFT_OVER] = max(0.0, whole - sum(parts.values()))
    holds = f"{room.tokens:,} tokens or {answer.most_requests:,.0f} such requests"
    lines = [f"The cache holds {holds}; {say.percent(answer.cache_peak)} of it were in use at most."]
    if answer.prefix_hits:
        lines.append(f"{say.percent(answer.prefix_hits)} of prompt tokens were in the cache.")
    if answer.preempted:
        lines.append(
            f"{answer.preempted:,} times a request lost its cache to others; {answer.recomputed:,} tokens were computed again."
        )
    shown = {name: size for name, size in parts.items() if size > 0.0}
    return share_bars(shown, MEMORY_COLOURS, say.size) + paragraphs(lines)


def _money(answer: Served) -> list[str]:
    lines = []
    if answer.dollars is not None:
        lines.append(f"{say.dollars(answer.dollars)} for a million output tokens, with all GPUs paid for all of the time.")
    if answer.joules is not None:
        each = answer.joules / 1e6
        lines.append(f"{say.energy(answer.joules)} for a million output tokens, {each:,.3g} J each.")
    return lines
