"""Frameworks that print a step as one line of names and numbers: MaxText, nanotron, nanoGPT, nanochat.

`completed step: 5, seconds: 12.345, TFLOP/s/device: 180.1, Tokens/s/device: 9000.1, total_weights: 8192, loss: 10.2` (MaxText,
`metric_logger.py`); `iteration: 10 / 100 | consumed_tokens: 1.05M | elapsed_time_per_iteration_ms: 2.3K | tokens_per_sec: 45K | …`
(nanotron, `trainer.py`); `iter 10: loss 5.2000, time 123.45ms, mfu 30.10%` (nanoGPT, `train.py`);
`step 00004/21400 (0.02%) | loss: 8.89 | lrm: 1.00 | dt: 989.44ms | tok/sec: 529,882 | mfu: 74.13` (nanochat, `base_train.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from windtunnel.base.files import table_beside
from windtunnel.formats.logs.step_log import NAN, StepLine, StepLog, as_number

_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_DEVICES = re.compile(r"Num_devices: (\d{1,9})")


@dataclass(frozen=True)
class OneLine:
    """A framework whose steps are lines of one kind. `step` and what is in `fields` are found by a group each; `seconds` are
    times `unit`. `per_device`: tokens/s are those of one device."""

    NAME: str
    KNOWN_BY: re.Pattern[str]
    WORDS: tuple[str, ...]
    step: re.Pattern[str]
    fields: dict[str, re.Pattern[str]]
    unit: float = 1.0
    per_device: bool = False

    @property
    def READER(self) -> Callable[[], OneLineReader]:  # noqa: N802 - the name that all frameworks have
        """What collects the lines of one log."""
        return lambda: OneLineReader(self)


class OneLineReader:
    """Collects the lines of one log."""

    waiting = False

    def __init__(self, form: OneLine) -> None:
        self.log = StepLog()
        self.step_lines = 0
        self._form = form

    def line(self, text: str) -> None:
        """Takes one line with a word."""
        if self._form.per_device and (devices := _DEVICES.search(text)):
            self.log.arguments["world_size"] = devices[1]
        head = self._form.step.search(text)
        if head is None:
            return
        found = {
            name: _parse_scaled(match[1]) for name, one in self._form.fields.items() if (match := one.search(text, head.start()))
        }
        seconds = found.get("seconds", NAN) * self._form.unit
        rate = found.get("rate", NAN) * (self.log.number("world_size") if self._form.per_device else 1.0)
        batch = found.get("batch", NAN)
        self.step_lines += 1
        self.log.add(
            StepLine(
                int(head[1]), seconds if seconds > 0 else NAN, rate * seconds, found.get("tflops", NAN), found.get("loss", NAN),
                samples=batch,
            )
        )  # fmt: skip

    def close(self) -> None:
        """Nothing stays open between lines."""


def _parse_scaled(text: str) -> float:
    """A number that may end with K, M, B or T."""
    scale = _SCALES.get(text[-1:].upper(), 1.0)
    return as_number(text[:-1] if scale > 1 else text) * scale


def _field(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{name}:\s*([-+\d.eE]{{1,40}}[KMBT]?|nan|inf)", re.IGNORECASE)


def _framework(name: str) -> OneLine:
    """A framework of one_line.toml."""
    told = table_beside(__file__)[name]
    fields = {field: _field(word) for field, word in told.get("named", {}).items()}
    fields |= {field: re.compile(pattern) for field, pattern in told.get("patterns", {}).items()}
    known_by, step = re.compile(told["known_by"]), re.compile(told["step"])
    unit, per_device = told.get("unit", 1.0), told.get("per_device", False)
    return OneLine(told["name"], known_by, tuple(told["words"]), step, fields, unit, per_device)


MAXTEXT, NANOTRON, NANOCHAT, NANOGPT = map(_framework, ("maxtext", "nanotron", "nanochat", "nanogpt"))
