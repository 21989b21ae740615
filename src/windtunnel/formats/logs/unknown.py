"""Steps of a trainer that nobody wrote a reader for: lines, dicts, JSON lines or a table that name a step and its time, tokens/s,
memory or loss.

A line is one of steps where it agrees with another one: the same words around other numbers, as one statement of a program prints
them, and a number of a step that grows. So prose, settings, code and logs of servers are none. `unknown.toml` has the names.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.base.units import show_counted
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.logs.line_forms import NUMBER, parse_scaled
from windtunnel.formats.logs.step_log import NAN, StepLine, StepLog, epoch_seconds, summarise
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.records.run import Run

NAME = "an unknown trainer"
_STAMP = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d{1,9})?Z?")
_CLOCK = re.compile(r"\d{1,4}:\d\d(?::\d\d)?(?:[,.]\d{1,6})?|\b[\d.]{1,4}(?:h|d)\b")
_VALUE = re.compile(rf"(?<![\w./-])(?<!\d:)({NUMBER})(?![:\w.]*:\d\d)(?:\s?([A-Za-zµ%][A-Za-zµ/%]*)(?!\s*[\"']?\s?[=:]))?")
_OF = re.compile(r"\s*/\s*(\d{1,12})\b")
_OWN = re.compile(r"\s?/\s?(?:gpu|device)\b", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-zµ][\w /.()%-]*$")
_UNIT_OF_NAME = re.compile(r"(?:[_ ]?\(([^()]{1,12})\)|_(us|ms|s|sec|secs|seconds|gib|gb|mib|mb|bytes|g))$")
_AGREE = 2
"""Lines of the same words from which they are steps."""
_LEAST_SHARE = 0.3
"""Letters of a line of steps that belong to its names and units. Assumed."""
_ALONE_SHARE = 0.8
"""The same of a line that says a step and a time alone, as a recipe does too. Assumed."""
_HELD_OUT = re.compile(
    r"\b(?:val(?:id(?:ation)?)?|eval(?:uation)?|test)\b|[_/](?:val|eval|test)|(?:val|eval|test)[_/]", re.IGNORECASE
)


_PER = re.compile(r"(?:s(?:ec(?:ond)?)?|step|gpu|it|iter(?:ation)?|device|rank|chip|batch)s?")
_QUANTITY = re.compile(
    r"(?:.*_)?(?:tok(?:en)?s?|tps|tgs|throughput|m?s|secs?|seconds?|tim(?:e|ing|er)s?|samples?|seq(?:uence)?s?|t?flops?)"
)
"""What a rate is per, and what is counted per that, in names with slashes."""


@dataclass(frozen=True)
class UnknownLine:
    """What a line says: `fields` by name of `StepLine` or of a rate, its words without numbers, and when it was printed."""

    fields: dict[str, float]
    words: str
    printed: float
    total: int | None = None


@dataclass
class _Names:
    """The table: a field by what its name matches, and (field, factor) by unit."""

    names: list[tuple[str, re.Pattern[str]]]
    units: dict[str, tuple[str, float]] = field(default_factory=dict)


@cache
def _table() -> _Names:
    told = table_beside(__file__)
    names = [(name, re.compile(pattern)) for name, pattern in told["names"].items()]
    return _Names(names, {unit: (name, factor) for name, units in told["units"].items() for unit, factor in units.items()})


def recognises(head: Head) -> bool:
    """Two lines of steps that agree."""
    return bool(_known_words(_lines_of_head(head)))


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run with the steps of the first file. FileError where no two lines agree."""
    path, *more = files
    known = _known_words(_lines_of_head(head_of(path)))
    log = StepLog()
    rates: list[tuple[float, float]] = []
    printed: list[float] = []
    clocks: list[float] = []
    reserved = NAN
    lines = LogLines(path, context.progress)
    for said in _parse_lines(_as_pairs(lines, head_of(path))):
        if frozenset(said.fields) not in known:
            continue
        value = defaultdict(lambda: NAN, said.fields)
        seconds = said.fields.get("seconds", 1.0 / value["steps_per_second"] if value["steps_per_second"] > 0 else NAN)
        step = int(said.fields.get("step", said.fields.get("batch_number", len(log.lines) + 1)))
        log.total_steps = said.total or log.total_steps
        seconds = seconds if seconds > 0 else NAN
        log.add(StepLine(step, seconds, value["tokens"], value["tflops"], value["loss"], value["memory"]))
        rates.append((value["rate"], value["rate_per_gpu"]))
        printed.append(said.printed)
        clocks.append(value["clock"])
        reserved = float(np.fmax(reserved, value["reserved"]))
    if not log.lines:
        raise FileError(str(path), "no two lines of steps that agree", "lines with a step and its time, tokens/s, memory or loss")
    assumed = [f"no reader knows this trainer: fields are told by their names ({', '.join(sorted(set().union(*known)))})"]
    assumed += _take_clocks(log, clocks, printed)
    figures = _take_rates(log, rates) | ({"memory_reserved_bytes": reserved} if reserved > 0 else {})
    return _reading(path, log, figures, assumed, [*lines.broken], tuple(f"{other}: another log" for other in more))


