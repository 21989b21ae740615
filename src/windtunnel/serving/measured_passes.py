"""Seconds of passes by a record of a server's own ones, in place of those of its engine's kernels on a GPU.

A record has a row for each pass: its seconds and what it computed. A law of few terms is fitted to it, none of them negative: a
start, tokens by ranges of the pass's size, prompts, requests that decode, pairs of a prompt token and a token that it sees, and
cached tokens that are read. So a machine whose kernels nobody measured, such as a CPU, is predicted from what it does itself;
scheduler, cache and front end are those of the engine as ever.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import FileError, PlanError, SpecError
from windtunnel.profile.served.loads import ENGINE_PASS
from windtunnel.records import read, read_shape
from windtunnel.serving.lengths import Passing
from windtunnel.serving.server import Server
from windtunnel.serving.step_times import StepTimes

COLUMNS = ("seconds", "prompt", "chunks", "pairs", "decodes", "cached")
"""Seconds of a pass, and the fields of `lengths.Passing` that it computed. With a column `begin`, seconds at which passes began,
the host's time between them is measured too."""

KNOTS = (0.0, 16.0, 128.0, 1024.0, math.inf)
"""Tokens of a pass between which each further one costs the same: padded rows of small products, then arithmetic."""

FEWEST = 20
"""Passes at least: twice the terms."""

ROUNDS = 4
"""Fits that weigh rows by the seconds of the fit before: errors count relatively, and the mean is kept."""


@dataclass(frozen=True)
class PassLaw:
    """Seconds of a pass by its composition. `terms`: [9] as the columns of `_terms_of`; `passes`: rows of the record; `error`:
    median of their relative errors; `has_gaps`: the host's time between passes is a part of the seconds."""

    terms: tuple[float, ...]
    passes: int
    error: float
    has_gaps: bool

    def seconds(self, one: Passing) -> float:
        """Seconds of the pass `one`."""
        sizes = np.array([[one.prompt, one.chunks, one.pairs, one.decodes, one.cached]], np.float64)
        return float((_terms_of(sizes) @ np.array(self.terms))[0])

    def in_words(self) -> str:
        """What it rests on, for notes."""
        host = ", host time between them included" if self.has_gaps else ""
        return f"passes: {self.passes:,} measured ones{host}; half of them within {100 * self.error:.0f} % of the law that is used"


NOTHING = PassLaw((0.0,) * 9, 0, 0.0, True)
"""Passes that take no time."""


@dataclass
class MeasuredTimes(StepTimes):
    """Seconds of forward passes by a law of measured ones."""

    source: ClassVar[str] = "measured"
    law: PassLaw = NOTHING

    def seconds(self, one: Passing, sampled: int) -> float:
        """Seconds of the pass `one`, with the host's between passes: as measured, else the engine's."""
        engine = self.server.engine
        host = 0.0 if self.law.has_gaps else engine.gap + engine.request_gap * one.decodes
        return max(self.law.seconds(one) + host, engine.sent * one.decodes)

    def pass_parts(self, one: Passing, sampled: int) -> dict[str, float]:
        """A record doesn't tell parts."""
        return {"measured": self.seconds(one, sampled)}


def measured_times(server: Server, path: str | Path) -> MeasuredTimes:
    """Passes of `server` as the record `path` has them. PlanError for ranks whose passes wait for each other, and drafts, SpecError
    and FileError as of `read_passes`."""
    if server.speculation is not None or server.plan.dp > 1 or server.plan.pp > 1:
        raise PlanError("passes", str(path), "a server without drafted tokens, of one DP-attention rank and one stage")
    return MeasuredTimes(server, law=read_passes(path))


