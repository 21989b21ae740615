"""The page of a search of servers: throughput against interactivity, with the command of every point; the table of the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import (
    BLUE,
    GREEN,
    LEFT,
    ORANGE,
    RIGHT,
    WIDE,
    frame_svg,
    key_line,
    log_scale,
    log_ticks,
    paragraphs,
    say_number,
)
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.prediction import section
from windtunnel.report.words.served import describe_copy, kinds_sentence
from windtunnel.report.words.served_record import server_sentences
from windtunnel.serving import ServeChoice, ServeFront
from windtunnel.serving.search import WAVES
from windtunnel.sheet import numbers as say

TALL, TOP, BOTTOM = 460.0, 16.0, 420.0

MOST = 1500
"""Points that are drawn: the front, and of the others the most throughput."""


def page(found: ServeFront, asked: Sequence[str], command: str = "") -> str:
    """The page's text. `asked`: what the commands of points share, from the model on: words of `serve-predict`."""
    shown = _order_points(found)
    best = next((n for n, one in enumerate(shown) if one is found.best), -1)
    sections = [section("Tokens a second of a GPU against those of a user", _scatter(found, shown) + _command_box())]
    if found.kinds:
        sections.append(section("Prompts on copies of their own", _kinds(found)))
    sections.append(section("What no other choice beats", _front_table(found)))
    sections.append(section("What was tried", paragraphs(_tried_lines(found))))
    points = [{"words": _tell_point(one), "command": command_of(one, asked)} for one in shown]
    first = found.front[0].served.server
    where = f"{first.job.cluster.gpu.name} ({first.job.cluster.id})"
    data = {"points": points, "best": best if best >= 0 else 0}
    return frame.page(
        f"Serving {first.model.name}: which plan", [where], _cards(found), Markup().join(sections), data, command, "serving.js"
    )


def _order_points(found: ServeFront) -> list[ServeChoice]:
    """The points, the front first."""
    front = list(found.front)
    kept = {id(one) for one in front}
    others = [one for one in (found.choices or found.front) if id(one) not in kept]
    others.sort(key=lambda one: -one.throughput)
    extra = [one for one in (found.best, *found.kinds) if one is not None and id(one) not in kept]
    seen = {id(one) for one in extra}
    return [*front, *{id(one): one for one in extra}.values(), *(one for one in others if id(one) not in seen)][:MOST]


def _cards(found: ServeFront) -> list[tuple[str, str, str]]:
    best = found.best
    cards = [("points simulated", f"{found.simulated:,}", "")]
    if best is None:
        return [("keeps the limits", "nothing", "bad"), *cards]
    cards = [
        ("tokens/s a GPU, the best", f"{best.throughput:,.0f}", "good"),
        ("tokens/s a user", f"{best.interactivity:,.1f}", ""),
        ("first token, mean", say.seconds(best.served.ttft.mean), ""),
        *cards,
    ]
    if found.gain is not None:
        cards.insert(1, ("copies for prompts", f"{100 * (found.gain - 1):+.1f} %", "good" if found.gain > 1.0 else ""))
    return cards


def _scatter(found: ServeFront, shown: Sequence[ServeChoice]) -> Markup:
    """Points: interactivity across, throughput up, both logarithmic; the front is joined by a line."""
    users, gpus = [one.interactivity for one in shown], [one.throughput for one in shown]
    x, y = log_scale(users, LEFT, WIDE - RIGHT), log_scale(gpus, BOTTOM, TOP)
    out = [_grid(users, gpus, x, y)]
    line = " ".join(f"{x(one.interactivity):.1f},{y(one.throughput):.1f}" for one in found.front)
    out.append(f'<polyline points="{line}" fill="none" stroke="var(--ink)" stroke-width="1.4" stroke-opacity="0.6"/>')
    front = {id(one) for one in found.front}
    for number in reversed(range(len(shown))):
        one = shown[number]
        colour, ahead = ORANGE if one.has_sides else BLUE, id(one) in front
        if one is found.best:
            colour = GREEN
        at = x(one.interactivity), y(one.throughput)
        style = (
            f'fill="{colour}" fill-opacity="{0.85 if ahead else 0.0}" stroke="{colour}" stroke-width="1.5" '
            f'stroke-opacity="{1.0 if ahead or one is found.best else 0.35}" data-point="{number}" style="cursor:pointer"'
        )
        reach = ' tabindex="0"' if ahead else ""
        title = f"<title>{escape(_tell_point(one))}</title>"
        if one.has_sides:
            out.append(f'<rect x="{at[0] - 5:.1f}" y="{at[1] - 5:.1f}" width="10" height="10" {style}{reach}>{title}</rect>')
        else:
            out.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="5.5" {style}{reach}>{title}</circle>')
    entries = [("filled: the front, which no other point beats", BLUE)]
    if found.kinds:
        entries.append(("squares: prompts on copies of their own", ORANGE))
    if found.best is not None:
        entries.append(("the best under the limits" if found.best.served.limits else "the most throughput", GREEN))
    return frame_svg("".join(out), TALL, "throughput against interactivity") + key_line(entries)


