"""Lengths in tokens as people state them: a number, a range, or a mean with its spread."""

from __future__ import annotations

import math
import re
from statistics import NormalDist

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_whole


def draw_lengths(path: str, text: str | int, count: int, draws: np.random.Generator) -> Int64s:
    """`count` lengths of the distribution that `text` states, each at least 1. SpecError at `path` for another text."""
    allowed = "a number of tokens, LOW-HIGH, MEAN~CV or MEAN~CV<CAP, such as 1024, 819-1024, 800~1.2<32768"
    try:
        words = _with_digits(str(text))
        if "~" in words:
            mean_text, _, rest = words.partition("~")
            spread_text, _, cap = rest.partition("<")
            mean, spread = float(mean_text), float(spread_text)
            if not (math.isfinite(mean) and mean >= 1.0 and 0.0 <= spread < 100.0):
                raise ValueError
            sigma = math.sqrt(math.log1p(spread**2))
            centre = _centre(mean, sigma, float(cap)) if cap else math.log(mean) - sigma**2 / 2.0
            values = draws.lognormal(centre, sigma, count)
            return np.asarray(np.clip(np.round(values), 1, int(cap) if cap else None), np.int64)
        low_text, _, high = words.partition("-")
        low = int(low_text)
        most = int(high) if high else low
        if not 1 <= low <= most <= 2**31:
            raise ValueError
    except ValueError:
        raise SpecError(path, text, allowed) from None
    return np.asarray(draws.integers(low, most + 1, count) if most > low else np.full(count, low), np.int64)


_WITH_LETTER = re.compile(r"[\d.]*\d[kKmM]i?(?![A-Za-z])")


def _with_digits(text: str) -> str:
    """The text with `4k` as 4096, as contexts are written. ValueError for `1.0001k`."""
    return _WITH_LETTER.sub(lambda found: str(parse_whole(found[0], binary=True)), text.replace("_", ""))


def longest_stated(text: str) -> int | None:
    """The longest length of a text that `draw_lengths` takes; None where it states none."""
    words = _with_digits(text)
    if "~" in words:
        return int(words.partition("<")[2]) if "<" in words else None
    last = words.rpartition("-")[2]
    return int(last) if last.isdecimal() else None


def _centre(mean: float, sigma: float, cap: float) -> float:
    """The mean logarithm with which log-normal lengths of spread `sigma`, cut at `cap`, have the mean `mean`: a search by halves.

    Cut lengths are shorter than whole ones, so that one that is taken from `mean` alone gives too few tokens. A mean at the cap or
    above it gives lengths that are nearly all as long as the cap.
    """
    plain = math.log(mean) - sigma**2 / 2.0
    if sigma == 0.0:
        return plain
    normal = NormalDist()
    low, high = plain, max(plain, math.log(cap)) + 4.0 * sigma
    for _ in range(60):
        middle = (low + high) / 2.0
        reach = (math.log(cap) - middle) / sigma
        cut = math.exp(middle + sigma**2 / 2.0) * normal.cdf(reach - sigma) + cap * (1.0 - normal.cdf(reach))
        low, high = (middle, high) if cut < mean else (low, middle)
    return low


def longest_of(lengths: Int64s, samples: int) -> float:
    """The mean of the longest of `samples` that are drawn from `lengths` [n] tokens: order statistics, with replacement."""
    ordered, ranks = np.sort(lengths).astype(np.float64), np.arange(len(lengths) + 1) / len(lengths)
    return float(ordered @ np.diff(ranks**samples))
