"""The result: plain data, one `StageMemory` per pipeline stage. Why a job does not fit: sentences on what fills its fullest GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.memory.tiers import NAMES, TierMemory
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Workload
from windtunnel.workload.schedules import Pass

USABLE = 0.989
"""Share of the data sheet's memory that CUDA offers: PyTorch's out-of-memory texts print 79.15 of 80 GiB on A100, 79.10 on H100."""


@dataclass(frozen=True)
class StageMemory:
    """Bytes on the fullest GPU of one pipeline stage at its peak, by kind.

    weights + gradients + optimizer + activations + logits + buffers + workspace = allocated.
    """

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    workspace: float
    context: float
    """CUDA context and NCCL."""
    fragmentation: float
    allocated: float
    """All tensors."""
    reserved: float
    """`allocated` with `fragmentation`: what the framework's allocator holds."""
    total: float
    """`reserved` with `context`: what nvidia-smi shows."""
    capacity: float
    fits: bool
    """Whether the GPU has room, and so have all `tiers`."""
    curve: Sequence[tuple[float, float]] = ()
    """(second in the step, allocated bytes)."""
    tiers: tuple[TierMemory, ...] = ()
    """Bytes outside the GPU."""

    @property
    def usable(self) -> float:
        """Bytes of `capacity` that CUDA can provide."""
        return USABLE * self.capacity

    @property
    def missing(self) -> float:
        """Bytes beyond the capacity of the GPU, or of an offload tier: positive if and only if the stage does not fit."""
        over = self.total - self.usable
        if self.fits:
            return min(0.0, over)  # a stage that fits may fill its room exactly; ignore rounding
        return max((over, *(tier.missing for tier in self.tiers)))

    @property
    def short(self) -> str:
        """Where `missing` bytes are missing: GPU memory, or an offload tier that lacks more."""
        over = max(self.tiers, key=lambda tier: tier.missing, default=None)
        return NAMES[over.place] if over is not None and over.missing > max(0.0, self.total - self.usable) else "GPU memory"


def stage_of(table: Mapping[str, Any]) -> StageMemory:
    """The stage that JSON of an answer has as `table`."""
    return StageMemory(**{**table, "tiers": tuple(TierMemory(**tier) for tier in table["tiers"])})


GIB = 2.0**30


def why(workload: Workload, memory: Sequence[StageMemory]) -> tuple[str, ...]:
    """Sentences about the fullest stage, the largest part first; none if everything fits."""
    worst = max(memory, key=lambda stage: stage.missing)
    if worst.fits:
        return ()
    job = workload.job
    state = worst.weights + worst.gradients + worst.optimizer
    activations = worst.activations + worst.logits
    sentences = [(state, _state(job, workload, worst, state)), (activations, _activations(job, workload, worst))]
    sentences += [
        (
            worst.workspace,
            f"Temporary tensors of one block's backward pass take {_gib(worst.workspace)}"
            f"{' (recompute brings a whole layer back)' if job.plan.recompute == 'full' else ''}.",
        )
    ]
    sentences += [(worst.buffers, f"Buffers of communication take {_gib(worst.buffers)}.")]
    large = [(size, words) for size, words in sentences if size > 0.1 * worst.allocated]
    return tuple(words for _, words in sorted(large, key=lambda entry: -entry[0]))


def _state(job: Job, workload: Workload, worst: StageMemory, state: float) -> str:
    plan = job.plan
    parameters, experts = workload.stage_parameters[worst.stage], workload.stage_experts[worst.stage]
    counted = _describe_parameters(workload, worst, parameters)
    words = f"Weights, gradients and optimizer state take {_gib(state)} of {_gib(worst.capacity)}: {counted}"
    if plan.sharding in ("zero3", "fsdp", "hsdp"):
        words += f" over {job.shard_ranks} ranks"
    else:
        words += f" on stage {worst.stage}'s GPUs (tp = {plan.tp}, pp = {plan.pp})"
    if experts > 0.5 * parameters and job.model.experts:
        experts_per_rank = f"{job.model.experts // plan.ep} of {job.model.experts} in every layer"
        words += f", {experts / parameters:.0%} of them experts', of which plan.ep = {plan.ep} leaves {experts_per_rank}"
    if plan.sharding == "none" and job.dp * plan.cp > 1:
        words += f"; plan.sharding = none keeps the optimizer state on all {job.dp * plan.cp} data-parallel ranks"
    elif plan.sharding == "zero1" and job.expert_dp < 4 and experts > 0.5 * parameters:
        words += f"; only {job.expert_dp} ranks share an expert's optimizer state"
    return words + "."


def _describe_parameters(workload: Workload, worst: StageMemory, parameters: float) -> str:
    """The parameters of the stage; frozen ones, which have weights alone, apart from trained ones."""
    if not workload.held_weights(worst.stage)[1]:
        return f"{parameters / 1e9:.3g} billion parameters"
    lora = getattr(workload.job.model, "lora", None)
    packed = f" in {lora.base}" if lora is not None and lora.base != "none" else ""
    trained = f"{parameters / 1e9:.3g} billion" if parameters >= 1e8 else f"{parameters / 1e6:.3g} million"
    return f"{_gib(worst.weights)} are weights, frozen{packed} but for {trained} trained parameters"


def _activations(job: Job, workload: Workload, worst: StageMemory) -> str:
    plan = job.plan
    in_flight = most = 0
    for action in workload.schedule[worst.stage]:
        in_flight += (action.direction is Pass.FORWARD) - (action.direction in (Pass.BACKWARD, Pass.INPUT_GRADIENT))
        most = max(most, in_flight)
    flight = f"{most} micro batch{'es' if most > 1 else ''} of {plan.micro_batch} in flight"
    return (
        f"Activations take {_gib(worst.activations + worst.logits)}: {flight}, recompute = {plan.recompute}, cut by tp x cp = "
        f"{plan.tp * plan.cp}{'' if plan.tp == 1 or plan.sequence_parallel else ', without sequence parallelism'}."
    )


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"
