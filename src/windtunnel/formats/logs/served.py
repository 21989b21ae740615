"""What an inference server or its benchmark printed, as measured figures: tables of `vllm bench serve` and `sglang.bench_serving`,
their JSON, boxes of GenAI-Perf and AIPerf, `trtllm-bench`, start-up lines of the cache, and statistics of engines.

`served.toml` has the words. `Infinity` and `NaN` of other people's JSON are missing values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_LINE = re.compile(
    r"^[\s=│┃|]*(?P<words>[A-Za-z][^:│┃]*?)\s*(?:\[[A-Z]+\])?\s*(?:\((?P<unit>[^()]*)\))?\s*:\s+(?P<value>[-+\d][\d.,eE+-]*)\s*$"
)
_UNIT = re.compile(r"\s*\((?P<unit>[^()]*)\)\s*$")
_MILLI = ("ms", "millisecond", "milliseconds")
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
_KNOWN_KEYS = ("mean_ttft_ms", "median_ttft_ms", "output_throughput", "time_to_first_token")


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
    seen: dict[str, list[float]] = {}
    heads: list[str] = []
    for line in lines:
        for name, pattern in patterns.items():
            if (match := pattern.search(line)) is not None:
                seen.setdefault(name, []).append(_number_of(next(filter(None, match.groups()))) or 0.0)
        match = _LINE.match(line)
        if match is not None:
            known = words.get(match["words"].strip().lower())
            value = _number_of(match["value"])
            if known is not None and value is not None:
                found.put(known[0], value * (1e-3 if (match["unit"] or "").strip().lower() in _MILLI else 1.0))
            continue
        cells = [cell.strip() for cell in re.split(r"[│┃|]", line)[1:-1]]
        if len(cells) > 1 and cells[0].lower() in ("statistic", "metric"):
            heads = [cell.lower() for cell in cells[1:]]
        elif len(cells) > 1 and heads:
            _take_box(cells, heads, boxes, found)
    _take_engine(seen, found)


def _take_box(cells: Sequence[str], heads: Sequence[str], boxes: Mapping[str, str], found: MeasuredServer) -> None:
    """A row of a box: a statistic with its unit, and values by column."""
    unit = _UNIT.search(cells[0])
    name = boxes.get(_UNIT.sub("", cells[0]).strip().lower())
    if name is None:
        return
    scale = 1e-3 if unit is not None and unit["unit"].strip().lower() in _MILLI else 1.0
    for head, cell in zip(heads, cells[1:], strict=False):
        value = _number_of(cell)
        if value is None or head not in _SPREADS:
            continue
        if name in ("ttft", "tpot", "e2e"):
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


def _take_genai(name: str, table: Mapping[str, Any], found: MeasuredServer) -> None:
    """A statistic of GenAI-Perf's and AIPerf's JSON: {"avg": ..., "unit": ...}."""
    figure = served_words()["boxes"].get(name.replace("_", " ").lower())
    if figure is None:
        return
    scale = 1e-3 if str(table.get("unit", "ms" if figure in ("ttft", "tpot", "e2e") else "")).lower() in _MILLI else 1.0
    for head, value in table.items():
        number = _finite_number(value)
        if number is None or head not in _SPREADS:
            continue
        if figure in ("ttft", "tpot", "e2e"):
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


def _number_of(text: str) -> float | None:
    try:
        return _finite_number(float(text.replace(",", "")))
    except ValueError:
        return None
