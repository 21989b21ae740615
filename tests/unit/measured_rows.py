"""Datasets made from a graph: its own predictions as if they had been measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.compute import TrainingFactor, estimate
from windtunnel.records import About, Dataset, dataset
from windtunnel.spec import Job
from windtunnel.workload import Kind, OpTable, Phase, Workload
from windtunnel.workload.ops import DTYPES

PHASES = {Phase.FORWARD: "forward", Phase.RECOMPUTE: "forward", Phase.DGRAD: "dgrad", Phase.WGRAD: "wgrad"}
ONE_BY_ONE = ("gemm", "elementwise", "copy", "reduce")


def as_measured(ops: OpTable, job: Job) -> list[dict[str, Any]]:
    """A kernel row for every computing row of `ops`, with the time that the curves give it in a loop."""
    gpu = job.cluster.gpu
    loop = estimate(ops, gpu, job.runtime, {gpu.architecture: TrainingFactor()}).seconds
    rows = []
    for r in np.nonzero((ops.kind != Kind.COMM) & (ops.launches > 0))[0]:
        kind = Kind(int(ops.kind[r]))
        op = "attention" if kind is Kind.ATTENTION_BACKWARD else kind.name.lower()
        phase = PHASES.get(Phase(int(ops.phase[r])), "optimizer")
        if op != "gemm" and phase in ("dgrad", "wgrad"):
            phase = "backward"
        each = int(ops.launches[r]) if op in ONE_BY_ONE else 1
        rows.append(
            {
                "level": "kernel",
                "op": op,
                "name": ops.names[r],
                "phase": phase,
                "dtype": DTYPES[ops.dtype[r]],
                "mode": job.runtime.launch,
                "library": "megatron" if op == "softmax" and job.runtime.attention == "fused_softmax" else None,
                "batch": int(ops.batch[r]),
                "m": int(ops.m[r]),
                "n": int(ops.n[r]),
                "k": int(ops.k[r]),
                "flops": float(ops.flops[r]) / each,
                "bytes": float(ops.bytes[r]) / each,
                "launches": int(ops.launches[r]) // each,
                "seconds": float(loop[r]) / each,
                "seconds_std": 0.0,
                "status": "ok",
                "source": "the curves",
            }
        )
    return rows


def made(rows: list[dict[str, Any]], job: Job) -> Dataset:
    """A dataset of these rows, on the job's GPU."""
    return dataset(About(gpu=job.cluster.gpu.id, source="test"), rows)


def own_predictions(workload: Workload) -> Dataset:
    """Everything that a workload computes, as its own curves have it."""
    return made(as_measured(workload.ops, workload.job), workload.job)
