"""Start-up time of a job of any size, fitted to measured starts.

seconds = fixed + operations / rate + bytes / bandwidth + per_group · groups + per_connection · connections. Groups and connections
are those of the ranks that share a core. All terms except bytes are fitted together over starts of both paths and several sizes,
none below zero. The prediction assumes a core per rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError


@dataclass(frozen=True)
class StartPoint:
    """One measured start: totals over all ranks, the CPU cores that they shared, and seconds until the last rank was ready."""

    ranks: int
    operations: int
    bytes: int
    groups: int
    connections: int
    cores: float
    seconds: float


@dataclass(frozen=True)
class StartLaw:
    """Terms of the law: `fixed` seconds, seconds per store operation and byte, and seconds per group and connection of a rank's
    core.
    """

    fixed: float
    per_operation: float
    per_byte: float
    per_group: float
    per_connection: float
    error: float
    """Mean absolute relative error over the fitted starts."""

    def seconds(self, ranks: int, operations: int, size: int, groups: int, connections: int, cores: float | None = None) -> float:
        """Seconds of a start with `size` bytes through the store. `cores`: for all ranks; one each by default."""
        cores = ranks if cores is None else cores
        store = self.fixed + self.per_operation * operations + self.per_byte * size
        return store + (self.per_group * groups + self.per_connection * connections) / cores


def fit(points: Sequence[StartPoint], per_byte: float = 0.0) -> StartLaw:
    """The law that fits `points` best, in relative error. `per_byte` is measured separately: up to 64 ranks bytes and connections
    grow alike and a fit cannot separate them. SpecError for fewer than five points.
    """
    if len(points) < 5:
        raise SpecError(
            "starts", len(points), "5 or more measured starts", "Measure several sizes: windtunnel fleet startup --measure."
        )
    rows = np.array([[1.0, p.operations, p.groups / p.cores, p.connections / p.cores] for p in points])
    seconds = np.array([p.seconds for p in points])
    carried = per_byte * np.array([p.bytes for p in points])
    weighted = rows / seconds[:, None]
    scale = weighted.max(axis=0)
    scale[scale == 0] = 1.0
    terms = nnls(weighted / scale, np.maximum(0.0, 1 - carried / seconds))[0] / scale
    error = float(np.abs((rows @ terms + carried) / seconds - 1).mean())
    fixed, operation, group, connection = map(float, terms)
    return StartLaw(fixed, operation, per_byte, group, connection, error)


MEASURED = StartLaw(0.0, 2.395e-5, 5e-9, 3.319e-3, 7.805e-5, 0.092)
"""benchmarks/fleet_startup.py on two cores, 8 to 64 ranks, gloo over loopback, torch 2.13, TCPStore and the hierarchical store."""
