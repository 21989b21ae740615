"""MLPerf Training logs: lines with `:::MLLOG ` and a JSON table, also behind a rank's prefix, and the power readings beside them.

A step's time is the tracked `train_step_time`; without it, the time of a block over its steps (samples / global batch).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.meters import PowerSource
from windtunnel.formats.machines.nccl.debug_log import WORD as DEBUG_WORD
from windtunnel.formats.machines.nccl.debug_log import DebugLines
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import WordLines, add_facts
from windtunnel.records.run import Run, Steps

MARK = ":::MLLOG "
VALUES = ("submission_benchmark", "submission_org", "submission_platform", "global_batch_size", "max_sequence_length",
          "gradient_accumulation_steps", "train_samples", "samples_count", "opt_base_learning_rate", "seed")  # fmt: skip
_STEP_TIMES = ("train_step_time", "step_time", "train_step_timing")
_KEPT = 10**6
"""Readings and steps of a file that are kept at most."""


@dataclass
class MlLog:
    """The entries of one file."""

    text_lines: int = 0
    entries: int = 0
    prefixed: int = 0
    broken: int = 0
    keys: Counter[str] = field(default_factory=Counter)
    values: dict[str, Any] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)  # ms of run_start and run_stop
    stop: dict[str, Any] = field(default_factory=dict)
    step_seconds: list[float] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)  # by samples
    blocks: list[tuple[float, float, float, float]] = field(default_factory=list)  # begin and end in s, samples at begin and end
    step_blocks: list[tuple[float, float, int, int]] = field(default_factory=list)  # begin and end in s, steps at begin and end
    evaluations: list[tuple[Any, Any]] = field(default_factory=list)
    power: PowerSource = field(default_factory=PowerSource)
    open_block: tuple[float, float] | None = None
    open_steps: tuple[float, int] | None = None
    debug: DebugLines = field(default_factory=DebugLines)


def recognises(head: Head) -> bool:
    """Whether a line holds MLPerf's mark."""
    return MARK.encode() in head.data


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run from the result log, with the energy of the readings beside it. FileError for files without entries."""
    logs = {path: _entries(path, context) for path in files}
    broken = [text for log in logs.values() for text in log[1]]
    results = {path: log for path, (log, _) in logs.items() if log.entries and not log.power.readings}
    power = {path: log.power for path, (log, _) in logs.items() if log.power.readings}
    if not results and not power:
        raise FileError(str(files[0]), "no entry that can be read", f"lines with {MARK.strip()}")
    steps = [_steps(log) for log in results.values()]
    joined = (
        Steps(*(np.concatenate(columns) for columns in zip(*(_columns(one) for one in steps), strict=True)))
        if steps
        else Steps.of((), ())
    )
    facts: dict[str, Any] = {}
    for path, log in results.items():
        own = _facts(log)
        add_facts(facts, path, own)
    if power:
        window = next((_window(log) for log in results.values() if len(log.times) == 2), None)
        facts["sources"] = {path.name: source.facts(window) for path, source in power.items()}
        facts["trapezoid_energy_J"] = round(sum(source.energy() for source in power.values()))
    known = {key: value for log in results.values() for key, value in log.values.items() if isinstance(value, (str, int, float))}
    built: tuple[str, ...] = (
        f"a run of {len(joined)} {'steps' if any(log.step_seconds for log in results.values()) else 'blocks of steps'}",
    )
    if power:
        built += (f"power readings of {len(power)} sources",)
    assumed = () if any(log.step_seconds for log in results.values()) else ("a step's time: a block's time over its steps",)
    return Reading("mlperf", Content.RUN, Run(joined, (), known, str(files[0])), facts, built, (), assumed, tuple(broken))


def _entries(path: Path, context: Context) -> tuple[MlLog, list[str]]:
    lines, log = WordLines(path, (MARK, DEBUG_WORD), context.progress), MlLog()
    for text in lines:
        at = text.find(MARK)
        if at < 0:
            log.debug.line(text)
            continue
        try:
            entry, _ = json.JSONDecoder().raw_decode(text[at + len(MARK) :].lstrip())
            if not isinstance(entry, dict):
                raise ValueError
            _take(log, entry)
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            log.broken += 1
            continue
        log.entries += 1
        log.prefixed += at > 0
    log.text_lines = lines.count
    broken = lines.broken + ([f"{path}: {log.broken} entries that are no JSON table"] if log.broken else [])
    return log, broken


def _take(log: MlLog, entry: dict[str, Any]) -> None:
    key, value, time = str(entry["key"]), entry.get("value"), float(entry["time_ms"])
    stated = entry.get("metadata")
    meta: dict[str, Any] = stated if isinstance(stated, dict) else {}
    if len(log.keys) < 10_000 or key in log.keys:
        log.keys[key] += 1
    samples = next(
        (float(meta[name]) for name in ("samples_count", "epoch_num") if isinstance(meta.get(name), (int, float))), float("nan")
    )
    if key in VALUES:
        log.values[key] = value
    if key in ("run_start", "run_stop"):
        log.times[key] = int(time)
        log.stop = {name: meta[name] for name in ("samples_count", "status") if name in meta} if key == "run_stop" else log.stop
    elif key in ("block_start", "block_stop") and isinstance(meta.get("step_num"), int):
        if value != "validation_step":
            _take_steps(log, key, time * 1e-3, meta["step_num"])
    elif key == "block_start":
        begin = meta.get("first_epoch_num", meta.get("samples_count", 0))
        log.open_block = time * 1e-3, float(begin) if isinstance(begin, (int, float)) else 0.0
    elif key == "block_stop" and log.open_block is not None:
        begin, first = log.open_block
        count = meta.get("epoch_count", meta.get("samples_count"))
        count = float(count) if isinstance(count, (int, float)) else float("nan")
        log.blocks.append((begin, time * 1e-3, first, first + count if "epoch_count" in meta else count))
        log.open_block = None
    elif key == "eval_accuracy":
        log.evaluations.append((meta.get("samples_count"), value))
    elif key == "train_loss" and isinstance(value, (int, float)) and samples == samples and len(log.losses) < _KEPT:
        log.losses[int(samples)] = float(value)
    elif key == "tracked_stats" and isinstance(value, dict):
        log.step_seconds.extend(float(value[name]) for name in _STEP_TIMES if isinstance(value.get(name), (int, float)))
        if isinstance(value.get("throughput"), (int, float)):
            log.throughput.append(float(value["throughput"]))
    elif key in ("power_reading", "conversion_eff") and isinstance(value, (int, float)):
        log.power.take(key, time, float(value))


def _take_steps(log: MlLog, key: str, time: float, step: int) -> None:
    """A block that counts steps in place of samples, as NeMo's logger of diffusion models does."""
    if key == "block_start":
        log.open_steps = time, step
    elif log.open_steps is not None:
        begin, first = log.open_steps
        if step > first and time > begin:
            log.step_blocks.append((begin, time, first, step))
        log.open_steps = None


