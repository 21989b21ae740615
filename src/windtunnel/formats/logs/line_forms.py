"""Frameworks that print a step as names and numbers, in one line or in lines below a head: a table each in `line_forms.toml`.

A field's unit stands behind its number (`dt: 989.44ms`, `mem 24.90 GiB`), or is that of the table. Frameworks that print no
length of a step say when a line was printed; tokens of the job a second, over the GPU's own, give the number of GPUs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.files import table_beside
from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number, epoch_seconds

NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{0,40}\.?\d{1,40}(?:[eE][-+]?\d{1,3})?)(?:[kKMBT](?![A-Za-z]))?|nan|inf"
"""A number with thousands between commas, or a scale behind it."""
TIMES = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "min": 60.0}
MEMORIES = {"GiB": 2.0**30, "GB": 2.0**30, "G": 2.0**30, "MiB": 2.0**20, "MB": 2.0**20, "KiB": 2.0**10, "B": 1.0}
"""Bytes of units of memory; what PyTorch's programs call GB and MB divides bytes by 2^30 and 2^20."""
_UNIT = r"(?: ?(us|µs|ms|secs?|seconds|s|min|GiB|GB|MiB|MB|KiB|B)(?![A-Za-z]))?"
_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_DEVICES = re.compile(r"Num_devices: (\d{1,9})")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d{1,9})?)")
_HOUR = re.compile(r"(?<![\d:.-])(\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?![\d:])")
_DAY = 86400.0


@dataclass(frozen=True)
class LineForm:
    """A framework whose steps are lines of one kind. `step` finds the number of a step, and of how many; without a group, steps are
    counted. `fields` are found by a group for the number and one for its unit: `seconds`, `steps_per_second`, `rate` and
    `rate_per_gpu` (tokens/s), `tflops`, `loss`, `memory`, `reserved`, `batch`. `per_device`: `rate` is that of one device."""

    NAME: str
    KNOWN_BY: re.Pattern[str]
    WORDS: tuple[str, ...]
    step: re.Pattern[str]
    fields: dict[str, re.Pattern[str]]
    phases: re.Pattern[str] | None = None
    """(name, seconds) of the parts of a step: facts, and their sum where nothing says the step's length."""
    unit: float = 1.0
    memory_unit: str = "GiB"
    per_device: bool = False
    block: bool = False
    """Fields stand on the lines below the head too."""
    clock: bool = False
    """The times at which lines were printed give the lengths of steps."""
    ends: re.Pattern[str] | None = None
    """What only the last line of a step has, where each micro batch has a line: their seconds add up."""

    @property
    def READER(self) -> Callable[[], FormReader]:  # noqa: N802 - the name that all frameworks have
        """What collects the lines of one log."""
        return lambda: FormReader(self)


@dataclass
class _Open:
    """A step whose lines may go on: its number, what they say so far, and when its head was printed."""

    step: int
    said: dict[str, float]
    printed: float
    phases: dict[str, float] = field(default_factory=dict)


