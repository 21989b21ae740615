"""Why a measured step is not the predicted one: each factor alone in the prediction, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import predict
from windtunnel.runs.factors import Factor, Factors, Odd
from windtunnel.spec import Job
from windtunnel.spec.calibration import Calibration
from windtunnel.spec.unequal import Unequal

NOISE = 0.03
"""A factor within this of 1 is no cause."""

_CLASSES = {
    "gemm": ("matrix products", "check clocks and power (nvidia-smi -q -d CLOCK), or measure them: `windtunnel profile run JOB`"),
    "grouped_gemm": ("grouped products of experts", "set runtime.moe_grouped_gemm, or check the balance of the experts' load"),
    "attention": ("attention kernels", "set runtime.attention to the kernel that really runs"),
    "scan": ("scans of state-space layers", "profile them: `windtunnel profile run JOB` on one GPU"),
    "norm": ("norms", "set runtime.fused_norm=false if they run unfused"),
    "loss": ("the loss", "set runtime.cross_entropy and runtime.fused_cross_entropy to what runs"),
    "optimizer": ("the optimizer", "set runtime.fused_optimizer=false if it runs tensor by tensor"),
    "elementwise": ("memory-bound kernels", "set runtime.fused_activation, fused_rope, fused_dropout_add to what runs fused"),
}  # fmt: skip
_AXES = {
    "tp": "inside a layer (tensor parallel)",
    "cp": "of context parallelism",
    "ep": "between experts",
    "dp": "of gradients and parameters (data parallel)",
    "pp": "between pipeline stages",
    "world": "of the whole job",
}


@dataclass(frozen=True)
class StepCause:
    """A cause of the difference. `key`: a path of `spec.calibration`, `rank N`, or `group A-B`; `seconds`: what the step grows by
    (below 0: shrinks) with this factor alone; `test`: what to set or look at."""

    key: str
    factor: float
    seconds: float
    words: str
    test: str
    changed: Job


def causes_of(job: Job, factors: Factors, step: float | None = None) -> tuple[StepCause, ...]:
    """All causes, the dearest first; those that cost nothing now (hidden behind others) come last, the largest factor first.

    `step`: the predicted step where it is known already.
    """
    base = predict(job).step_time_s if step is None else step
    return tuple(sorted(_candidates(job, factors, base), key=lambda cause: _weight(cause, base), reverse=True))


def _weight(cause: StepCause, base: float) -> tuple[float, float]:
    seconds = abs(cause.seconds)
    return (seconds if seconds > 1e-4 * base else 0.0, abs(math.log(cause.factor)))


def _candidates(job: Job, factors: Factors, base: float) -> Iterator[StepCause]:
    for factor in factors.factors:
        if abs(factor.value - 1.0) > max(NOISE, 2.0 * (factor.error if factor.error == factor.error else 0.0)):
            changed = with_factor(job, factor.path, factor.value)
            words, test = _of_factor(factor)
            yield StepCause(factor.path, factor.value, _grows(changed, base), words, test, changed)
    for odd in factors.odd:
        changed = _with_odd(job, odd)
        words, test = _of_odd(odd, job)
        name = f"rank {odd.ranks[0]}" if odd.kind == "rank" else f"group {odd.ranks[0]}-{odd.ranks[-1]}"
        yield StepCause(name, odd.factor, _grows(changed, base), words, test, changed)


def with_factor(job: Job, path: str, value: float) -> Job:
    """The job with one more factor on its calibration."""
    return job.model_copy(update={"calibration": (job.calibration or Calibration()).times(path, value)})


def _grows(job: Job, base: float) -> float:
    """Seconds by which a changed job's step is longer; 0 where it cannot be predicted."""
    try:
        return predict(job).step_time_s - base
    except WindtunnelError:
        return 0.0


def _with_odd(job: Job, odd: Odd) -> Job:
    """The job with a slow rank, or with the node whose NICs a slow group's ranks share at a lower rate."""
    unequal = {} if job.unequal is None else job.unequal.model_dump(exclude_defaults=True)
    if odd.kind == "rank":
        slow = {"ranks": odd.ranks, "factor": max(1.0, odd.factor)}
        unequal["slow"] = (*unequal.get("slow", ()), slow)
    else:
        link = {"nodes": (_node_of(odd, job),), "rate": min(1.0, 1.0 / odd.factor)}
        unequal["links"] = (*unequal.get("links", ()), link)
    return job.model_copy(update={"unequal": Unequal.model_validate(unequal)})


def _node_of(odd: Odd, job: Job) -> int:
    nodes = np.array(odd.ranks or (0,)) // job.cluster.node.gpus
    values, counts = np.unique(nodes, return_counts=True)
    return int(values[np.argmax(counts)])


def _of_factor(factor: Factor) -> tuple[str, str]:
    part, _, name = factor.path.partition(".")
    if part == "kernels":
        what, test = _CLASSES[name]
        return f"{what} take {_times(factor.value)} what we expect", test
    if part == "calls":
        return (
            f"calls {_AXES[name]} take {_times(factor.value)} what we expect",
            "run nccl-tests on the same ranks and `windtunnel import` its log with --cluster; check NCCL_DEBUG=INFO for the path",
        )
    return (
        f"the host needs {_times(factor.value)} the time for a launch",
        "set runtime.launch=cuda_graph, or look at what the host does between launches",
    )


def _of_odd(odd: Odd, job: Job) -> tuple[str, str]:
    if odd.kind == "rank":
        rank, node = odd.ranks[0], odd.ranks[0] // job.cluster.node.gpus
        words = (
            f"rank {rank} (GPU {rank % job.cluster.node.gpus} of node {node}) computes {_times(odd.factor)} as long as its equals"
        )
        return words, f"check clocks, power and temperature of that GPU; exclude node {node} for a run"
    listed = ", ".join(map(str, odd.ranks[:8])) + (", …" if len(odd.ranks) > 8 else "")
    words = f"calls of the {odd.axis} group of ranks {listed} take {_times(odd.factor)} those of its equals"
    return words, f"check the links and NICs of node {_node_of(odd, job)} (ibstat, error counters)"


def _times(factor: float) -> str:
    return f"{factor:.2f} times"