def _grid(users: Sequence[float], gpus: Sequence[float], x: Any, y: Any) -> str:
    out = []
    for value in log_ticks(min(gpus), max(gpus)):
        out.append(
            f'<line x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{say_number(value)}</text>'
        )
    for value in log_ticks(min(users), max(users)):
        out.append(
            f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{BOTTOM}" stroke="var(--line)"/>'
            f'<text x="{x(value):.1f}" y="{BOTTOM + 16}" text-anchor="middle">{say_number(value)}</text>'
        )
    out.append(f'<text x="{WIDE - RIGHT}" y="{TALL - 6}" text-anchor="end">output tokens/s of a user →</text>')
    out.append(f'<text x="{LEFT + 6}" y="{TOP + 6}">↑ output tokens/s a GPU</text>')
    return "".join(out)


def _command_box() -> Markup:
    return Markup(
        '<div class="row" style="margin:14px 0 6px"><span id="chosen">A point under the mouse says what it is; a click keeps it.'
        "</span>"
        '<button id="copy" type="button">copy the command</button></div>'
        '<pre style="white-space:pre-wrap;overflow-wrap:anywhere;margin:0"><code id="command"></code></pre>'
    )


def _tell_point(one: ServeChoice) -> str:
    """A point in a line."""
    served = one.served
    figures = f"{one.throughput:,.0f} tokens/s a GPU, {one.interactivity:,.1f} a user, first token {say.seconds(served.ttft.mean)}"
    kept = "" if served.limits is None else f", {100 * served.limits.kept:.0f} % of requests keep the limits"
    return f"{describe_copy(one)}, {one.users:,} users: {figures}{kept}"


def command_of(one: ServeChoice, asked: Sequence[str]) -> str:
    """The command line that predicts this point in full."""
    served, side, server = one.served, one.served.prefill, one.served.server
    gpus = server.job.cluster.gpus if side is None else server.job.cluster.gpus - side.gpus
    words = ["windtunnel serve-predict", *asked, f"--gpus {gpus} --engine {one.engine} {_flags(one.plan, '--{} {}', ' ')}"]
    if side is not None:
        words.append(f"--prefill gpus={side.gpus},{_flags(side.plan, '{}={}', ',')}")
    words.append(f"--weights {one.weights} --kv {one.kv}")
    if server.speculation is not None:
        words.append(f"--speculate {server.speculation.words()}")
    words.append(f"--concurrency {one.users} --requests {max(WAVES * one.users, 8)}")
    if served.limits is not None:
        words += [f"--{name} {value:g}" for name, value in (("ttft", served.limits.ttft), ("tpot", served.limits.tpot)) if value]
    return " ".join(words)


def _flags(plan: Any, form: str, between: str) -> str:
    """Degrees of a plan, tp always."""
    degrees = [(name, getattr(plan, name)) for name in ("tp", "pp", "dp", "ep")]
    return between.join(form.format(name, value) for name, value in degrees if value > 1 or name == "tp")


def _kinds(found: ServeFront) -> Markup:
    """The best of either kind, and the verdict."""
    rows: list[list[Cell]] = []
    for name, one in zip(("prompts beside tokens", "prompts on copies of their own"), found.kinds, strict=True):
        nothing: list[Cell] = [("keeps no limit", None), *[("-", -1.0)] * 6]
        rows.append([(name, None), *(nothing if one is None else _figures(one))])
    heads = [("", False), ("copy", False), *_HEADS]
    sentence = f"{kinds_sentence(found)}."
    return frame.part("table", "kinds", heads, rows) + paragraphs([sentence[0].upper() + sentence[1:], _SAME])


_SAME = "Either kind has the same number of GPUs in all; those that no copy fills count too."

_HEADS = [
    ("users", True),
    ("tokens/s a GPU", True),
    ("±", True),
    ("tokens/s a user", True),
    ("first token", True),
    ("$/M tokens", True),
]


def _figures(one: ServeChoice) -> list[Cell]:
    dollars, error = one.dollars, one.served.relative_errors()["throughput"]
    return [
        (describe_copy(one), None),
        (f"{one.users:,}", float(one.users)),
        (f"{one.throughput:,.0f}", one.throughput),
        ("-", -1.0) if error is None else (f"{100 * error:.0f} %", error),
        (f"{one.interactivity:,.1f}", one.interactivity),
        (say.seconds(one.served.ttft.mean), one.served.ttft.mean),
        ("-", -1.0) if dollars is None else (f"{dollars:.3g}", dollars),
    ]


def _front_table(found: ServeFront) -> Markup:
    return frame.part("table", "front", [("copy", False), *_HEADS], [_figures(one) for one in found.front])


def _tried_lines(found: ServeFront) -> list[str]:
    lines = server_sentences((found.best or found.front[0]).served)
    lines += [
        f"{found.simulated:,} of {found.asked:,} points were simulated in {say.seconds(found.seconds)}; {found.unfit:,} do not fit,"
        f" {found.bound:,} cannot keep the limits by their bytes alone."
    ]
    if found.best is None and found.nearest:
        lines.append(f"Nothing keeps the limits; {found.nearest}.")
    if found.beaten:
        lines.append(f"{found.beaten:,} with copies for prompts are beaten clearly by the rates of their sides alone.")
    left = len(found.choices) - MOST
    return [*lines, f"{left:,} points of less throughput are not drawn."] if left > 0 else lines
