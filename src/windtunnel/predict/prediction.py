"""A prediction as plain data, which can be pickled, hashed and compared by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.memory import StageMemory
from windtunnel.predict.published import PublishedSteps
from windtunnel.spec.job import Job

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic


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
class ReplicaClass:
    """Equal replicas of a step of unequal ranks; tuples after `micro_batches` have one entry for each pipeline stage."""

    name: str
    replicas: tuple[int, ...]
    micro_batches: int
    gpus: tuple[str, ...]
    """Names of the GPUs; several where ranks of one group differ."""
    slow: tuple[float, ...]
    """Time of a kernel over that of a good GPU."""
    computing_s: tuple[float, ...]
    waiting_s: tuple[float, ...]
    """Waiting for slower ranks at calls between replicas."""
    bubble_s: tuple[float, ...]
    """Waiting in the pipeline."""
    breakdown: dict[str, float]
    """The breakdown of the stage that sets the class's pace; it adds up to the step."""


@dataclass(frozen=True)
class UnequalResult:
    """A step of unequal ranks beside one of equal ones."""

    equal_step_time_s: float
    """Step time if all ranks were as the job's cluster states, without pauses and chance."""
    culprit: str
    """The ranks that the others wait for, in words."""
    classes: tuple[ReplicaClass, ...]
    class_of_replica: tuple[int, ...]
    """[dp] index of `classes` for each replica."""
    steps: tuple[tuple[float, float], ...]
    """(share of all steps, seconds) of each drawn step. Classes, timeline, critical path and kernels are those of the step nearest
    to the mean."""

    @property
    def slowest(self) -> float:
        """Seconds of the longest drawn step."""
        return max(seconds for _, seconds in self.steps)


@dataclass(frozen=True)
class FaultCost:
    """What the faults of the fabric cost a step."""

    stated: tuple[str, ...]
    """`cluster.fabric.faults`."""
    whole_step_time_s: float
    """Step time without them."""
    cost_s: float
    """Step time with them less that."""
    counts: dict[str, float]
    """Packets lost, timeouts and packets sent again; empty where no packets are simulated."""


@dataclass(frozen=True)
class SharedTraffic:
    """A job, a list of flows or a save on a shared fabric. Seconds of its step: of the whole list, or of a part of the save."""

    name: str
    kind: str
    """`job`, `flows` or `save`."""
    gpus: int
    nodes: str
    """Where it runs, as `cluster.placement` would say it."""
    alone_s: float
    """A step without the others, on the same fabric."""
    mean_s: float
    """Mean over phases; NaN where no step of it was counted."""
    worst_s: float
    best_s: float
    by_phase: tuple[float, ...]
    """Mean at each phase."""
    steps: int
    """Number of steps that were counted."""

    @property
    def slowdown(self) -> float:
        """Mean step beside the others over the step alone."""
        return self.mean_s / self.alone_s


@dataclass(frozen=True)
class SharedLink:
    """A link that several traffics use. `load`: the share of its rate that was used; `asked`: the mean share that each asks for
    alone."""

    name: str
    rate: float
    load: float
    asked: dict[str, float]


@dataclass(frozen=True)
class Sharing:
    """A step beside other traffic on the same fabric."""

    traffics: tuple[SharedTraffic, ...]
    """The job that was asked about first."""
    phases: int
    """Number of relative starts over which is averaged."""
    links: tuple[SharedLink, ...]
    """Shared links, those of which most is asked first."""
    traffic: Traffic
    """Links in the run nearest to the mean."""


@dataclass(frozen=True)
class SaveCost:
    """A checkpoint that is written to storage on the compute fabric while the job trains. Bytes, seconds."""

    bytes: float
    servers: int
    alone_s: float
    """The save without training."""
    beside_s: float
    """The save while the job trains."""
    whole_step_time_s: float
    """A step without a save."""
    step_time_s: float
    """Mean step during a save."""
    links: tuple[SharedLink, ...]

    @property
    def slowdown(self) -> float:
        """How much longer a step takes during a save, as a share."""
        return self.step_time_s / self.whole_step_time_s - 1.0


@dataclass(frozen=True)
class Prediction:
    """The result of `predict`. Seconds, bytes, FLOP/s, US dollars, joules unless a name says otherwise.

    `kernels`, `timeline`, `kernel_timeline`, `critical_path` and the stages' memory curves are computed when they are first read.
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
    """Parts of the step of the slowest stage. They do not overlap, and add up to `step_time_s`."""
    by_stage: tuple[dict[str, float], ...]
    """The breakdown of every stage, with the same keys."""
    overlapped: dict[str, float]
    memory: tuple[StageMemory, ...]
    fits: bool
    provenance: dict[str, float]
    """Share of the step's seconds by kind of evidence."""
    relative_error: float
    """One sigma of the step time: `error_of_parts`, widened or narrowed as published steps like this one say, and what it rests on
    beside them (`predict.rests`)."""
    kernels: Sequence[KernelRow]
    collectives: tuple[dict[str, object], ...]
    """One row a call: name, axis, bytes, ranks, nodes, algorithm, protocol, channels, time_us, busbw_GBs, count."""
    critical_path: Sequence[dict[str, object]]
    energy_j_per_step: float | None = None
    cost_per_step: float | None = None
    tokens_per_day: float = 0.0
    days: float | None = None
    cost: float | None = None
    energy_j: float | None = None
    cost_parts: dict[str, float] | None = None
    """Parts of the cost of the run, or of a step if the job states no tokens."""
    energy_parts: dict[str, float] | None = None
    """Parts of the energy of the run, or of a step if the job states no tokens; joules."""
    carbon_kg_per_step: float | None = None
    carbon_kg: float | None = None
    gpu_power_w: float | None = None
    """Mean power of a GPU over a step."""
    node_power_w: float | None = None
    """Mean power of a node at its plug."""
    power_w: float | None = None
    """Mean power of the whole cluster with network, storage and cooling."""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: dict[str, float] = field(default_factory=dict)
    """Share of the step's seconds by table of constants or dataset."""
    profile: str | None = None
    """The dataset with the measured kernels and layers that were used."""
    parameters: float = 0.0
    longest_s: float = 0.0
    """End of the interval of the step time: beyond `relative_error` where the host may set the pace."""
    error_of_parts: float = 0.0
    """Relative error of the step time that the errors of its kernels and calls imply."""
    published: PublishedSteps | None = None
    """How far predictions of published steps like this one were off; None where none was compared."""
    unequal: UnequalResult | None = None
    """Which ranks wait for which; None where all ranks are equal."""
    faults: FaultCost | None = None
    """What faults of the fabric cost; None where it states none."""
    sharing: Sharing | None = None
    """The step beside other traffic on its fabric; None where the job is alone. All else is of the job alone."""
    saving: SaveCost | None = None
    """What a save costs while the job trains; None where storage is not on the fabric of a step over an engine."""
    init_time_s: float = 0.0
    """Seconds until communication groups are set up, once per start."""
    traffic: Traffic | None = None
    """Traffic on the links; None for the closed form."""
    timeline: Sequence[Span] = field(default=(), repr=False)
    """Passes of virtual stages, transfers, and optimizer steps."""
    kernel_timeline: Sequence[Span] = field(default=(), repr=False)
    """The kernels and collectives inside the spans of `timeline`."""

    def __hash__(self) -> int:
        return hash((self.job, self.network, self.step_time_s))