def _steps(log: MlLog) -> Steps:
    """A row for each tracked step; else for each block, with the mean of its steps, numbered by the last step of the block."""
    batch = log.values.get("global_batch_size")
    length = log.values.get("max_sequence_length")
    tokens = float(batch) * float(length) if isinstance(batch, int) and isinstance(length, int) else float("nan")
    if log.step_seconds:
        count = len(log.step_seconds)
        return Steps.of(-1, range(1, count + 1), seconds=log.step_seconds, tokens=[tokens] * count)
    rows = [(last, begin, (end - begin) / (last - first)) for begin, end, first, last in log.step_blocks]
    for begin, end, first, last in log.blocks:
        share = (
            float(batch) * (float(length) if isinstance(length, int) and (last - first) > 1e6 else 1.0)
            if isinstance(batch, int) and batch > 0
            else float("nan")
        )
        number = (last - first) / share
        if number > 0 and end > begin:
            rows.append((max(1, round(last / share)), begin, (end - begin) / number))
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return Steps.of(-1, columns[0], begin=columns[1], seconds=columns[2], tokens=[tokens] * len(rows))


def _columns(steps: Steps) -> list[Any]:
    return [steps.rank, steps.step, steps.begin, steps.seconds, steps.tokens, steps.tflops, steps.loss, steps.memory]


def _window(log: MlLog) -> tuple[int, int] | None:
    return (log.times["run_start"], log.times["run_stop"]) if len(log.times) == 2 else None


def _facts(log: MlLog) -> dict[str, Any]:
    steps = _steps(log).seconds
    facts = {
        "text_lines": log.text_lines, "mllog_lines": log.entries, "mllog_prefix_not_at_col0": log.prefixed,
        "keys": dict(log.keys.most_common()),
        "run_s": (log.times["run_stop"] - log.times["run_start"]) / 1e3 if len(log.times) == 2 else None,
        "run_stop_meta": log.stop,
        "median_train_step_time_s": float(np.median(log.step_seconds)) if log.step_seconds else None,
        "n_step_times": len(log.step_seconds),
        "throughput_median": round(float(np.median(log.throughput)), 3) if log.throughput else None,
        "blocks": log.keys["block_stop"], "block_step_seconds": float(np.median(steps)) if len(steps) else None,
        "vals": {name: log.values.get(name) for name in VALUES},
        "eval": [list(pair) for pair in log.evaluations],
    }  # fmt: skip
    if len(log.times) == 2:
        facts |= {"run_start_ms": log.times["run_start"], "run_stop_ms": log.times["run_stop"]}
    return facts | ({"nccl": log.debug.facts()} if log.debug.lines else {})
