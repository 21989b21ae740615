"""Refit of `calibration.py` on measured collectives: the caller reads rows, these functions return constants.

Selection is NCCL's tuner and does not depend on the constants, so the fit is smooth: least squares of log(predicted / measured) over
the logarithms of the free constants, with a soft loss that outliers cannot steer. Needs scipy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.errors import SpecError
from windtunnel.network.achieved import achieved
from windtunnel.network.calibration import Net, Node
from windtunnel.network.collective import prepare
from windtunnel.network.group import Group
from windtunnel.network.settings import parse_settings
from windtunnel.spec.cluster import Cluster
from windtunnel.workload.ops import Comm

BANDS = ((0, 65536, "< 64 KiB"), (65536, 2**20, "64 KiB to 1 MiB"), (2**20, math.inf, ">= 1 MiB"))


@dataclass(frozen=True)
class Sample:
    """One measured call: `bytes` in total, `seconds`, and the settings under which it ran."""

    cluster: Cluster
    comm: Comm
    bytes: float
    group: Group
    seconds: float
    family: str = ""
    settings: Mapping[str, str | int] | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Accuracy:
    """Errors of one family and size band: number of samples, median and mean of the absolute error and mean signed error, percent."""

    family: str
    band: str
    count: int
    median_abs_pct: float
    mean_abs_pct: float
    bias_pct: float


def fit_node(samples: Sequence[Sample], start: Node, free: Sequence[str]) -> Node:
    """`start` with the `free` constants refitted on samples inside one domain; a triple is named `ring.2` by its part."""
    return _fit([s for s in samples if s.group.nodes == 1], start, None, free)[0]


def fit_net(samples: Sequence[Sample], node: Node | Mapping[str, Node], start: Net, free: Sequence[str]) -> Net:
    """`start` with the `free` constants refitted on samples between domains; `node` is one generation's constants, or a mapping."""
    fitted = _fit([s for s in samples if s.group.nodes > 1], node, start, free)[1]
    if fitted is None:
        raise SpecError("start", start, "the constants of a fabric")
    return fitted


def accuracy(samples: Sequence[Sample]) -> list[Accuracy]:
    """Errors of the stored constants by family and size band."""
    found: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        band = next(name for low, high, name in BANDS if low <= sample.bytes < high)
        ready = prepare(sample.cluster, sample.comm, sample.group, parse_settings(sample.settings))
        predicted = ready.seconds(sample.bytes)[0].seconds
        found.setdefault((sample.family, band), []).append(100.0 * (predicted / sample.seconds - 1.0))
    rows = []
    for (family, band), errors in sorted(found.items()):
        size = np.abs(errors)
        rows.append(Accuracy(family, band, len(errors), float(np.median(size)), float(size.mean()), float(np.mean(errors))))
    return rows


def _predict(sample: Sample, node: Node | Mapping[str, Node] | None, net: Net | None) -> float:
    ready = prepare(sample.cluster, sample.comm, sample.group, parse_settings(sample.settings))
    algorithm, protocol = ready.choose(sample.bytes)
    inside = node.get(ready.wires.generation, ready.node) if isinstance(node, Mapping) else node or ready.node
    cost = achieved(sample.comm, sample.bytes, sample.group, ready.wires, ready.graph, algorithm, protocol, inside, net or ready.net)
    return cost.seconds


def _fit(samples: Sequence[Sample], node: Any, net: Net | None, free: Sequence[str]) -> tuple[Any, Net | None]:
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    if not samples:
        raise SpecError("samples", 0, "at least one measured call")
    target: Any = net if net is not None else node
    start = np.log([_get(target, name) for name in free])
    weights = np.sqrt([s.weight for s in samples])

    def residuals(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        moved = _put(target, free, np.exp(x))
        pair = (node, moved) if net is not None else (moved, None)
        return np.array([math.log(_predict(s, *pair) / s.seconds) for s in samples]) * weights

    limit = math.log(12.0)
    upper = [min(limit, -v) if _is_fraction(name) else limit for v, name in zip(start, free, strict=True)]
    bounds = (start - limit, start + np.maximum(upper, 1e-6))
    found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.1, diff_step=1e-3)
    best = _put(target, free, np.exp(found.x))
    return (node, best) if net is not None else (best, None)


def _is_fraction(name: str) -> bool:
    """Whether the constant is a part of a link's rate, which cannot exceed 1."""
    return name.split(".")[0] in ("ring", "tree", "nvls", "p2p")


def _get(target: Any, name: str) -> float:
    field, _, part = name.partition(".")
    value = getattr(target, field)
    return float(value[int(part)] if part else value)


def _put(target: Any, names: Sequence[str], values: npt.NDArray[np.float64]) -> Any:
    changed: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        field, _, part = name.partition(".")
        if part:
            triple = list(changed.get(field, getattr(target, field)))
            triple[int(part)] = float(value)
            changed[field] = tuple(triple)
        else:
            changed[field] = float(value)
    return replace(target, **changed)
