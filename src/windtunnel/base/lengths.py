"""Lengths in tokens as people state them: a number, a range, or a mean with its spread."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError


def draw_lengths(path: str, text: str | int, count: int, draws: np.random.Generator) -> Int64s:
    """`count` lengths of the distribution that `text` states, each at least 1. SpecError at `path` for another text."""
    allowed = "a number of tokens, LOW-HIGH, MEAN~CV or MEAN~CV<CAP, such as 1024, 819-1024, 800~1.2<32768"
    words = str(text).replace("_", "")
    try:
        if "~" in words:
            mean_text, _, rest = words.partition("~")
            spread_text, _, cap = rest.partition("<")
            mean, spread = float(mean_text), float(spread_text)
            if not (math.isfinite(mean) and mean >= 1.0 and 0.0 <= spread < 100.0):
                raise ValueError
            sigma = math.sqrt(math.log1p(spread**2))
            values = draws.lognormal(math.log(mean) - sigma**2 / 2.0, sigma, count)
            return np.asarray(np.clip(np.round(values), 1, int(cap) if cap else None), np.int64)
        low_text, _, high = words.partition("-")
        low = int(low_text)
        most = int(high) if high else low
        if not 1 <= low <= most <= 2**31:
            raise ValueError
    except ValueError:
        raise SpecError(path, text, allowed) from None
    return np.asarray(draws.integers(low, most + 1, count) if most > low else np.full(count, low), np.int64)


def longest_of(lengths: Int64s, samples: int) -> float:
    """The mean of the longest of `samples` that are drawn from `lengths` [n] tokens: order statistics, with replacement."""
    ordered, ranks = np.sort(lengths).astype(np.float64), np.arange(len(lengths) + 1) / len(lengths)
    return float(ordered @ np.diff(ranks**samples))
