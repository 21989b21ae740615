"""Golden values of Megatron-LM's functional tests: step times, losses and memory that TensorBoard recorded, by step.

`tests/functional_tests/test_cases/*/*/golden_values_*.json`: a table a metric with `start_step`, `end_step`, `step_interval` and
`values`, which older releases write as a list and newer ones by step. Times are seconds, memory is bytes of the rank that writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.source import load_json
from windtunnel.records.run import Run, Steps

_WANTED = "golden values of Megatron-LM: lm loss, iteration-time or mem-max-allocated-bytes, by step"
_COLUMNS = {"iteration-time": "seconds", "lm loss": "loss", "mem-max-allocated-bytes": "memory"}
_MOST_STEPS = 10_000_000
_NAN = float("nan")


def recognises(head: Head) -> bool:
    """A metric by steps."""
    return head.starts_json("start_step", "end_step", "step_interval", "values")


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run with the recorded steps of the first file. FileError for one without a step."""
    path, *more = files
    table = load_json(path, _WANTED)
    metrics = {name: one for name, one in table.items() if isinstance(one, dict)} if isinstance(table, dict) else {}
    columns: dict[str, dict[int, float]] = {}
    broken = 0
    for name, column in _COLUMNS.items():
        if name in metrics:
            columns[column], lost = _series(metrics[name], least=-1e18 if column == "loss" else 0.0)
            broken += lost
    assumed: tuple[str, ...] = ()
    mean = table.get("iteration_timing_avg") if isinstance(table, dict) else None
    if "seconds" not in columns and _good(mean, 0.0):
        columns["seconds"] = dict.fromkeys((step for series in columns.values() for step in series), float(mean or 0.0))
        assumed = ("every step takes the mean, `iteration_timing_avg`",)
    listed = sorted({step for series in columns.values() for step in series})
    if not listed:
        raise FileError(str(path), "no step", _WANTED)
    filled = {column: [series.get(step, _NAN) for step in listed] for column, series in columns.items()}
    steps = Steps.of([-1] * len(listed), listed, **filled)
    facts: dict[str, Any] = {"steps": len(listed), "last_step": listed[-1]}
    if timed := sorted(columns.get("seconds", {}).values()):
        facts |= {"timed_steps": len(timed), "step_seconds": timed[len(timed) // 2]}
    if memory := columns.get("memory"):
        facts["peak_memory_bytes"] = max(memory.values())
    built = (f"a run of {show_counted(len(listed), 'recorded step')}",)
    ignored = (*(f"{name}" for name in sorted(set(metrics) - set(_COLUMNS))), *(f"{one}: another run" for one in more))
    trouble = (f"{path}: {broken} values that are no numbers",) if broken else ()
    return Reading("megatron-golden-values", Content.RUN, Run(steps, (), facts, str(path)), facts, built, ignored, assumed, trouble)


def _series(metric: Mapping[str, Any], least: float) -> tuple[dict[int, float], int]:
    """Values by step, and how many entries are no numbers; "nan" stands where a metric was not recorded at a step."""
    values = metric.get("values")
    pairs: list[tuple[Any, Any]] = []
    if isinstance(values, dict):
        pairs = [(int(step) if str(step).isdecimal() and len(str(step)) < 16 else None, value) for step, value in values.items()]
    elif isinstance(values, list):
        first, interval = (one if isinstance(one := metric.get(name), int) else 1 for name in ("start_step", "step_interval"))
        pairs = [(first + at * interval, value) for at, value in enumerate(values[:_MOST_STEPS])]
    recorded = [(step, value) for step, value in pairs if value != "nan"]
    series = {step: float(value) for step, value in recorded if step is not None and 0 <= step < 10**15 and _good(value, least)}
    return series, len(recorded) - len(series)


def _good(value: Any, least: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value < 1e18
