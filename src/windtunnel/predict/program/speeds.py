"""Factors on the operators of one group of replicas: constant, or drawn for each pass of each micro batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine import ProgramBuilder
from windtunnel.predict.program.templates import Templates
from windtunnel.predict.ranks.folding import Pace, Replicas
from windtunnel.predict.ranks.places import Chance, stream
from windtunnel.spec import Job
from windtunnel.spec.unequal import Documents, Jitter, Unequal
from windtunnel.workload import Axis, Kind
from windtunnel.workload.ops import OpTable

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FIXED, OTHER, PRODUCT, ATTENTION, EXPERTS, DISPATCH = range(6)
"""Columns of factors: calls; other kernels; matrix products; attention; experts' products; calls between experts' ranks."""

CHUNK = 1 << 22
"""Random numbers drawn at once."""


def columns(ops: OpTable) -> npt.NDArray[np.int32]:
    """The column of every row of a workload."""
    out = np.full(len(ops), OTHER, np.int32)
    out[ops.kind == Kind.GEMM] = PRODUCT
    out[ops.kind == Kind.GROUPED_GEMM] = EXPERTS
    out[(ops.kind == Kind.ATTENTION) | (ops.kind == Kind.ATTENTION_BACKWARD)] = ATTENTION
    calls = ops.kind == Kind.COMM
    out[calls] = FIXED
    out[calls & np.isin(ops.axis, (Axis.EP, Axis.ETP))] = DISPATCH
    return out


@dataclass(frozen=True)
class Segments:
    """Segments of computation of a template between calls at which its ranks meet [n]: mean seconds, and the standard deviation of
    the sum per unit of a kernel's relative deviation."""

    mean: Floats
    deviation: Floats


class Speeds:
    """Rows of factors for the instances of one stage of one group."""

    def __init__(
        self, builder: ProgramBuilder, job: Job, unequal: Unequal, group: Replicas, stage: int, number: int, templates: Templates
    ) -> None:
        pace = group.paces[stage]
        self.builder, self.unequal, self.members, self.templates = builder, unequal, group.members, templates
        self.factors = factors_of(pace)
        self.constant = int(builder.add_factors(self.factors[None])[0]) if (self.factors != 1.0).any() else 0
        self.rng = stream(job.seed, Chance.JITTER, number, group.indices[0], stage)
        same = stream(job.seed, Chance.DOCUMENTS, number, group.indices[0])
        replicas = max(1, group.members // (job.plan.tp * job.plan.cp))
        self.attention = None
        if unequal.documents is not None:
            sequences = group.micro_batches, replicas, job.plan.micro_batch
            self.attention = packed_work(unequal.documents, job.plan.seq, sequences, same).mean(axis=2).max(axis=1)
        self.drawn = bool(unequal.jitter or unequal.documents or unequal.experts)
        self.segments: dict[int, Segments | None] = {}

    def rows(self, template: Longs, labels: Longs) -> Longs:
        """Row for each of n runs of `template` [n]; `labels` [n, 3] are kind, micro batch and virtual stage."""
        if not self.drawn:
            return np.full(len(template), self.constant)
        factors = np.tile(self.factors, (len(template), 1))
        batch = labels[:, 1]
        if self.attention is not None:
            factors[batch >= 0, ATTENTION] *= self.attention[batch[batch >= 0]]
        if self.unequal.experts is not None:
            load = 1.0 + self.rng.exponential(self.unequal.experts.excess, len(template))
            factors[:, EXPERTS:] *= load[:, None]
        if self.unequal.jitter is not None:
            factors[:, 1:DISPATCH] *= self._jitter(self.unequal.jitter, template)[:, None]
        return self.builder.add_factors(factors)

    def _jitter(self, jitter: Jitter, template: Longs) -> Floats:
        """Time of each run over its mean: in every segment the slowest of the members, each with its own draw."""
        out = np.ones(len(template))
        for number in np.unique(template).tolist():
            segments = self._segments(number)
            if segments is None:
                continue
            runs = np.flatnonzero(template == number)
            mean_total = float(segments.mean.sum())
            wide = jitter.sigma * (segments.deviation / segments.mean if jitter.of == "kernel" else np.ones(len(segments.mean)))
            size = max(1, CHUNK // (self.members * len(wide)))
            for start in range(0, len(runs), size):
                some = runs[start : start + size]
                normal = self.rng.standard_normal((len(some), self.members, len(wide)))
                out[some] = (_spread(normal, wide, jitter.shape).max(axis=1) * segments.mean).sum(axis=1) / mean_total
        return out

    def _segments(self, template: int) -> Segments | None:
        if template not in self.segments:
            self.segments[template] = _segments_of(self.templates, template) if template >= 0 else None
        return self.segments[template]


def factors_of(pace: Pace) -> Floats:
    """[columns] of a stage."""
    return np.array([1.0, pace.slow, pace.product, pace.product, pace.product, 1.0])


def _segments_of(templates: Templates, template: int) -> Segments | None:
    rows = templates.rows[template]
    if rows is None:
        return None
    rows = rows[rows >= 0]
    calls = templates.is_comm[rows] > 0
    seconds = np.where(calls, 0.0, templates.costs.seconds[rows])
    starts = np.unique(np.concatenate([[0], np.flatnonzero(calls)])) if len(rows) else np.zeros(0, np.int64)
    if not len(starts) or not seconds.any():
        return None
    mean = np.add.reduceat(seconds, starts)
    square = np.add.reduceat(seconds**2, starts)
    real = mean > 0.0
    return Segments(mean[real], np.sqrt(square[real]))


def _spread(normal: Floats, wide: Floats, shape: str) -> Floats:
    """Draws with mean 1 and relative deviation `wide`, made from standard normal ones; normal draws are clipped at 0."""
    if shape == "normal":
        return np.maximum(1.0 + wide * normal, 0.0)
    of_log = np.sqrt(np.log1p(wide**2))
    return np.asarray(np.exp(of_log * normal - of_log**2 / 2.0))


def packed_work(documents: Documents, seq: int, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Attention's work in sequences [shape] of packed documents over that of one document of the same length: sum of l^2 over
    seq^2."""
    count = int(np.prod(shape))
    location = np.log(documents.mean) - documents.spread**2 / 2.0
    work, free = np.zeros(count), np.full(count, float(seq))
    while (free > 0.0).any():
        open_ = np.flatnonzero(free > 0.0)
        length = np.minimum(np.maximum(np.exp(rng.normal(location, documents.spread, len(open_))), 1.0), free[open_])
        work[open_] += length**2
        free[open_] -= length
    return (work / float(seq) ** 2).reshape(shape)
