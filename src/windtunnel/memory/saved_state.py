"""Bytes of a job's checkpoint.

A checkpoint holds one copy of the weights and of the optimizer's state. With 16-bit weights, fp32 master copies and Adam that is
2 + 4 + 8 = 14 bytes a parameter. Published sizes beside it: BLOOM 176B 2.3 TB (14 B: 2.24 TiB), Llama 3.1 8B ~105 GB (104.7 GiB),
Nemotron-4 340B ~4.4 TB (4.33 TiB).
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload import parameter_count
from windtunnel.workload.optimizers import OPTIMIZERS, Held, ParameterUpdate


@dataclass(frozen=True)
class StateBytes:
    """One copy of a job's weights and optimizer state; `copied`: what every data-parallel rank holds whole, and needs at a
    load."""

    weights: float
    optimizer: float
    copied: float

    @property
    def total(self) -> float:
        return self.weights + self.optimizer


def state_bytes_of(job: Job) -> StateBytes:
    """Bytes of the state by the memory model's rules: frozen weights under adapters have no optimizer state, and FSDP's fp32
    shards are weights and master copy at once."""
    runtime, plan = job.runtime, job.plan
    elements = float(parameter_count(job.model))
    weight = DTYPE_BYTES[runtime.weight_dtype]
    master = 4.0 if runtime.master_weights and weight < 4.0 else 0.0
    if master and plan.sharding in ("fsdp", "hsdp"):
        weight, master = master, 0.0
    if getattr(job.model, "lora", None) is not None:  # adapters and their state are less than a hundredth of it
        return StateBytes(weight * elements, 0.0, 0.0 if plan.shards_parameters else weight * elements)
    state = OPTIMIZERS[runtime.optimizer].state(ParameterUpdate(job, Held(elements, 0.0), elements, 4.0, 4.0))
    optimizer = state + master * elements
    whole = 0.0 if plan.shards_parameters else weight * elements
    return StateBytes(weight * elements, optimizer, whole + (optimizer if plan.sharding == "none" else 0.0))
