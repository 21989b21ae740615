"""The answer: what a prediction says. Plain data, so that doors and reports need nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.memory import StageMemory
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.predict.unequal.result import Unequally
from windtunnel.spec.job import Job


@dataclass(frozen=True)
class KernelRow:
    """One operator summed over a step of the slowest stage (seconds; `share` of the step)."""

    name: str
    module: str
    kind: str
    phase: str
    shape: str
    count: int
    seconds_each: float
    seconds_total: float
    share: float
    provenance: str
    relative_error: float


@dataclass(frozen=True)
class Span:
    """One interval of the timeline: seconds from the start of the step."""

    stage: int
    stream: str
    name: str
    category: str
    start: float
    end: float
    micro_batch: int = -1
    chunk: int = -1


@dataclass(frozen=True)
class Prediction:
    """What `predict` returns. Seconds, bytes, FLOP/s, US dollars, joules unless a name says otherwise.

    `breakdown` splits the step of the slowest stage into non-overlapping parts that add up to `step_time_s`;
    `by_stage` has the same keys for every stage.
    """

    job: Job
    network: str
    step_time_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    model_tflops_per_gpu: float
    hardware_tflops_per_gpu: float
    mfu: float
    hfu: float
    breakdown: dict[str, float]
    by_stage: tuple[dict[str, float], ...]
    overlapped: dict[str, float]
    memory: tuple[StageMemory, ...]
    fits: bool
    provenance: dict[str, float]  # share of the step's seconds resting on each kind of evidence
    relative_error: float
    kernels: tuple[KernelRow, ...]
    collectives: tuple[
        dict[str, object], ...
    ]  # name, axis, bytes, ranks, nodes, algorithm, protocol, channels, time_us, busbw_GBs, count
    critical_path: tuple[dict[str, object], ...]
    energy_j_per_step: float | None = None
    cost_per_step: float | None = None
    tokens_per_day: float = 0.0
    days: float | None = None
    cost: float | None = None
    energy_j: float | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: dict[str, float] = field(default_factory=dict)  # share of the step's seconds by table of constants or dataset
    profile: str | None = None  # the dataset that answered for measured kernels and layers
    parameters: float = 0.0
    unequal: Unequally | None = None  # who waits for whom; None where all ranks are equal
    init_time_s: float = 0.0  # until communication groups stand, once a start
    traffic: Traffic | None = None  # what the links carried; None where the network is a closed form
    timeline: Sequence[Span] = field(default=(), repr=False)  # a pass of a virtual stage, a transfer, an optimizer step
    kernel_timeline: Sequence[Span] = field(default=(), repr=False)  # the kernels and collectives inside them
