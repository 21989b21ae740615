"""What an inference server or its benchmark printed, as measured figures: tables of `vllm bench` and of SGLang's benchmarks, their
JSON, boxes of GenAI-Perf, AIPerf and EvalScope, `trtllm-bench`, GuideLLM, LLMPerf, MLPerf's LoadGen, start-up lines of the cache,
and statistics of engines.

`served.toml` has the words. `Infinity` and `NaN` of other people's JSON are missing values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_LINE = re.compile(
    r"^[\s=│┃|]*(?P<words>[A-Za-z\d][^:│┃]*?)\s*(?:\[[A-Z]+\])?\s*(?:\((?P<unit>[^()]*)\))?\s*:\s+(?P<value>[-+\d][\d.,eE+-]*)"
    r"(?:\s*(?:seconds|s))?\s*$"
)
_UNIT = re.compile(r"\s*\((?P<unit>[^()]*)\)\s*$")
_TIMES = {"ms": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds of units of time other than seconds."""
_SPREADS = {
    "avg": "mean",
    "mean": "mean",
    "min": "min",
    "max": "max",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "std": "std",
}
_JSON_SPREAD = re.compile(r"(mean|median|p\d\d|std)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_KNOWN_KEYS = (
    "mean_ttft_ms", "median_ttft_ms", "output_throughput", "time_to_first_token", "time_to_first_token_ms", "results_ttft_s_mean",
)  # fmt: skip
_LATENCIES = ("ttft", "tpot", "itl", "e2e")


@dataclass
class MeasuredServer:
    """What was measured of a server. `figures`: seconds, tokens and rates by the names of `Served.as_dict`, latencies as tables of
    mean and quantiles; `engine`: means of its statistics and its cache at start-up. `source`: whose words they are."""

    source: str
    figures: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, float] = field(default_factory=dict)

    @property
    def load(self) -> dict[str, Any]:
        """Fields of `serving.options.ServeOptions` that say the load, as far as it is told: mean lengths where no more is."""
        found: dict[str, Any] = {}
        many = self.figures.get("requests")
        for key, total, mean in (("isl", "input_tokens", "input_length"), ("osl", "output_tokens", "output_length")):
            length = self.figures.get(key) or self.figures.get(mean)
            if length is None and many and self.figures.get(total):
                length = self.figures[total] / many
            if length:
                found[key] = str(max(1, round(length)))
        if many:
            found["requests"] = int(many)
        if rate := self.figures.get("rate"):
            found["rate"] = rate
        elif users := self.figures.get("concurrency") or self.figures.get("mean_concurrency") or many:
            found["concurrency"] = max(1, round(users))
        return found

    def put(self, name: str, value: float) -> None:
        """Keeps a figure; a name with a point is a value of a latency."""
        head, _, inner = name.partition(".")
        if inner:
            self.figures.setdefault(head, {})[inner] = value
        else:
            self.figures[head] = value


@cache
def served_words() -> Mapping[str, Any]:
    """The tables of `served.toml`."""
    return table_beside(__file__)


def source_of(text: str) -> str | None:
    """Whose words a text has; None for another text."""
    for name, pattern in served_words()["known"].items():
        if re.search(pattern, text):
            return str(name)
    if text.lstrip()[:1] == "{" and any(f'"{key}"' in text[:65536] for key in _KNOWN_KEYS):
        return "a benchmark's JSON"
    return None


