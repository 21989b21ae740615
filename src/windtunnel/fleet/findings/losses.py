"""Loss and gradient norm in lines of a log: NaN, infinity, and spikes. One episode is told once.

A spike is judged by the last values: their median and their median deviation from it, so that a loss that falls, or is noisy,
raises no alarm. Evaluation has losses of its own, and is left out.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator

import numpy as np

from windtunnel.base.dataclasses import dataclass, field

_VALUE = re.compile(
    r"(?P<name>[A-Za-z][\w./ -]{0,40}?)[\"']?\s*(?:[:=]\s*|\s)[\"']?(?:tensor\()?"
    r"(?P<value>[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf(?:inity)?))(?![\w.%])",
    re.IGNORECASE,
)
_LOSS = re.compile(r"^(?:train(?:ing)?|total|mean|avg|average|step|lm|global|reduced|global_avg|main|batch|current)?[ _/]?"
                   r"loss(?:[ _/](?:avg|mean|total|train|step))?$", re.IGNORECASE)  # fmt: skip
_NORM = re.compile(r"(?:^|[/ _])(?:grad(?:ient)?s?[ _]?(?:total[ _])?norm|gnorm)(?:[ _/](?:avg|mean|total))?$", re.IGNORECASE)
_HELD_OUT = re.compile(r"\b(?:eval(?:uation)?|valid(?:ation)?|val|test|dev)(?:\b|_|/)", re.IGNORECASE)

HISTORY = 64
"""Values that a new one is compared with."""
LEAST_HISTORY = 20
DEVIATIONS = 10.0
"""Median deviations, as standard ones, above the median from which a value is a spike if it is also a share above it."""
LEAST_RISE = {"loss": 0.3, "gradient norm": 4.0}
"""That share. Gradient norms vary by factors where losses vary by percents."""
CALM = 5
"""Values without a fault that end an episode."""
_TO_STANDARD = 1.4826


def values_in(line: str) -> Iterator[tuple[str, float]]:
    """What a line of a log says of training: ("loss" or "gradient norm", value)."""
    if _HELD_OUT.search(line):
        return
    for match in _VALUE.finditer(line):
        name = match["name"].strip().split("|")[-1].strip()
        what = "loss" if _LOSS.match(_last_words(name, 2)) or _LOSS.match(_last_words(name, 1)) else ""
        what = what or ("gradient norm" if _NORM.search(name) else "")
        if what:
            yield what, float(match["value"].replace(",", ""))


def _last_words(name: str, count: int) -> str:
    return " ".join(name.split()[-count:])


@dataclass(frozen=True)
class LossFault:
    """What is wrong with a value, or that it is right again."""

    what: str
    """"loss" or "gradient norm"."""
    text: str
    over: bool = False


@dataclass
class LossSeries:
    """The values of one kind in one log."""

    what: str
    _values: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    _told: str = ""
    """What the episode was told as."""
    _calm: int = 0

    def add(self, value: float) -> LossFault | None:
        """What is to be told once this value is known."""
        wrong = self._wrong(value)
        if not wrong:
            self._values.append(value)
            self._calm += 1
            if self._told and self._calm >= CALM:
                text, self._told = self._told, ""
                return LossFault(self.what, text, over=True)
            return None
        self._calm = 0
        if math.isfinite(value):
            self._values.append(value)  # a new level is the usual one in the end
        is_worse = not math.isfinite(value) and "NaN" not in self._told and "infinite" not in self._told
        if self._told and not is_worse:
            return None
        self._told = wrong
        return LossFault(self.what, wrong)

    def _wrong(self, value: float) -> str:
        if math.isnan(value):
            return f"the {self.what} is NaN"
        if math.isinf(value):
            return f"the {self.what} is infinite"
        if len(self._values) < LEAST_HISTORY:
            return ""
        lowest = min(self._values)
        if lowest > 0.0 and value <= lowest * (1.0 + LEAST_RISE[self.what]):  # no more than the median may rise
            return ""
        usual = float(np.median(self._values))
        deviation = _TO_STANDARD * float(np.median(np.abs(np.asarray(self._values) - usual)))
        least = usual + max(DEVIATIONS * deviation, LEAST_RISE[self.what] * abs(usual))
        return f"the {self.what} has a spike: {value:.4g}, where {usual:.4g} is usual" if value > least else ""