def read_passes(path: str | Path) -> PassLaw:
    """The law of the passes in a CSV file with `COLUMNS`, or in a dataset of a running server's. FileError for another file or for
    numbers that no pass has, SpecError for too few rows."""
    name = str(path)
    if Path(path).suffix == ".parquet":
        return law_of_rows(read(path).rows())
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, ValueError) as error:
        raise FileError("passes", name, "a CSV file of measured passes", f"{error}.") from error
    known = set(rows[0]) if rows else set()
    if not known.issuperset(COLUMNS):
        raise FileError("passes", name, f"columns {', '.join(COLUMNS)}, and begin for the host's time between passes")
    columns = (*COLUMNS, "begin") if "begin" in known else COLUMNS
    try:
        numbers = np.array([[float(row[column]) for column in columns] for row in rows])
    except (TypeError, ValueError) as error:
        raise FileError("passes", name, "a number in every column of every row", f"{error}.") from error
    if not np.isfinite(numbers).all() or (numbers < 0.0).any() or (numbers[:, 0] <= 0.0).any():
        raise FileError("passes", name, "finite numbers, none below zero, and seconds above it")
    if len(numbers) < FEWEST:
        raise SpecError("passes", f"{len(numbers)} rows", f"{FEWEST} passes or more, of all sizes that the load has")
    begins = numbers[:, len(COLUMNS)] if "begin" in known else None
    return fit_passes(numbers[:, 0], numbers[:, 1 : len(COLUMNS)], begins)


def law_of_rows(rows: Sequence[Mapping[str, Any]]) -> PassLaw:
    """The law of the rows of a dataset that are passes of a running server (`profile.served`): medians, with the host's time after
    each. SpecError for too few."""
    passes = [row for row in rows if row["name"] == ENGINE_PASS and row["status"] == "ok"]
    if len(passes) < FEWEST:
        raise SpecError("passes", f"{len(passes)} rows", f"{FEWEST} passes or more", "Type: windtunnel measure run FOLDER.")
    return replace(fit_passes(*numbers_of_rows(passes)), has_gaps=True)


def numbers_of_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Floats, Floats]:
    """Seconds [n] and sizes [n, 5] of rows that are passes, as of `fit_passes`. SpecError for shapes that are none of a pass."""
    shapes = [read_shape(str(row["shape"])) for row in rows]
    try:
        sizes = np.array([[float(shape[name]) for name in COLUMNS[1:]] for shape in shapes])
    except (KeyError, ValueError) as error:
        raise SpecError("passes", f"{error}", f"shapes with the numbers {', '.join(COLUMNS[1:])}") from error
    return np.array([float(row["seconds"]) for row in rows]), sizes


def fit_passes(seconds: Floats, sizes: Floats, begins: Floats | None = None) -> PassLaw:
    """The law of passes of `seconds` [n] that computed `sizes` [n, 5], the fields of `Passing` from prompt to cached. With `begins`
    [n], a pass lasts until the next one begins if that one goes on with requests; a median gap follows on others."""
    from scipy.optimize import nnls

    if begins is not None:
        order = np.argsort(begins)
        begins, seconds, sizes = begins[order], seconds[order], sizes[order]
        gaps = np.maximum(begins[1:] - begins[:-1] - seconds[:-1], 0.0)
        goes_on = sizes[1:, 3] > 0.0
        usual = float(np.median(gaps[goes_on])) if goes_on.any() else 0.0
        seconds = seconds + np.append(np.where(goes_on, gaps, usual), usual)
    terms = _terms_of(sizes)
    scale = np.maximum(terms.max(axis=0), 1e-30)
    expected = np.full(len(seconds), float(seconds.mean()))
    for _ in range(ROUNDS):
        found = nnls(terms / scale / expected[:, None], seconds / expected)[0] / scale
        expected = np.maximum(terms @ found, 1e-3 * float(seconds.mean()))
    error = float(np.median(np.abs(expected / seconds - 1.0)))
    return PassLaw(tuple(map(float, found)), len(seconds), error, begins is not None)


def _terms_of(sizes: Floats) -> Floats:
    """[n, 9] what a pass is paid by: a start, tokens within each range of `KNOTS`, prompts, decoding requests, pairs, cached
    tokens. `sizes`: [n, 5] as of `fit_passes`."""
    prompt, chunks, pairs, decodes, cached = sizes.T
    tokens = prompt + decodes
    ranges: Sequence[Floats] = [np.clip(tokens - low, 0.0, high - low) for low, high in zip(KNOTS[:-1], KNOTS[1:], strict=True)]
    return np.stack([np.ones(len(tokens)), *ranges, chunks, decodes, pairs, cached], axis=1)