def _reading(
    path: Path, log: StepLog, figures: dict[str, float], assumed: list[str], broken: list[str], ignored: tuple[str, ...]
) -> Reading:
    from windtunnel.formats.logs.reader import summary_of_steps  # here: recognising needs no framework

    steps = log.steps()
    facts: dict[str, Any] = {"framework": NAME, "steps": len(steps)}
    facts |= {"first": [log.lines[0].step, log.total_steps], "last": [log.lines[-1].step, log.total_steps]}
    if elapsed := summarise([1e3 * line.seconds for line in log.lines]):
        facts["elapsed_ms"] = {key: round(value, 6) for key, value in elapsed.items()}
    facts |= summary_of_steps(steps, log.attempt) | ({"figures": figures} if figures else {})
    run = Run(steps, (), {"framework": NAME, **figures}, str(path))
    built = (f"a run of {show_counted(len(steps), 'step')} of {NAME}",)
    return Reading("unknown-log", Content.RUN, run, facts, built, ignored, tuple(assumed), tuple(broken))


def _take_clocks(log: StepLog, clocks: list[float], printed: list[float]) -> list[str]:
    """Lengths from what is called a time without a word of a step: a length, or, where it only grows, the time since the start."""
    untimed = [line for line in log.lines if line.seconds != line.seconds]
    known = [clock for clock in clocks if clock == clock]
    assumed = []
    if untimed and known:
        if len(known) > 2 and all(later > earlier for earlier, later in zip(known, known[1:], strict=False)):
            printed, notes = clocks, "a step's seconds: the differences of a time that grows from line to line"
        else:
            notes = "a step's seconds: what the lines call a time"
            for line, clock in zip(log.lines, clocks, strict=True):
                line.seconds = line.seconds if line.seconds == line.seconds or not clock > 0 else clock
        assumed.append(notes)
    if any(line.seconds != line.seconds for line in log.lines):
        log.fill_from_clock(printed)
        if printed is not clocks and any(line.seconds == line.seconds for line in untimed):
            assumed.append("a step's seconds: the time between lines over the steps between them")
    for line in log.lines:
        line.begin = line.begin if printed is not clocks else NAN
    left = sum(line.seconds != line.seconds for line in log.lines)
    return assumed + ([f"{left} lines give no length of their step"] if left else [])


def _take_rates(log: StepLog, rates: list[tuple[float, float]]) -> dict[str, float]:
    """Tokens of a step from the job's rate; figures of rates that stand without the other."""
    for line, (rate, _) in zip(log.lines, rates, strict=True):
        line.tokens = line.tokens if line.tokens == line.tokens else rate * line.seconds
    figures = {}
    for name, values in zip(("tokens_per_second", "tokens_per_second_per_gpu"), zip(*rates, strict=True), strict=True):
        if known := [value for value in values if value > 0]:
            figures[name] = median(known)
    return figures


def _lines_of_head(head: Head) -> Iterable[str]:
    if not head.text or head.text.lstrip()[:1] == "<" or head.starts_json("traceEvents"):
        return ()
    return _as_pairs(head.lines[:4000] if head.complete else head.lines[:4000][:-1], head)


def _as_pairs(lines: Iterable[str], head: Head) -> Iterator[str]:
    """The lines; rows of a table as `name=value` by its first line, which names a step: of a CSV, or between spaces or bars."""
    first = next((line for line in head.lines if line.strip()), "")
    for split in (_csv_cells, _drawn_cells):
        columns = split(first)
        fields = [_field_of(_plain_name(name)) for name in columns] if 2 <= len(columns) <= 200 else []
        if ("step" in fields or "batch_number" in fields) and not any(re.search(r"[=:\d]", name) for name in columns):
            break
    else:
        yield from lines
        return
    for line in lines:
        row = split(line)
        if len(row) == len(columns) and row != columns:
            yield ", ".join(f"{name}={cell}" for name, cell in zip(columns, row, strict=True) if cell)


def _csv_cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def _drawn_cells(line: str) -> list[str]:
    """Cells between bars, tabs or spaces; a name's words are apart by one space, and a name with a unit is one cell."""
    apart = r"\s*[|│]\s*|\t" if "|" in line or "│" in line else r"\s+(?![(\[])"
    return [cell.strip() for cell in re.split(apart, line.strip(" |│\t\r\n"))]


def _known_words(lines: Iterable[str]) -> set[frozenset[str]]:
    """The sets of fields that lines of steps have: of lines that agree in their words, and whose steps grow."""
    by_words: dict[tuple[str, frozenset[str]], list[float]] = {}
    for said in _parse_lines(lines):
        number = said.fields.get("step", said.fields.get("batch_number", NAN))
        by_words.setdefault((said.words, frozenset(said.fields)), []).append(number)
    known = set()
    for (_, fields), numbers in by_words.items():
        counted = [number for number in numbers if number == number]
        grows = (
            len(set(counted)) >= _AGREE
            and Counter(later >= earlier for earlier, later in zip(counted, counted[1:], strict=False))[True]
            >= (len(counted) - 1) / 2
        )
        if grows or (not counted and len(numbers) >= _AGREE and "seconds" in fields and len(fields) > 1):
            known.add(fields)
    return known


