"""Refit of `calibration.py` on measured collectives: the caller reads rows, these functions return constants.

Selection is NCCL's tuner and does not depend on the constants, so the fit is smooth: least squares of log(predicted / measured)
over the logarithms of the free constants, with a soft loss that outliers cannot steer. Needs scipy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network.closed.collective import Setup, prepare
from windtunnel.network.closed.cost import achieved
from windtunnel.network.closed.fitted import NETS, NODES, NetConstants, NodeConstants
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.spec.cluster import Cluster
from windtunnel.workload.ops import Comm

BANDS = ((0, 65536, "< 64 KiB"), (65536, 2**20, "64 KiB to 1 MiB"), (2**20, math.inf, ">= 1 MiB"))

INSIDE, BETWEEN = "inside one domain", "between domains"
_RING = ("launch", "hop.1", "hop.2", "ring.0", "ring.1", "ring.2")
RECIPE: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("vTrain-A100", "misc-A100"), INSIDE, tuple(f"ampere/{name}" for name in _RING)),
    (("vTrain-V100",), INSIDE, tuple(f"volta/{name}" for name in _RING)),
    (
        ("AWS-H100", "DGXC-H100", "IB-NDR-H100", "stas-H200"),
        INSIDE,
        tuple(f"hopper/{name}" for name in ("launch", "hop.0", "ring.0", "ring.2", "nvls", "nvls_overhead", "nvls_fill")),
    ),
    (
        ("IB-NDR-H100", "AWS-H100"),
        BETWEEN,
        (
            *(f"infiniband/{name}" for name in ("launch", "tree_hop.0", "tree_hop.1", "nvls_hop", "tree")),
            *(f"efa/{name}" for name in ("tree_hop.0", "tree_hop.1", "nvls_hop")),
            "hopper/tree.1",
            "hopper/nvls_tree",
        ),
    ),
    (("AWS-A100",), BETWEEN, ("efa1/tree_hop.2", "efa1/tree", "efa1/tree_fill")),
    (
        ("Vultr-B200",),
        INSIDE,
        tuple(
            f"blackwell/{name}"
            for name in ("launch", "hop.0", "hop.2", "ring.0", "ring.2", "fill", "nvls", "nvls_overhead", "nvls_fill")
        ),
    ),
    (("Vultr-B200-p2p",), INSIDE, tuple(f"blackwell/{name}" for name in ("p2p", "p2p_launch", "p2p_channel", "p2p_fill"))),
    (("OCI-GB200",), BETWEEN, ("blackwell/nvls_head",)),
    (("AAC-MI300X",), INSIDE, ("cdna3/hop.0", *(f"cdna3/{name}" for name in _RING))),
    (("Vultr-MI355X",), INSIDE, ("cdna4/ring.2",)),
    (("Vultr-MI355X",), BETWEEN, ("rccl/hop.0", "rccl/hop.1", "rccl/tree_hop.0", "rccl/p2p_launch", "rccl/message")),
    (("HCCL-Gaudi2",), INSIDE, ("gaudi/ring.2",)),
    (("GCP-H100",), BETWEEN, tuple(f"ethernet/{name}" for name in ("hop.1", "tree_hop.0", "tree_hop.1", "nvls_hop"))),
)
"""How the stored constants came about: families, where their groups sit, and the constants that were free, stage after stage."""


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
    """Errors of one family and size band in percent: median and mean of the absolute error, and the mean signed error."""

    family: str
    band: str
    count: int
    median_abs_pct: float
    mean_abs_pct: float
    bias_pct: float


def refit(
    samples: Sequence[Sample], nodes: Mapping[str, NodeConstants] = NODES, nets: Mapping[str, NetConstants] = NETS
) -> tuple[dict[str, NodeConstants], dict[str, NetConstants]]:
    """All stages of `RECIPE` on clean samples. Each family and size band weighs alike, sizes from 1 MiB on two and a half times."""
    count: dict[tuple[str, bool, str], int] = {}
    keys = [(s.family, s.group.nodes > 1, _band(s.bytes)) for s in samples]
    for key in keys:
        count[key] = count.get(key, 0) + 1
    weighed = [replace(s, weight=(20.0 if s.bytes >= 2**20 else 8.0) / count[key]) for s, key in zip(samples, keys, strict=True)]
    found = dict(nodes), dict(nets)
    for families, where, free in RECIPE:
        chosen = [s for s in weighed if s.family in families and (s.group.nodes > 1) == (where == BETWEEN)]
        if chosen:
            found = fit(chosen, free, *found)
    return found


def _band(size: float) -> str:
    return next(name for low, high, name in BANDS if low <= size < high)


def fit(
    samples: Sequence[Sample],
    free: Sequence[str],
    nodes: Mapping[str, NodeConstants] = NODES,
    nets: Mapping[str, NetConstants] = NETS,
) -> tuple[dict[str, NodeConstants], dict[str, NetConstants]]:
    """The constants with the `free` ones refitted: a name is `hopper/launch` or `infiniband/tree_hop.1` (part 1 of a triple).

    Raises SpecError without samples or on a name that no table has.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped,unused-ignore]

    if not samples:
        raise SpecError("samples", 0, "at least one measured call")
    tables: dict[str, Any] = {**nodes, **nets}
    for name in free:
        if name.split("/")[0] not in tables:
            raise UnknownName("free", name, sorted(tables))
    start = np.log([_get(tables, name) for name in free])
    weights = np.sqrt([s.weight for s in samples])
    calls = [_Call.of(s) for s in samples]

    def residuals(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        moved = _put(tables, free, np.exp(x))
        return np.array([math.log(call.predict(moved) / call.sample.seconds) for call in calls]) * weights

    limit = math.log(12.0)
    upper = np.array([min(limit, -v) if _is_fraction(name) else limit for v, name in zip(start, free, strict=True)])
    found = least_squares(
        residuals, start, bounds=(start - limit, start + np.maximum(upper, 1e-6)), loss="soft_l1", f_scale=0.1, diff_step=1e-3
    )
    best = _put(tables, free, np.exp(found.x))
    return {name: best[name] for name in nodes}, {name: best[name] for name in nets}


def accuracy(samples: Sequence[Sample]) -> list[Accuracy]:
    """Errors of the stored constants by family and size band."""
    found: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        band = _band(sample.bytes)
        ready = prepare(sample.cluster, sample.comm, sample.group, parse_settings(sample.settings))
        predicted = ready.seconds(sample.bytes)[0].seconds
        found.setdefault((sample.family, band), []).append(100.0 * (predicted / sample.seconds - 1.0))
    rows = []
    for (family, band), errors in sorted(found.items()):
        size = np.abs(errors)
        rows.append(Accuracy(family, band, len(errors), float(np.median(size)), float(size.mean()), float(np.mean(errors))))
    return rows


@dataclass(frozen=True)
class _Call:
    """A sample with everything that the constants do not change."""

    sample: Sample
    ready: Setup
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, sample: Sample) -> _Call:
        ready = prepare(sample.cluster, sample.comm, sample.group, parse_settings(sample.settings))
        return cls(sample, ready, ready.open or (ready.choose(sample.bytes),))

    def predict(self, tables: Mapping[str, Any]) -> float:
        links, s = self.ready.links, self.sample
        node, net = tables[links.generation], tables[links.fabric]
        return min(
            achieved(s.comm, s.bytes, s.group, links, self.ready.graph, algorithm, protocol, node, net).seconds
            for algorithm, protocol in self.options
        )


def _is_fraction(name: str) -> bool:
    """Whether the constant is a part of a link's rate, which cannot exceed 1."""
    return name.split("/")[1].split(".")[0] in ("ring", "tree", "nvls", "p2p")


def _get(tables: Mapping[str, Any], name: str) -> float:
    table, _, rest = name.partition("/")
    field, _, part = rest.partition(".")
    if not hasattr(tables[table], field):
        raise UnknownName("free", name, [f.name for f in fields(tables[table])])
    value = getattr(tables[table], field)
    return float(value[int(part)] if part else value)


def _put(tables: Mapping[str, Any], names: Sequence[str], values: npt.NDArray[np.float64]) -> dict[str, Any]:
    moved = dict(tables)
    for name, value in zip(names, values, strict=True):
        table, _, rest = name.partition("/")
        field, _, part = rest.partition(".")
        new: Any = float(value)
        if part:
            triple = list(getattr(moved[table], field))
            triple[int(part)] = new
            new = tuple(triple)
        moved[table] = replace(moved[table], **{field: new})
    return moved
