"""What Hugging Face's Trainer leaves beside a checkpoint (`trainer_state.json`), and LLaMA-Factory's `trainer_log.jsonl`.

`log_history` holds a table a logged step (`step`, `loss`, …) and at the end `train_runtime` with the whole time;
`trainer_log.jsonl` a table a line with `current_steps` and `elapsed_time` as H:MM:SS.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.formats.head import Head
from windtunnel.formats.machines.accounting.values import seconds_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.formats.text.source import load_json
from windtunnel.records.run import Run, Steps

_WANTED = "trainer_state.json of Hugging Face's Trainer, or trainer_log.jsonl"
_NAN = float("nan")


def recognises(head: Head) -> bool:
    """The history with the number of steps, or a first line with its step and time."""
    return head.starts_json("log_history", "global_step") or head.starts_json("current_steps", "total_steps")


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run with the logged steps of the first file. FileError for one without a step."""
    path, *more = files
    with path.open("rb") as file:
        lines = b'"log_history"' not in file.read(1 << 20)
    rows, stated = _lines(path, context) if lines else _history(path)
    if not rows:
        raise FileError(str(path), "no step", _WANTED)
    number, seconds, loss = zip(*rows, strict=True)
    steps = Steps.of([-1] * len(rows), number, seconds=seconds, loss=loss)
    facts: dict[str, Any] = {"steps": len(rows), "last_step": max(number), **stated}
    timed = sorted(one for one in seconds if one == one)
    if timed:
        facts["step_seconds"] = timed[len(timed) // 2]
    assumed = ("a step's seconds: the whole time over all steps, as no step is timed alone",) if not lines and timed else ()
    ignored = tuple(f"{other}: another state" for other in more)
    built = (f"a run of {show_counted(len(rows), 'logged step')}",)
    return Reading("trainer-state", Content.RUN, Run(steps, (), stated, str(path)), facts, built, ignored, assumed)


def _history(path: Path) -> tuple[list[tuple[int, float, float]], dict[str, Any]]:
    """(step, seconds, loss) by logged step; what the state says of the whole run."""
    table = load_json(path, _WANTED)
    listed = table.get("log_history") if isinstance(table, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    stated = {
        key: table[key]
        for key in ("global_step", "max_steps", "train_batch_size", "num_train_epochs", "total_flos", "logging_steps")
        if isinstance(table, dict) and _number(table.get(key)) >= 0
    }
    ends = [entry for entry in entries if _number(entry.get("train_runtime")) > 0]
    total = _number(table.get("global_step")) if isinstance(table, dict) else _NAN
    each = _NAN
    if ends:
        each = _number(ends[-1]["train_runtime"]) / total if total > 0 else _NAN
        stated |= {key: ends[-1][key] for key in ("train_runtime", "train_samples_per_second") if _number(ends[-1].get(key)) > 0}
    rows = [
        (int(step), each, _number(entry["loss"]))
        for entry in entries
        if "loss" in entry and (step := _number(entry.get("step"))) >= 0
    ]
    return rows, stated


def _lines(path: Path, context: Context) -> tuple[list[tuple[int, float, float]], dict[str, Any]]:
    """Seconds of a step: the time since the line before over the steps since then."""
    rows: list[tuple[int, float, float]] = []
    stated: dict[str, Any] = {}
    before = (0, 0.0)
    for text in LogLines(path, context.progress):
        try:
            entry = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        if not isinstance(entry, dict) or not (step := _number(entry.get("current_steps"))) >= 0:
            continue
        elapsed = seconds_of(str(entry.get("elapsed_time", "")))
        if (total := _number(entry.get("total_steps"))) > 0:
            stated["max_steps"] = int(total)
        if "loss" in entry and step > before[0]:
            seconds = (elapsed - before[1]) / (step - before[0])
            rows.append((int(step), seconds if seconds > 0 else _NAN, _number(entry["loss"])))
            before = (int(step), elapsed)
    return rows, stated


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 else _NAN
