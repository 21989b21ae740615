"""Steps as they are read from the lines of a log, and what the log says of the job."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.records.run import Steps

NAN = math.nan
_LARGEST = sys.float_info.max


@dataclass(slots=True)
class StepLine:
    """One line about a step. Seconds, tokens of the whole job, TFLOP/s of a GPU, bytes; NaN where the line does not say."""

    step: int
    seconds: float = NAN
    tokens: float = NAN
    tflops: float = NAN
    loss: float = NAN
    memory: float = NAN
    begin: float = NAN  # seconds since 1970 at which the line was printed, less the step's seconds
    samples: float = NAN
    attempt: int = 0


@dataclass
class StepLog:
    """What the lines of a log say so far: steps, arguments, and memory by step."""

    lines: list[StepLine] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)  # what the log measured beside its steps, by its own names
    memory: dict[tuple[int, int], float] = field(default_factory=dict)  # B, the largest rank's, by (attempt, step)
    timers: dict[str, int] = field(default_factory=dict)  # lines by name of a framework's own timer
    assumed: list[str] = field(default_factory=list)  # how lengths were found that no line says
    attempt: int = 0
    total_steps: int | None = None
    broken: int = 0
    _last: int = -1
    _stride: int = 1

    def restart(self) -> None:
        """The framework begins anew: steps may repeat numbers."""
        if self.lines and self.lines[-1].attempt == self.attempt:
            self.attempt += 1
            self._last = -1

    def add(self, line: StepLine) -> None:
        """A step. A number well below the last one is a restart; the same number again is another rank's line."""
        if line.step < self._last - self._stride:
            self.restart()
        elif line.step > self._last >= 0:
            self._stride = max(1, line.step - self._last)
        self._last = max(self._last, line.step)
        line.attempt = self.attempt
        self.lines.append(line)

    def fill_from_clock(self, printed: list[float]) -> None:
        """Lengths that lines do not say, from the times [lines] at which they were printed; and when each step began."""
        before: StepLine | None = None
        printed_before = NAN
        for line, at in zip(self.lines, printed, strict=True):
            if before is not None and (line.step <= before.step or line.attempt != before.attempt):
                before = before if line.attempt == before.attempt else None
            if line.seconds != line.seconds and before is not None and line.step > before.step:
                seconds = (at - printed_before) / (line.step - before.step)
                line.seconds = seconds if seconds > 0 else NAN
            line.begin = at - line.seconds
            if before is None or line.step > before.step:
                before, printed_before = line, at

    def number(self, *names: str) -> float:
        """The first of the arguments that is a positive number; NaN if none is."""
        for name in names:
            value = as_number(self.arguments.get(name, ""))
            if value > 0:
                return value
        return NAN

    def steps(self) -> Steps:
        """A row a step of each attempt: several ranks' lines of a step become their median."""
        names = ("begin", "seconds", "tokens", "tflops", "loss", "memory")
        keys = [(line.attempt, line.step) for line in self.lines]
        if len(set(keys)) == len(keys):  # one line a step
            columns = {name: list(map(attrgetter(name), self.lines)) for name in names}
        else:
            grouped: dict[tuple[int, int], list[StepLine]] = {}
            for key, line in zip(keys, self.lines, strict=True):
                grouped.setdefault(key, []).append(line)
            columns = {name: [_median([getattr(line, name) for line in group]) for group in grouped.values()] for name in names}
            keys = list(grouped)
        if self.memory:
            columns["memory"] = [_larger(one, self.memory.get(key, NAN)) for key, one in zip(keys, columns["memory"], strict=True)]
        return Steps.of(-1, [step for _, step in keys], **columns)


class StepLines(ABC):
    """Collects the lines of one framework in one log. `step_lines`: lines that said a step."""

    def __init__(self) -> None:
        self.log = StepLog()
        self.step_lines = 0

    @property
    def waiting(self) -> bool:
        """Whether the next line is wanted, whatever it holds."""
        return False

    @abstractmethod
    def line(self, text: str) -> None:
        """Takes one line of the log that holds a word, or that it waits for."""

    def add(self, line: StepLine) -> None:
        """A step that a line said."""
        self.step_lines += 1
        self.log.add(line)

    def close(self) -> None:
        """The log has ended; most readers have kept nothing back."""
        return


def as_number(text: str) -> float:
    """A number as logs print it, thousands with commas; NaN for anything else."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = float(text.strip().replace(",", ""))
        except ValueError:
            return NAN
    return value if -_LARGEST <= value <= _LARGEST else NAN


def epoch_seconds(text: str) -> float:
    """Seconds since 1970 of `2025-03-04 00:44:44,441` in any of its spellings, as UTC; NaN for anything else."""
    try:
        moment = datetime.fromisoformat(text.strip().replace(",", "."))
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return NAN


def summarise(values: list[float]) -> dict[str, float] | None:
    """Median, smallest and largest of finite values; None without any."""
    finite = [value for value in values if value == value]
    if not finite:
        return None
    return {"median": float(np.median(finite)), "min": min(finite), "max": max(finite)}


def parse_numbers(values: dict[str, str]) -> dict[str, Any]:
    """Arguments as numbers where they are whole numbers."""
    return {name: int(text) if text.lstrip("-").isdigit() and len(text) < 18 else text for name, text in values.items()}


def _median(values: list[float]) -> float:
    finite = [value for value in values if value == value]
    if len(finite) < 2:
        return finite[0] if finite else NAN
    return float(np.median(finite))


def _larger(one: float, other: float) -> float:
    return one if other != other or one > other else other