def _parse_lines(lines: Iterable[str]) -> Iterator[UnknownLine]:
    """What those lines say that may be of steps."""
    for text in lines:
        if len(text) < 4096 and any(mark.isdigit() for mark in text) and (said := parse_line(text)) is not None:
            yield said


def parse_line(text: str) -> UnknownLine | None:
    """The fields of a line that says a step or its time, and something else of it; None for another line."""
    if _HELD_OUT.search(text):
        return None
    stamp = _STAMP.search(text)
    printed = epoch_seconds(stamp[0].replace("/", "-")) if stamp else NAN
    plain = _CLOCK.sub("", _STAMP.sub("", text))
    fields: dict[str, float] = {}
    total, end, named = None, 0, 0
    for match in _VALUE.finditer(plain):
        before = re.split(r"[|,;{}\t]|  +", plain[end : match.start()].rstrip())[-1]
        name, unit = _plain_name(before), (match[2] or "").lower()
        unit = unit if unit == "%" or unit in _table().units else ""
        end = match.end() if unit else match.end(1)
        own = _OWN.match(plain, match.end(1)) if "rate" in fields else None
        told = ("rate_per_gpu", parse_scaled(match[1])) if own is not None else _value(name, match[1], unit)
        if told is None:
            continue
        key, value = told
        if key in ("step", "batch_number") and (of := _OF.match(plain, match.end(1))):
            total = int(of[1])
            end = of.end()
        if key not in fields:
            fields[key] = value
            named += len(re.findall(r"[A-Za-z]", before)) + len(re.findall(r"[A-Za-z]", unit))
    letters = len(re.findall(r"[A-Za-z]", re.sub(r"^.{0,120}?(?=\b[\w/ ]{1,30}[\"']?\s*[:= ]\s*[\d.]+)", "", plain, count=1)))
    counted = "step" in fields or ("batch_number" in fields and "loss" in fields)
    alone = fields.keys() <= {"step", "batch_number", "clock"}
    if not (counted or "seconds" in fields) or len(fields) < 2 or fields.keys() <= {"step", "batch_number"}:
        return None
    if named < (_ALONE_SHARE if alone else _LEAST_SHARE) * letters:
        return None
    words = re.sub(r"[#\s,]+", " ", re.sub(NUMBER, "#", plain)).strip()
    return UnknownLine(fields, words, printed, total)


def _plain_name(before: str) -> str:
    """A name as the table has it: the last words before a number, in small letters."""
    text = before.strip(" \t\"'=:[](<>*•-—→~≈@")
    found = _NAME.search(text)
    if found is None:
        return ""
    name = re.sub(r"[\s-]+", "_", found[0].strip().lower().rstrip("."))
    return _without_groups(name)


def _without_groups(name: str) -> str:
    """A name without the groups before it (`train/step_time`); a slash of a rate stays (`tokens/sec/gpu`, `timing_s/step`)."""
    parts = name.split("/")
    kept = [parts.pop()]
    while parts and _PER.fullmatch(kept[0]) and (_PER.fullmatch(parts[-1]) or _QUANTITY.fullmatch(parts[-1])):
        kept.insert(0, parts.pop())
    return "/".join(kept)


def _field_of(name: str) -> str | None:
    """The field that a name is; a unit at its end aside."""
    shorter = _UNIT_OF_NAME.sub("", name)
    for wanted in dict.fromkeys((name, shorter)):
        words = wanted.split("_")
        for start in range(max(0, len(words) - 5), len(words)):
            last = "_".join(words[start:])
            for field_name, pattern in _table().names:
                if pattern.fullmatch(last) and not (start and field_name in ("clock",)):
                    return field_name
    return None


def _value(name: str, number: str, unit: str) -> tuple[str, float] | None:
    """(field, value in seconds, tokens/s or bytes) of a number with its name and unit; None where neither says what it is."""
    units = _table().units
    told, factor = units.get(unit, (None, 1.0))
    value = parse_scaled(number)
    if told in ("seconds", "steps_per_second", "rate", "rate_per_gpu", "tflops"):
        if told == "rate" and _field_of(name) == "rate_per_gpu":
            told = "rate_per_gpu"
        return told, value * factor
    key = _field_of(name)
    if key is None or unit == "%" or value != value and key != "loss":
        return None
    if told is None and key in ("memory", "reserved", "seconds", "clock") and (found := _UNIT_OF_NAME.search(name)) is not None:
        told, factor = units.get((found[1] or found[2]).lower(), (None, 1.0))
    if key in ("memory", "reserved"):
        return (key, value * factor) if told == "bytes" else None
    if key in ("seconds", "clock"):
        return None if told == "bytes" else (key, value * factor)
    if key in ("step", "batch_number"):
        return (key, value) if re.fullmatch(r"[\d,]{1,15}", number) and told is None else None
    return (key, value) if told is None else None
