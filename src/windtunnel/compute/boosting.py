"""Fits the trees of `residual.py`: gradient boosting of oblivious trees on binned features, with a robust loss.

Every level of a tree asks one question of all rows (Prokhorenkova et al. 2018, arXiv 1706.09516, use such trees), which keeps
a tree to `DEPTH` questions and 2^DEPTH values, and its evaluation to a table look-up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.compute.residual import Columns, Residual

Array = npt.NDArray[np.float64]
TREES, DEPTH, RATE, SHRINK, BINS, CLIP = 100, 4, 0.2, 20.0, 32, 0.15
"""Trees, questions in each, step, rows' worth of zeros in every leaf, bins of a feature, ln error beyond which a row pulls no
harder."""


def fit_residual(columns: Columns, missed: Array, weight: Array) -> Residual:
    """Trees that predict `missed`, ln(measured / model), of each row."""
    cuts = [np.unique(np.quantile(column, np.linspace(0.0, 1.0, BINS + 1)[1:-1])) for column in columns]
    bins = [np.searchsorted(cut, column, side="left") for cut, column in zip(cuts, columns, strict=True)]
    left = missed.copy()
    features, bounds, values = [], [], []
    for _ in range(TREES):
        pull = weight * np.clip(left, -CLIP, CLIP)
        leaf = np.zeros(len(missed), np.int64)
        asked: list[tuple[int, int]] = []
        for bit in range(DEPTH):
            best = max((_gain(leaf, bins[f], len(cuts[f]), pull, weight, 2**bit), -f) for f in range(len(columns)) if len(cuts[f]))
            feature, cut = -best[1], best[0][1]
            asked.append((feature, cut))
            leaf |= (bins[feature] > cut).astype(np.int64) << bit
        mass = np.bincount(leaf, weight, 2**DEPTH)
        value = RATE * np.bincount(leaf, pull, 2**DEPTH) / (mass + SHRINK)
        left -= value[leaf]
        features.append(tuple(f for f, _ in asked))
        bounds.append(tuple(float(f"{cuts[f][c]:.5g}") for f, c in asked))
        values.append(tuple(float(f"{v:.3g}") for v in value))
    return Residual(tuple(features), tuple(bounds), tuple(values))


def _gain(
    leaf: npt.NDArray[np.int64], bins: npt.NDArray[np.int64], cuts: int, pull: Array, weight: Array, leaves: int
) -> tuple[float, int]:
    """(best gain, its cut) of a question on one feature in all leaves at once."""
    at = leaf * (cuts + 1) + bins
    sums = np.bincount(at, pull, leaves * (cuts + 1)).reshape(leaves, cuts + 1).cumsum(axis=1)
    mass = np.bincount(at, weight, leaves * (cuts + 1)).reshape(leaves, cuts + 1).cumsum(axis=1)
    below, above = sums[:, :-1], sums[:, -1:] - sums[:, :-1]
    light, heavy = mass[:, :-1], mass[:, -1:] - mass[:, :-1]
    gain = (below**2 / (light + SHRINK) + above**2 / (heavy + SHRINK)).sum(axis=0)
    cut = int(gain.argmax())
    return float(gain[cut]), cut
