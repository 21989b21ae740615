"""What the tile/wave model misses on one GPU: a small sum of trees over a product's shape, fitted on what is left of the times.

A library picks tiles by heuristics of its own, so that a shape's time is off by several per cent in patterns that shapes of one GPU
share. Each tree asks a few questions (is feature f above t?) and adds the value of the answer to ln(seconds). Trees hold for the
GPU they were fitted on and are not carried to another. They are small beside the model and kept so (`LIMIT`): with `fit`'s check,
a product of twice the rows, columns or depth stays the longer one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Columns = tuple[Array, ...]

LIMIT = 0.25
"""Largest |ln| that the trees may add."""

FEATURES = ("m", "n", "k", "seconds", "wave_128x256", "wave_256x128", "wave_128x128", "waves", "rows")
"""ln of the sizes and of the model's seconds; whole over fractional waves of three tiles; ln waves of 128x256; padded over real
rows."""


@dataclass(frozen=True)
class Residual:
    """Trees of equal depth: tree i asks whether feature `feature[i][j]` is above `above[i][j]`, bit j of the index into
    `value[i]`."""

    feature: tuple[tuple[int, ...], ...]
    above: tuple[tuple[float, ...], ...]
    value: tuple[tuple[float, ...], ...]


def features(batch: Array, m: Array, n: Array, k: Array, seconds: Array, sms: float) -> Columns:
    """The columns of `FEATURES`."""
    found = [np.log(m), np.log(n), np.log(k), np.log(seconds)]
    down = {r: np.ceil(m / r) for r in (128, 256)}
    across = {c: batch * np.ceil(n / c) / sms for c in (128, 256)}
    for r, c in ((128, 256), (256, 128), (128, 128)):
        even = down[r] * across[c]
        found.append(np.ceil(even) / np.maximum(even, 0.05))
    found.append(np.log(down[128] * across[256]))
    found.append(256.0 * down[256] / m)
    return tuple(found)


def correction(trees: Residual, columns: Columns) -> Array:
    """ln of the factor on the model's seconds, within `LIMIT`."""
    total = np.zeros(len(columns[0]))
    answers: dict[tuple[int, float], npt.NDArray[np.uint8]] = {}
    for asked, bounds, values in zip(trees.feature, trees.above, trees.value, strict=True):
        leaf = np.zeros(len(total), np.uint8)
        for bit, key in enumerate(zip(asked, bounds, strict=True)):
            if key not in answers:
                answers[key] = (columns[key[0]] > key[1]).astype(np.uint8)
            leaf |= answers[key] << np.uint8(bit)
        total += np.array(values)[leaf]
    return np.clip(total, -LIMIT, LIMIT)
