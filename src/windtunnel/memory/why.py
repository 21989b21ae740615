"""Why a job does not fit: what fills its fullest GPU, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.memory.result import StageMemory
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Workload
from windtunnel.workload.schedules import Pass

GIB = 2.0**30


def why(workload: Workload, memory: Sequence[StageMemory]) -> tuple[str, ...]:
    """Sentences about the fullest stage, the weightiest first; none where everything fits."""
    worst = max(memory, key=lambda stage: stage.missing)
    if worst.fits:
        return ()
    job = workload.job
    state = worst.weights + worst.gradients + worst.optimizer
    rest = worst.activations + worst.logits
    told = [(state, _state(job, workload, worst, state)), (rest, _activations(job, workload, worst))]
    told += [
        (
            worst.workspace,
            f"Temporary tensors of one block's backward pass take {_gib(worst.workspace)}"
            f"{' (recompute brings a whole layer back)' if job.plan.recompute == 'full' else ''}.",
        )
    ]
    told += [(worst.buffers, f"Buffers of communication take {_gib(worst.buffers)}.")]
    large = [(size, words) for size, words in told if size > 0.1 * worst.allocated]
    return tuple(words for _, words in sorted(large, key=lambda entry: -entry[0]))


def _state(job: Job, workload: Workload, worst: StageMemory, state: float) -> str:
    plan = job.plan
    held, experts = workload.stage_parameters[worst.stage], workload.stage_experts[worst.stage]
    words = f"Weights, gradients and optimizer state take {_gib(state)} of {_gib(worst.capacity)}: {held / 1e9:.3g} billion "
    words += "parameters"
    if plan.sharding in ("zero3", "fsdp", "hsdp"):
        words += f" over {job.shard_ranks} ranks"
    else:
        words += f" on stage {worst.stage}'s GPUs (tp = {plan.tp}, pp = {plan.pp})"
    if experts > 0.5 * held and job.model.experts:
        each = f"{job.model.experts // plan.ep} of {job.model.experts} in every layer"
        words += f", {experts / held:.0%} of them experts', of which plan.ep = {plan.ep} leaves {each}"
    if plan.sharding == "none" and job.dp * plan.cp > 1:
        words += f"; plan.sharding = none keeps the optimizer state on all {job.dp * plan.cp} data-parallel ranks"
    elif plan.sharding == "zero1" and job.expert_dp < 4 and experts > 0.5 * held:
        words += f"; only {job.expert_dp} ranks share an expert's optimizer state"
    return words + "."


def _activations(job: Job, workload: Workload, worst: StageMemory) -> str:
    plan = job.plan
    held = most = 0
    for action in workload.schedule[worst.stage]:
        held += (action.direction is Pass.FORWARD) - (action.direction in (Pass.BACKWARD, Pass.INPUT_GRADIENT))
        most = max(most, held)
    flight = f"{most} micro batch{'es' if most > 1 else ''} of {plan.micro_batch} in flight"
    return (
        f"Activations take {_gib(worst.activations + worst.logits)}: {flight}, recompute = {plan.recompute}, cut by tp x cp = "
        f"{plan.tp * plan.cp}{'' if plan.tp == 1 or plan.sequence_parallel else ', without sequence parallelism'}."
    )


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"
