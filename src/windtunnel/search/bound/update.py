"""A lower bound of the update at the end of a step, per element that a GPU updates.

A kernel that moves bytes is faster where part of them stays in the cache, so its least seconds a byte are those of the smallest
launch that it may have. Multi-tensor kernels cover a fixed number of elements; fewer are one launch of any size. Rows that do not
cover all elements (Muon's products, norms of tensors) are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.compute import estimate
from windtunnel.predict.price.calibrated import kernel_factors
from windtunnel.spec import Cluster, Job
from windtunnel.workload import Kind, OpTable, Phase
from windtunnel.workload.blocks.quantise import weight_update
from windtunnel.workload.identity import Module
from windtunnel.workload.ops import Op
from windtunnel.workload.optimizers import Held
from windtunnel.workload.optimizers.update import TENSORS_PER_CHUNK
from windtunnel.workload.passes.optimizer import optimizer_rows, updated_parameters

CACHED = 1e5
"""Bytes of a launch that fit into every cache."""

SIZES = (0.0, TENSORS_PER_CHUNK / 16, TENSORS_PER_CHUNK / 4, TENSORS_PER_CHUNK)
"""Elements from which on a GPU's launches have at least some size."""

ELEMENTS = 1e9
"""Elements for which rows that are linear in them are written."""


class Update(NamedTuple):
    """Least seconds an updated element up to the gradient's norm and after it, for GPUs that update at least as many as each of
    `SIZES`; and after it for each element in low precision, sharded or not (`narrow`)."""

    rates: tuple[tuple[float, float], ...] = ((0.0, 0.0),) * len(SIZES)
    narrow: float = 0.0


class UpdateFloor:
    """Updates of the cells of a frame, on the fastest of `kinds` of its GPUs."""

    def __init__(self, kinds: Sequence[Cluster]) -> None:
        self.kinds = kinds
        self._rates: dict[tuple[object, ...], float] = {}

    def of(self, job: Job, held: Held) -> Update:
        """The update of a job of `cells.one_stage_job` that has `held` before sharding."""
        elements = updated_parameters(job, held.elements, held.experts)
        if elements < 1.0 or job.plan.offload.updated_away:
            return Update()
        chunks = max(1, -(-int(elements) // TENSORS_PER_CHUNK))
        rates = np.zeros((len(SIZES), 2))
        for part, rows in enumerate(optimizer_rows(job, held)):
            for row in rows:
                if row.kind is Kind.COMM or row.n != int(elements):
                    continue
                width, times = row.bytes / elements, row.launches / chunks
                for place, size in enumerate(SIZES if times.is_integer() else ()):
                    launch = min(size, TENSORS_PER_CHUNK / 2.0) * width / times
                    rates[place, part] += width * self._seconds(job, row, max(CACHED, launch))
                if not times.is_integer():
                    rates[:, part] += width * self._seconds(job, row, CACHED)
        quantised = weight_update(job, ELEMENTS, 0.0)
        narrow = sum(row.bytes / ELEMENTS * self._seconds(job, row, CACHED) for row in quantised)
        return Update(tuple((ahead, after) for ahead, after in rates.tolist()), narrow)

    def _seconds(self, job: Job, row: Op, moved: float) -> float:
        """Seconds a byte of a launch of such a row that moves so many, without what a launch takes."""
        key = (row.kind, row.role, job.runtime.framework, job.runtime.launch, round(moved))
        if key not in self._rates:
            of = Op(row.name, row.kind, Phase.OPTIMIZER, Module.OPTIMIZER, row.dtype, bytes=moved, role=row.role)
            table = OpTable.of([of, of._replace(bytes=0.0)])
            factor = 1.0 if job.calibration is None else float(np.min(kernel_factors(table, job.calibration)))
            took = [estimate(table, kind.gpu, job.kernel_runtime).seconds for kind in self.kinds]
            self._rates[key] = max(0.0, min(float(with_bytes - without) for with_bytes, without in took)) * factor / moved
        return self._rates[key]