class FormReader(StepLines):
    """Collects the lines of one log."""

    def __init__(self, form: LineForm) -> None:
        super().__init__()
        self._form = form
        self._open: _Open | None = None
        self._printed: list[float] = []
        self._rates: list[float] = []
        self._own_rates: list[float] = []
        self._reserved = NAN
        self._dated = True
        self._phases: dict[str, list[float]] = defaultdict(list)

    def line(self, text: str) -> None:
        """Takes one line with a word."""
        if self._form.per_device and (devices := _DEVICES.search(text)):
            self.log.arguments["world_size"] = devices[1]
        head = self._form.step.search(text)
        ends = self._form.ends
        if head is not None and (ends is None or self._open is None):
            self._end_step()
            groups = [*head.groups(), None, None]
            if self._form.step.groups > 1 and groups[1]:
                self.log.total_steps = int(groups[1])
            number = int(groups[0]) if groups[0] else self.step_lines + 1
            self._open = _Open(number, {}, self._time_of(text))
        if self._open is None or (head is None and not self._form.block):
            return
        start = 0 if head is None else head.start()
        for name, pattern in self._form.fields.items():
            if (ends is not None or name not in self._open.said) and (match := pattern.search(text, start)) is not None:
                before = self._open.said.get(name, 0.0) if ends is not None and name == "seconds" else 0.0
                self._open.said[name] = before + self._value(name, match)
        if self._form.phases is not None:
            self._open.phases |= {match[1]: parse_scaled(match[2]) for match in self._form.phases.finditer(text)}
        if ends is not None and ends.search(text) and head is not None and head[1]:
            self._open.step = int(head[1])
        if not self._form.block and (ends is None or ends.search(text) is not None):
            self._end_step()

    def close(self) -> None:
        """Lengths of steps from the clock, tokens from rates, and figures of the whole log."""
        if self._form.ends is None:
            self._end_step()
        if self._form.clock and any(not line.seconds > 0 for line in self.log.lines):
            self.log.assumed.append("a step's seconds: the time between lines over the steps between them")
        if self._form.clock:
            self.log.fill_from_clock(self._printed)
        for line, rate in zip(self.log.lines, self._rates, strict=True):
            line.tokens = rate * line.seconds
            line.begin = line.begin if self._form.clock and self._dated else NAN
        if own := [rate for rate in self._own_rates if rate > 0]:
            self.log.figures["tokens_per_second_per_gpu"] = median(own)
            ratios = [rate / single for rate, single in zip(self._rates, self._own_rates, strict=True) if rate > 0 and single > 0]
            if ratios and (gpus := round(median(ratios))) > 0:
                self.log.arguments.setdefault("world_size", str(gpus))
        if self._reserved > 0:
            self.log.figures["memory_reserved_bytes"] = self._reserved
        for name, values in self._phases.items():
            self.log.figures[name] = median(values)

    def _end_step(self) -> None:
        """Adds the step whose lines have ended."""
        if self._open is None:
            return
        said, phases = self._open.said, self._open.phases
        seconds = said.get("seconds", NAN) * self._form.unit
        if not seconds > 0 and said.get("steps_per_second", NAN) > 0:
            seconds = 1.0 / said["steps_per_second"]
        if not seconds > 0 and phases:
            seconds = sum(value for value in phases.values() if value > 0)
        rate = said.get("rate", NAN) * (self.log.number("world_size") if self._form.per_device else 1.0)
        for name, value in phases.items():
            self._phases[name].append(value)
        self.step_lines += 1
        self._rates.append(rate if rate > 0 else NAN)
        self._own_rates.append(said.get("rate_per_gpu", NAN))
        self._printed.append(self._open.printed)
        reserved = said.get("reserved", NAN)
        self._reserved = reserved if not self._reserved >= reserved else self._reserved
        self.log.add(
            StepLine(
                self._open.step, seconds if seconds > 0 else NAN, tflops=said.get("tflops", NAN), loss=said.get("loss", NAN),
                memory=said.get("memory", NAN), samples=said.get("batch", NAN),
            )
        )  # fmt: skip
        self._open = None

    def _value(self, name: str, match: re.Match[str]) -> float:
        """The number of a field: seconds over the table's unit, bytes, or as it stands."""
        unit = match[2] if match.re.groups > 1 else None
        value = parse_scaled(match[1])
        if name in ("memory", "reserved"):
            return value * MEMORIES.get(unit or self._form.memory_unit, NAN)
        return value * TIMES.get(unit, NAN) / self._form.unit if name == "seconds" and unit else value

    def _time_of(self, text: str) -> float:
        """When a line was printed: seconds since 1970, or since midnight of the first line where lines say no day; NaN unknown."""
        if not self._form.clock:
            return NAN
        if (date := _DATE.search(text)) is not None:
            return epoch_seconds(date[1])
        if (hour := _HOUR.search(text)) is None:
            return NAN
        self._dated = False
        seconds = 3600.0 * int(hour[1]) + 60.0 * int(hour[2]) + float(hour[3])
        before = self._printed[-1] if self._printed else NAN
        return seconds + _DAY * max(0, -((seconds - before) // _DAY)) if seconds < before else seconds


def parse_scaled(text: str) -> float:
    """A number that may end with K, M, B or T."""
    scale = _SCALES.get(text[-1:].upper(), 1.0)
    return as_number(text[:-1] if scale > 1 else text) * scale


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("NUMBER", f"({NUMBER})"))


def _field(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w/]){re.escape(name)}\s*[:=]\s*({NUMBER}){_UNIT}", re.IGNORECASE)


def _framework(told: dict[str, Any]) -> LineForm:
    """A framework of line_forms.toml."""
    fields = {field: _field(word) for field, word in told.get("named", {}).items()}
    fields |= {field: _pattern(text) for field, text in told.get("patterns", {}).items()}
    known_by, step, words = re.compile(told["known_by"]), re.compile(told["step"]), tuple(told["words"])
    phases = _pattern(told["phases"]) if "phases" in told else None
    flags = {name: told.get(name, False) for name in ("per_device", "block", "clock")}
    ends = re.compile(told["ends"]) if "ends" in told else None
    units = (told.get("unit", 1.0), told.get("memory_unit", "GiB"))
    return LineForm(told["name"], known_by, words, step, fields, phases, *units, **flags, ends=ends)


@cache
def line_forms() -> tuple[LineForm, ...]:
    """The frameworks of the table."""
    return tuple(_framework(told) for told in table_beside(__file__).values())
