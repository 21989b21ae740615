"""Reads the logs of one job, line by line, into a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.fleet.findings.losses import LossSeries, values_in
from windtunnel.formats.head import head_of
from windtunnel.formats.logs import megatron, progress
from windtunnel.formats.logs.frameworks import FRAMEWORKS
from windtunnel.formats.logs.step_log import StepLines, StepLog, parse_numbers, summarise
from windtunnel.formats.machines.nccl.debug_log import WORD as DEBUG_WORD
from windtunnel.formats.machines.nccl.debug_log import DebugLines
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import WordLines
from windtunnel.formats.text.tool_marks import describe_log
from windtunnel.records.run import Run, Steps

SHOWN_ARGUMENTS = (
    "bf16", "fp16", "checkpoint_activations", "data_parallel_size", "global_batch_size", "hidden_size", "micro_batch_size",
    "num_attention_heads", "num_layers", "pipeline_model_parallel_size", "seq_length", "tensor_model_parallel_size", "world_size",
    "zero_stage", "context_parallel_size", "expert_model_parallel_size", "virtual_pipeline_model_parallel_size", "num_experts",
    "ffn_hidden_size", "num_query_groups", "recompute_granularity", "sequence_parallel", "use_distributed_optimizer", "fp8",
)  # fmt: skip
"""Megatron-LM's arguments that decide a step's time; its hundreds of others are counted."""


_ODD = re.compile(r"(?:[:=(]|\b[Ll]oss)\s*['\"]?[-+]?(?:nan|NaN|NAN|inf|Inf|INF)")
"""A value that is none. Names hold `nan` too: `number of nan iterations`."""
_ODD_WORDS = ("NaN", "NAN", "inf", "Inf", "INF")
_SKIPPED = re.compile(r"number of (skipped|nan) iterations:\s*([1-9]\d{0,8})")
_MOST_ODD = 1000


def read_logs(files: Sequence[Path], context: Context) -> Reading:
    """A run from the logs of one job; several files are several ranks or restarts. FileError if no file has a step."""
    logs: list[StepLog] = []
    facts: dict[str, Any] = {}
    broken: list[str] = []
    name = ""
    for path in files:
        used, reader, counted = _one(path, context, broken)
        if reader is None:
            continue
        name = name or used
        logs.append(reader.log)
        _add_counts(facts, counted)
    if not logs:
        wanted = "lines of " + ", ".join(dict.fromkeys(framework.NAME for framework in FRAMEWORKS))
        what = describe_log(head_of(files[0]).text, "without a step")
        raise FileError(str(files[0]), what, wanted, _hint(files[0]) or (broken[0] if broken else ""))
    steps = _join_steps([log.steps() for log in logs])
    arguments = {key: text for log in logs for key, text in log.arguments.items() if text != "None"}
    shown = parse_numbers({key: arguments[key] for key in arguments if key in SHOWN_ARGUMENTS or name != megatron.NAME})
    facts = {"framework": name, "files": len(files), "steps": len(steps), **facts, "args": shown}
    facts |= summary_of_steps(steps, sum(log.attempt for log in logs))
    figures = {key: value for log in logs for key, value in log.figures.items() if value == value}
    facts |= {"figures": figures} if figures else {}
    known: dict[str, str | int | float] = {"framework": name, **shown, **figures}
    run = Run(steps, (), known, str(files[0]))
    built = (f"a run of {show_counted(len(steps), 'step')} of {name}", *facts.get("training_faults", ()))
    more = len(arguments) - len(shown)
    ignored = (f"{more} arguments that are not listed",) if more else ()
    return Reading("training-log", Content.RUN, run, facts, built, ignored, _list_assumptions(logs, name), tuple(broken))


def _hint(path: Path) -> str:
    """What to give in place of a log of losses without times, as the Trainer prints it without a progress bar."""
    if re.search(r"[{,] ?['\"](?:loss|train/loss)['\"]: ", head_of(path).text) is None:
        return ""
    return (
        "Its lines have losses and no times: give trainer_state.json or trainer_log.jsonl of the output folder, or the console's "
        "log with its progress bar (disable_tqdm: false)."
    )


def _one(path: Path, context: Context, broken: list[str]) -> tuple[str, StepLines | None, dict[str, Any]]:
    """The framework with most steps in one log, its reader, and the counts of the log."""
    readers = [(framework.NAME, framework.READER()) for framework in FRAMEWORKS]
    takers = [(reader, framework.WORDS) for (_, reader), framework in zip(readers, FRAMEWORKS, strict=True)]
    debug = DebugLines()
    words = {word for framework in FRAMEWORKS for word in framework.WORDS}
    lines = WordLines(path, [*sorted(words), DEBUG_WORD], context.progress, broken)
    odd = _OddLines()
    for text in lines:
        waits = False
        for reader, own in takers:
            if reader.waiting:
                reader.line(text)
            else:
                for word in own:
                    if word in text:
                        reader.line(text)
                        break
            waits = waits or reader.waiting
        lines.following = waits
        debug.line(text)
        odd.line(text, readers)
    for _, reader in readers:
        reader.close()
    broken.extend(f"{path}: {reader.log.broken} lines of {name} that break off" for name, reader in readers if reader.log.broken)
    name, best = max(
        readers, key=lambda pair: (sum(line.seconds == line.seconds for line in pair[1].log.lines), len(pair[1].log.lines))
    )
    if not best.log.lines:
        broken.append(f"{path}: {lines.count} lines without a step")
        return name, None, {}
    for _, other in readers:
        for key, text in other.log.arguments.items():
            best.log.arguments.setdefault(key, text)
    counted = _count_facts(lines.count, best, debug)
    if faults := odd.faults(best.log, [reader for _, reader in readers].index(best)):
        counted["training_faults"] = faults
    return name, best, counted


class _OddLines:
    """Lines that say NaN, infinity, or iterations that were skipped."""

    def __init__(self) -> None:
        self._odd: list[tuple[str, tuple[int, ...]]] = []
        self._skipped: dict[str, int] = {}

    def line(self, text: str, readers: Sequence[tuple[str, StepLines]]) -> None:
        """Takes one line after the readers have."""
        odd = text.count("nan") > text.count("nan iterations") or any(word in text for word in _ODD_WORDS)
        if odd and _ODD.search(text) is not None and len(self._odd) < _MOST_ODD:
            told = [(what, value) for what, value in values_in(text) if not isfinite(value)]
            counts = tuple(len(reader.log.lines) for _, reader in readers)
            self._odd += [(f"the {what} is {'NaN' if value != value else 'infinite'}", counts) for what, value in told]
        for kind, count in _SKIPPED.findall(text) if "iterations: " in text else ():
            self._skipped[kind] = self._skipped.get(kind, 0) + int(count)

    def faults(self, log: StepLog, reader: int) -> list[str]:
        """What went wrong with the loss, each once with its first step."""
        faults = []
        for said in dict.fromkeys(text for text, _ in self._odd):
            at = [counts[reader] for text, counts in self._odd if text == said]
            step = log.lines[min(max(at[0] - 1, 0), len(log.lines) - 1)].step
            faults.append(f"{said} from step {step:,} on" if len(at) > 1 else f"{said} at step {step:,}")
        series = LossSeries("loss")
        for line in log.lines:
            if isfinite(line.loss) and (fault := series.add(line.loss)) is not None and not fault.over:
                faults.append(f"{fault.text} (step {line.step:,})")
        return [*faults, *(f"{count} {kind} iterations" for kind, count in self._skipped.items())][:_MOST_ODD]


def _count_facts(count: int, reader: StepLines, debug: DebugLines) -> dict[str, Any]:
    log = reader.log
    facts: dict[str, Any] = {"lines": count, "iteration_lines": reader.step_lines}
    seconds = [line.seconds for line in log.lines]
    if log.lines:
        facts |= {"first": [log.lines[0].step, log.total_steps], "last": [log.lines[-1].step, log.total_steps]}
    if elapsed := summarise([1e3 * value for value in seconds]):
        facts["elapsed_ms"] = {key: round(value, 6) for key, value in elapsed.items()}
    if isinstance(reader, megatron.MegatronLines):
        facts |= {
            "unit": sorted(reader.units), "gbs": sorted(reader.batches), "tflops_logged": reader.tflops_logged[:3],
            "timer_lines": reader.timer_lines, "timer_names": sorted(log.timers), "memory_lines": reader.memory_lines,
            "prefix_examples": sorted(reader.prefixes)[:3],
        }  # fmt: skip
    facts["nccl_info"] = debug.lines
    if debug.lines:
        facts["nccl"] = debug.facts()
    return facts


def _add_counts(facts: dict[str, Any], more: dict[str, Any]) -> None:
    """Counts of a further file: numbers add up, the rest is that of the first file."""
    for key, value in more.items():
        if isinstance(value, int) and isinstance(facts.get(key), int):
            facts[key] += value
        else:
            facts.setdefault(key, value)


def _join_steps(parts: list[Steps]) -> Steps:
    return Steps(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Steps)))


def summary_of_steps(steps: Steps, restarts: int) -> dict[str, Any]:
    """Medians over all steps, in the units of the run."""
    facts: dict[str, Any] = {"restarts": restarts}
    for key, column in (("step_seconds", steps.seconds), ("tflops", steps.tflops), ("tokens_per_step", steps.tokens)):
        finite = column[np.isfinite(column)]
        if len(finite):
            facts[key] = float(np.median(finite))
    rates = (steps.tokens / steps.seconds)[np.isfinite(steps.tokens / steps.seconds)]
    if len(rates):
        facts["tokens_per_second"] = float(np.median(rates))
    memory = steps.memory[np.isfinite(steps.memory)]
    if len(memory):
        facts["peak_memory_bytes"] = float(memory.max())
    return facts


def _list_assumptions(logs: list[StepLog], name: str) -> tuple[str, ...]:
    assumed = []
    untimed = sum(line.seconds != line.seconds for log in logs for line in log.lines)
    if untimed:
        assumed.append(f"{untimed} lines give no length of their step")
    repeated = sum(len(log.lines) for log in logs) - sum(len({(line.attempt, line.step) for line in log.lines}) for log in logs)
    if repeated:
        assumed.append(f"{repeated} lines repeat a step: several ranks print it, the median counts")
    if name == "torchtitan" and not untimed:
        assumed.append("a step's seconds: its tokens over tps and the mesh, else the time between lines")
    if name == progress.NAME:
        assumed.append("a step's seconds: what the progress bar shows, which is smoothed, or the mean of the whole run")
    return (*assumed, *dict.fromkeys(note for log in logs for note in log.assumed))
