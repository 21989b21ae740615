"""Figures of a prediction's JSON in words: what the page shows of it. It knows no widget."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windtunnel.report.words.parts import COLOUR, MEMORY_COLOUR, MEMORY_PARTS, group_of, label_of
from windtunnel.sheet import numbers as words

Answer = Mapping[str, Any]
GIB = 2.0**30


class HeadFigure(NamedTuple):
    """A headline: `key` of its name in the page's language, value and ± in words, mood (good, bad or nothing)."""

    key: str
    value: str
    error: str
    mood: str = ""


class Piece(NamedTuple):
    """A part of a bar: label, value in words, its share of the bar (0 to 1), colour."""

    label: str
    value: str
    share: float
    colour: str


def headline(answer: Answer) -> list[HeadFigure]:
    """The figures at the head of an answer. Errors of rates and money follow from that of the step."""
    relative = float(answer["relative_error"])
    percent = f"±{100 * relative:.0f} %"
    step = float(answer["step_time_s"])
    found = [
        HeadFigure("answer.step", words.seconds(step), f"±{words.seconds(step * relative)} ({percent})"),
        HeadFigure("answer.mfu", words.percent(answer["mfu"]), f"±{100 * answer['mfu'] * relative:.1f}"),
        HeadFigure("answer.tokens", words.count(answer["tokens_per_s"]), percent),
    ]
    memory = answer.get("memory") or []
    if memory:
        worst = max(memory, key=lambda one: one["total"] / one["capacity"])
        fits = all(one["fits"] for one in memory)
        room = f"{worst['total'] / GIB:.1f} / {worst['capacity'] / GIB:.1f} GiB"
        found.append(HeadFigure("answer.fits" if fits else "answer.too_large", room, "", "good" if fits else "bad"))
    for name, key in (("cost", "answer.cost"), ("cost_per_step", "answer.cost_per_step")):
        if answer.get(name) is not None:
            found.append(HeadFigure(key, words.dollars(answer[name]), percent))
            break
    if answer.get("days") is not None:
        found.append(HeadFigure("answer.days", words.duration(answer["days"]), percent))
    return found


def parts_of(answer: Answer) -> list[Piece]:
    """Parts of the step, the longest first."""
    step = float(answer["step_time_s"]) or 1.0
    parts = sorted(((key, float(value)) for key, value in answer["breakdown"].items() if value > 0), key=lambda one: -one[1])
    return [Piece(label_of(key), words.seconds(value), value / step, COLOUR[group_of(key)]) for key, value in parts]


def memory_of(stage: Mapping[str, Any]) -> list[Piece]:
    """Parts of a stage's memory as shares of what its GPU has."""
    room = float(stage["capacity"]) or 1.0
    return [
        Piece(part, words.size(stage[part]), stage[part] / room, MEMORY_COLOUR[part])
        for part in MEMORY_PARTS if stage.get(part, 0.0) > 0
    ]  # fmt: skip


def tables_of(answer: Answer) -> dict[str, list[dict[str, Any]]]:
    """The tables of an answer by name: kernels, collectives, memory, breakdown. Cells are numbers (SI units) and text."""
    step = float(answer["step_time_s"]) or 1.0
    found = {name: _flat(answer.get(name)) for name in ("kernels", "collectives", "memory", "critical_path")}
    found["breakdown"] = [
        {"part": key, "seconds": value, "share": value / step} for key, value in answer["breakdown"].items() if value > 0
    ]
    return {name: rows for name, rows in found.items() if rows}


MOST_FACTS, LONGEST = 32, 120
"""Facts of an answer that are shown, and letters of one that is text."""


def facts_of(answer: Any) -> list[tuple[str, str]]:
    """Names and values of what an answer of any verb says once: numbers, yes or no, and short texts."""
    found = []
    for key, value in answer.items() if isinstance(answer, dict) else ():
        if isinstance(value, bool):
            found.append((key, "✓" if value else "–"))
        elif isinstance(value, (int, float)):
            found.append((key, f"{value:.5g}"))
        elif isinstance(value, str) and 0 < len(value) <= LONGEST and key != "schema":
            found.append((key, value))
    return found[:MOST_FACTS]


def lists_of(answer: Any) -> dict[str, list[dict[str, Any]]]:
    """The tables of an answer of any verb: its lists of objects by name, and an answer that is such a list."""
    lists = answer if isinstance(answer, dict) else {"rows": answer}
    return {
        str(name): _flat(rows)
        for name, rows in lists.items()
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
    }


def _flat(rows: Any) -> list[dict[str, Any]]:
    return [
        {
            key: value if isinstance(value, (int, float, str, bool)) or value is None else json.dumps(value)
            for key, value in row.items()
        }
        for row in rows or ()
    ]


def write_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table as CSV. A text that a spreadsheet would run as a formula is quoted."""
    out = io.StringIO()
    heads = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(out)
    writer.writerow(heads)
    for row in rows:
        writer.writerow([_cell(row.get(head, "")) for head in heads])
    return out.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def difference(value: float, against: float) -> str:
    """How a number differs from another one, in percent."""
    return "" if not against else f"{100 * (value / against - 1):+.1f} %"