def recognises(head: Head) -> bool:
    """Words of a server or of its benchmark."""
    return source_of(head.text) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """The figures of the last result in the files. FileError for a text without one."""
    found, broken = _read_results(files, context)
    facts: dict[str, Any] = {"printed by": found.source}
    for name, value in found.figures.items():
        facts |= {f"{name} {key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    facts |= {f"engine {name}": value for name, value in found.engine.items()}
    return Reading("served", Content.SERVED, found, facts, tuple(found.figures), (), (), tuple(broken))


def read_served(path: Path) -> MeasuredServer:
    """As `read`, of one file."""
    return _read_results([path], Context())[0]


def _read_results(files: Sequence[Path], context: Context) -> tuple[MeasuredServer, list[str]]:
    found: MeasuredServer | None = None
    broken: list[str] = []
    for path in files:
        text = head_of(path).text
        source = source_of(text)
        if source is None:
            continue
        found = found or MeasuredServer(source)
        if text.lstrip()[:1] == "{":
            _take_json(path.read_text(encoding="utf-8", errors="replace"), found)
            continue
        lines = LogLines(path, context.progress)
        _take_lines(lines, found)
        broken += lines.broken
    if found is None or not (found.figures or found.engine):
        raise FileError(str(files[0]), "no figure of a server", "what an inference server or its benchmark prints")
    return found, broken


def _take_lines(lines: Iterator[str] | Any, found: MeasuredServer) -> None:
    words, boxes = served_words()["words"], served_words()["boxes"]
    patterns = {name: re.compile(pattern) for name, pattern in served_words()["lines"].items()}
    inside = {name: re.compile(pattern) for name, pattern in served_words()["figures"].items()}
    seen: dict[str, list[float]] = {}
    heads: list[str] = []
    groups = _Groups()
    for line in lines:
        for name, pattern in inside.items():
            if (match := pattern.search(line)) is not None and (
                value := _number_of(next(filter(None, match.groups())))
            ) is not None:
                found.put(name, value)
        for name, pattern in patterns.items():
            if (match := pattern.search(line)) is not None:
                seen.setdefault(name, []).append(_number_of(next(filter(None, match.groups()))) or 0.0)
        match = _LINE.match(line)
        if match is not None:
            known = words.get(match["words"].strip().lower())
            value = _number_of(match["value"])
            if known is not None and value is not None and match["unit"] != "retokenized":
                found.put(known[0], value * _scale_of(match["unit"]))
            continue
        cells = [cell.strip() for cell in re.split(r"[│┃|]", line)[1:-1]]
        if len(cells) > 1 and cells[0].lower() in ("statistic", "metric", "key"):
            heads = [cell.lower() for cell in cells[1:]]
        elif len(cells) > 1 and heads == ["value"]:
            _take_pair(cells, words, found)
        elif len(cells) > 1 and heads:
            _take_box(cells, heads, boxes, found)
        else:
            groups.take(line, found)
    _take_engine(seen, found)


def _take_pair(cells: Sequence[str], words: Mapping[str, Any], found: MeasuredServer) -> None:
    """A row of a box that has one value: a figure with its unit."""
    unit, value = _UNIT.search(cells[0]), _number_of(cells[1])
    known = words.get(_UNIT.sub("", cells[0]).strip().lower())
    if known is not None and value is not None:
        found.put(known[0], value * (_scale_of(unit["unit"]) if unit is not None else 1.0))


class _Groups:
    """A table whose columns stand in groups: a head of groups, each with as many bars behind it as it has columns, a head of
    columns, and a row for each load."""

    def __init__(self) -> None:
        self._heads: list[tuple[str, float]] = []
        self._columns: list[tuple[str, float]] = []

    def take(self, line: str, found: MeasuredServer) -> None:
        """Takes a line; one that is none of such a table ends it."""
        if line.startswith("Metadata") and "||" in line:
            self._heads, self._columns = [], []
            for name, bars in re.findall(r"([^|]+)(\|*)", line):
                unit = _UNIT.search(name.rstrip())
                head = (_UNIT.sub("", name.rstrip()).strip().lower(), _scale_of(unit["unit"]) if unit is not None else 1.0)
                self._heads += [head] * max(1, len(bars))
            self._heads += [self._heads[-1]] * line.rstrip().endswith("|")
            return
        cells = [cell.strip() for cell in line.split("|")]
        if not self._heads or len(cells) != len(self._heads):
            return
        if not self._columns:
            self._columns = [(f"{group} {cell.lower()}", scale) for (group, scale), cell in zip(self._heads, cells, strict=True)]
            return
        figures = served_words()["columns"]
        for (name, scale), cell in zip(self._columns, cells, strict=True):
            if name in figures and (value := _number_of(cell)) is not None:
                found.put(figures[name], value * scale)


def _take_box(cells: Sequence[str], heads: Sequence[str], boxes: Mapping[str, str], found: MeasuredServer) -> None:
    """A row of a box: a statistic with its unit, and values by column."""
    unit = _UNIT.search(cells[0])
    name = boxes.get(_UNIT.sub("", cells[0]).strip().lower())
    if name is None:
        return
    scale = _scale_of(unit["unit"]) if unit is not None else 1.0
    for head, cell in zip(heads, cells[1:], strict=False):
        value = _number_of(cell)
        if value is None or head not in _SPREADS:
            continue
        if name in _LATENCIES:
            found.put(f"{name}.{_SPREADS[head]}", value * scale)
        elif head in ("avg", "mean"):
            found.put(name, value)


def _take_engine(seen: Mapping[str, Sequence[float]], found: MeasuredServer) -> None:
    """The cache at start-up, and means of the lines of statistics."""
    for name in ("cache_tokens", "concurrency_length", "concurrency_times"):
        if seen.get(name):
            found.engine[name] = seen[name][-1]
    if "cache_tokens" not in found.engine and seen.get("cache_blocks"):
        found.engine["cache_tokens"] = 16.0 * seen["cache_blocks"][-1]  # vLLM's usual blocks
    for name, target in (("cache_gib", "cache_bytes"), ("weights_gib", "weights_bytes")):
        if seen.get(name):
            found.engine[target] = seen[name][-1] * 2.0**30
    for name in ("prompt_rate", "generation_rate", "running", "waiting"):
        if seen.get(name):
            found.engine[name] = fmean(seen[name])
    shares = [value / 100.0 for value in seen.get("cache_used", ())] + list(seen.get("cache_share", ()))
    if shares:
        found.engine["cache_used"] = max(shares)
    if seen.get("prefix_hits"):
        found.engine["prefix_hits"] = seen["prefix_hits"][-1] / 100.0


def _take_json(text: str, found: MeasuredServer) -> None:
    """The last object of a JSON or JSONL text. FileError for another text."""
    tables = []
    for part in [text] if _json_of(text) is not None else text.splitlines():
        table = _json_of(part)
        if isinstance(table, Mapping):
            tables.append(table)
    if not tables:
        raise FileError("result", text[:40], "a JSON object, or one a line")
    table = tables[-1]
    _take_metrics(table, found)
    keys = served_words()["keys"]
    for name, value in table.items():
        number = _finite_number(value)
        spread = _JSON_SPREAD.fullmatch(name)
        if number is None:
            if isinstance(value, Mapping):
                _take_genai(name, value, found)
            continue
        if spread is not None:
            figure = {"e2el": "e2e", "e2e_latency": "e2e"}.get(spread[2], spread[2])
            found.put(f"{figure}.{'p50' if spread[1] == 'median' else spread[1]}", number / 1e3)
        elif name in keys:
            found.put(keys[name][0], number * keys[name][1])


def _take_metrics(table: Mapping[str, Any], found: MeasuredServer) -> None:
    """The last benchmark of GuideLLM's JSON: a metric's spread over the requests that succeeded."""
    benchmarks = table.get("benchmarks")
    last = benchmarks[-1] if isinstance(benchmarks, list) and benchmarks else None
    metrics = last.get("metrics") if isinstance(last, Mapping) else None
    told = metrics if isinstance(metrics, Mapping) else {}
    for name, (figure, scale) in served_words()["metrics"].items():
        spread = told.get(name)
        spread = spread.get("successful") if isinstance(spread, Mapping) else None
        if not isinstance(spread, Mapping):
            continue
        listed = spread.get("percentiles")
        values = {"mean": spread.get("mean"), "p50": spread.get("median")}
        values["p99"] = listed.get("p99") if isinstance(listed, Mapping) else None
        for key, value in values.items():
            number = _finite_number(value)
            if number is not None and (figure in _LATENCIES or key == "mean"):
                found.put(f"{figure}.{key}" if figure in _LATENCIES else figure, number * scale)


def _take_genai(name: str, table: Mapping[str, Any], found: MeasuredServer) -> None:
    """A statistic of GenAI-Perf's and AIPerf's JSON: {"avg": ..., "unit": ...}."""
    figure = served_words()["boxes"].get(name.replace("_", " ").lower())
    if figure is None:
        return
    scale = _scale_of(str(table.get("unit", "ms" if figure in _LATENCIES else "")))
    for head, value in table.items():
        number = _finite_number(value)
        if number is None or head not in _SPREADS:
            continue
        if figure in _LATENCIES:
            found.put(f"{figure}.{_SPREADS[head]}", number * scale)
        elif head == "avg":
            found.put(figure, number)


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _finite_number(value: Any) -> float | None:
    """A finite number; None for anything else, as Infinity and NaN are."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _scale_of(unit: str | None) -> float:
    """Seconds of a unit of time, and 1 for any other unit."""
    return _TIMES.get((unit or "").strip().lower(), 1.0)


def _number_of(text: str) -> float | None:
    try:
        return _finite_number(float(text.replace(",", "")))
    except ValueError:
        return None
