"""Fits what a GPU draws by what it does, and its law of clock and power, to runs under power caps.

One share for kernels bound by memory and one voltage floor for all boards, a static share for each board. Least squares over
logarithms of time and energy ratios. The rows are those of the families in `fitted_on`; other families only test. The knee is not
fitted: no cap of the table brings kernels bound by memory down to it.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from windtunnel.base.arrays import Floats
from windtunnel.calibrate.record import FitRecord, compare_errors, round_figure
from windtunnel.compute.power import FILE, DrawShares, statics, stored_shares
from windtunnel.reality.rows import measurements
from windtunnel.reality.score.power_caps import CapPair, board_shares, cap_pairs, read_caps, under_cap

SHARED = ("memory", "floor")
DEFAULT = "V100"
"""Board of the fit with HBM and tensor cores: its static share stands for GPUs that state none."""

LOWEST = {"memory": 0.3, "floor": 0.4, "static": 0.02}
HIGHEST = {"memory": 0.95, "floor": 0.98, "static": 0.4}


def fit_power(text: str | None = None) -> tuple[dict[str, float], dict[str, float], FitRecord]:
    """The shared constants, the static share of each board, and the record; of the catalogue's table, or of `text`."""
    rows, _ = read_caps(measurements.POWER_CAPS.read_text(encoding="utf-8") if text is None else text)
    families = tomllib.loads(FILE.read_text(encoding="utf-8"))["fitted"]["fitted_on"]
    taken = cap_pairs([row for row in rows if row.family in families])
    boards = tuple(dict.fromkeys(pair.row.gpu for pair in taken))
    names = (*SHARED, *("static" for _ in boards))

    def unpack(point: Floats) -> tuple[DrawShares, dict[str, float]]:
        shared = dict(zip(SHARED, map(float, point), strict=False))
        own = dict(zip(boards, map(float, point[len(SHARED) :]), strict=True))
        return replace(stored_shares(), static=own.get(DEFAULT, stored_shares().static), **shared), own

    def off(point: Floats) -> Floats:
        shares, own = unpack(point)
        return np.array([each for pair in taken for each in _logs(pair, shares, own)])

    start = np.array([0.5 * (LOWEST[name] + HIGHEST[name]) for name in names])
    bounds = ([LOWEST[name] for name in names], [HIGHEST[name] for name in names])
    shares, own = unpack(least_squares(off, start, bounds=bounds).x)
    shares = replace(shares, **{name: round_figure(getattr(shares, name)) for name in (*SHARED, "static")})
    own = {board: round_figure(share) for board, share in own.items()}
    everything = cap_pairs(rows)
    before, known = stored_shares(), statics()
    constants = {name: (getattr(before, name), getattr(shares, name)) for name in SHARED}
    constants |= {f"static {board}": (known.get(board, before.static), share) for board, share in own.items()}
    record = FitRecord(
        "power",
        "windtunnel fit power",
        constants,
        compare_errors(_errors(everything, before, known), _errors(everything, shares, own)),
        tuple(pair.row.id for pair in taken),
    )
    return {name: getattr(shares, name) for name in (*SHARED, "static")}, own, record


def written_power(text: str, shared: dict[str, float], own: dict[str, float]) -> str:
    """The content of power.toml with the fitted constants in place of its own."""
    head, rest = text.split("[static]", 1)
    for name, value in shared.items():
        head = re.sub(rf"^{name} = .*$", f"{name} = {value:g}", head, flags=re.MULTILINE)
    for board, value in own.items():
        rest = re.sub(rf"^{re.escape(board)} = .*$", f"{board} = {value:g}", rest, flags=re.MULTILINE)
    return f"{head}[static]{rest}"


def _logs(pair: CapPair, shares: DrawShares, own: dict[str, float]) -> tuple[float, float]:
    time, energy = under_cap(pair, board_shares(pair.row.gpu, own, shares))
    return math.log(time / pair.time), math.log(energy / pair.energy)


def _errors(pairs: Sequence[CapPair], shares: DrawShares, own: dict[str, float]) -> dict[str, list[float]]:
    """Signed errors of time and energy by family, in percent."""
    errors: dict[str, list[float]] = {}
    for pair in pairs:
        time, energy = under_cap(pair, board_shares(pair.row.gpu, own, shares))
        errors.setdefault(pair.row.family, []).extend((100.0 * (time / pair.time - 1.0), 100.0 * (energy / pair.energy - 1.0)))
    return errors
