"""Figures of a prediction's JSON in words: what the page shows of it. It knows no widget."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.memory.result import stage_of
from windtunnel.memory.sheet import stages_blocks
from windtunnel.predict.sheet.step import breakdown_blocks
from windtunnel.search.margin import verdict
from windtunnel.sheet import numbers as words
from windtunnel.sheet.blocks import Figure, Section, Sheet
from windtunnel.sheet.sentence import Sentence

Answer = Mapping[str, Any]
GIB = 2.0**30


def head_sheet(answer: Answer) -> Sheet:
    """What of a prediction is known by its JSON alone, as long as a form waits: figures, parts of the step, memory. Errors of
    rates and money follow from that of the step."""
    stages = [stage_of(stage) for stage in answer.get("memory") or ()]
    blocks = breakdown_blocks(answer["breakdown"], float(answer["step_time_s"]), answer["overlapped"], answer["by_stage"])
    return Sheet(
        "",
        "",
        headline(answer),
        (
            Section("Memory of the fullest GPU, by stage", stages_blocks(stages) if stages else ()),
            Section("Where the time goes", blocks),
        ),
    )


def headline(answer: Answer) -> tuple[Figure, ...]:
    """The figures at the head of an answer."""
    error, mfu = float(answer["relative_error"]), float(answer["mfu"])
    share = f"{100.0 * mfu:.1f} ±{100.0 * mfu * error:.1f} %"
    rate = float(answer["tokens_per_s"])
    found = [
        Figure("step_time_s", "step time", float(answer["step_time_s"]), "s", error),
        Figure("mfu", "MFU", mfu, "%", None, words.percent(mfu), within=share),
        Figure("tokens_per_s", "tokens/s", rate, "token/s", error, words.count(rate)),
    ]
    if stages := [stage_of(stage) for stage in answer.get("memory") or ()]:
        fits, mood = verdict(stages)
        found.append(Figure("memory", "memory", max(stage.total for stage in stages), "B", None, fits, mood))
    for key, label in (("cost", "cost of the run"), ("cost_per_step", "cost of a step")):
        if answer.get(key) is not None:
            found.append(Figure(key, label, float(answer[key]), "$", error))
            break
    if answer.get("days") is not None:
        label = Sentence("{tokens} tokens in", tokens=words.tokens(float(answer["job"]["tokens"])))
        found.append(Figure("days", label, float(answer["days"]), "day", error, words.duration(answer["days"])))
    return tuple(found)


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
