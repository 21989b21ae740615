"""Notes and warnings of a prediction: its assumptions, and doubts about the job."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.base.fidelity import CLOSED
from windtunnel.compute import Profile
from windtunnel.compute.choose import choose
from windtunnel.compute.library import LIBRARY_NAMES, missing_library
from windtunnel.memory import StageMemory
from windtunnel.memory.loading import loading_of
from windtunnel.network.fabrics.check import unread_fields
from windtunnel.predict.answer.startup import startup
from windtunnel.predict.padding import note
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.job import Job
from windtunnel.spec.unequal import Unequal

LONG_START = 60.0
"""Seconds of setting up groups above which a warning is shown."""

MEASURED_HOST = "by `windtunnel profile host"
"""Of the source of the host's constants that were measured."""


def assumptions(job: Job, network: str = CLOSED) -> tuple[str, ...]:
    """Sentences that hold for this job's prediction."""
    plan, runtime = job.plan, job.runtime
    notes = [
        "MFU counts full (not causal) attention and the logits; its peak is "
        f"{job.cluster.gpu.peak[runtime.precision] / 1e12:g} TFLOP/s ({runtime.precision}, dense)."
    ]
    if job.plan.sample is not None:
        notes.append(note(job))
    if job.model.experts is not None:
        load = min(runtime.moe_imbalance, runtime.moe_capacity or runtime.moe_imbalance)
        notes.append(
            f"A token goes to {job.model.top_k} of {job.model.experts} experts, which count in FLOPs; the busiest expert "
            f"rank takes {load:g} times the mean."
        )
    if isinstance(job.model, GraphModel):
        notes.append(
            f"The model is a graph of kernels as PyTorch runs them one by one, {job.model.batch} samples a micro batch; "
            "switches that fuse kernels of decoders change nothing."
        )
    elif job.padded_vocab != job.model.vocab:
        notes.append(f"The vocabulary is padded from {job.model.vocab} to {job.padded_vocab}.")
    if job.kernel_runtime is not runtime:
        notes.append(
            "PyTorch's kernels compute the softmax: Megatron's fused one takes 17 to 4,096 keys, and sequences and micro batch x "
            "heads of a GPU in fours."
        )
    if runtime.attention == "flash" and (stands_in := missing_library(runtime, choose(job.cluster.gpu).kernels)) is not None:
        asked, taken = (LIBRARY_NAMES.get(name, "the curve that measured GPUs share") for name in stands_in)
        notes.append(f"No curve of {asked} is known for {job.cluster.gpu.name}: attention takes the time of {taken}.")
    if not isinstance(job.model, GraphModel):
        notes += _idle_window(job)
    if job.unequal is not None:
        notes += _unequal(job.unequal)
    if job.cluster.gpus > 1 and not (job.unequal and job.unequal.names_speeds):
        notes.append(
            f"{job.cluster.slow_nodes:.1%} of nodes run {job.cluster.slow_node_factor - 1:.0%} slow, and a step "
            "waits for its slowest GPU."
        )
    if (here := job.cluster.domain) < job.cluster.node.domain < job.cluster.gpus:
        notes.append(
            f"The job takes {here} GPUs of each scale-up domain of {job.cluster.node.domain}, as a scheduler does that fills "
            "domains evenly (Slurm's --segment)."
        )
    if job.cluster.placement is not None and network == CLOSED:
        notes.append("--network closed does not read cluster.placement: nodes count from the first on. --network flow does.")
    unread = unread_fields(job.cluster.fabric, network)
    if unread:
        notes.append(
            f"--network {network} does not read {', '.join(f'cluster.fabric.{name}' for name in unread)}; --network packet does."
        )
    if MEASURED_HOST in runtime.host.source:
        notes.append(f"The host's seconds are {runtime.host.source}.")
    if plan.dp is None and job.dp > 1:
        notes.append(f"Data parallelism fills the cluster: dp = {job.dp}.")
    return tuple(notes)


def _idle_window(job: Job) -> list[str]:
    """Says of a sliding window that it saves nothing, and why."""
    window = job.model.window
    if window is None or not any(kind.local for kind in job.model.kinds):
        return []
    if job.kernel_runtime.attention != "flash":
        return [
            f"The window of {window} tokens saves nothing: without flash attention all scores are computed, and a mask hides those "
            "outside of it. Write --set runtime.attention=flash."
        ]
    if window >= job.plan.seq:
        return [f"The window of {window} tokens saves nothing: a sequence has {job.plan.seq}."]
    return []


def _unequal(unequal: Unequal) -> list[str]:
    """How ranks that differ are treated."""
    notes = ["Ranks that compute in one tensor, context or expert group go at the pace of the slowest of them."]
    if unequal.names_speeds:
        notes.append("The job says which GPUs are slow, so the cluster's average of slow nodes does not count.")
    if unequal.jitter or unequal.documents or unequal.experts or unequal.pauses or unequal.links:
        notes.append(f"What chance decides is drawn from the job's seed; the step is the mean over {unequal.draws} such steps.")
    if unequal.pauses:
        notes.append("A host may be 1,024 launches ahead of its GPU, which hides pauses that are shorter than that.")
    return notes


def warnings(job: Job, memory: tuple[StageMemory, ...]) -> tuple[str, ...]:
    """Warnings about this job."""
    notes = []
    short = max(memory, key=lambda stage: stage.missing)
    if not short.fits:
        notes.append(
            f"Does not fit: stage {short.stage} needs {short.missing / 2**30:.1f} GiB more than its GPU has."
            if short.short == "GPU memory"
            else f"Does not fit: stage {short.stage} needs {short.missing / 2**30:.1f} GiB more {short.short} for each of its GPUs."
        )
    loading = loading_of(job)
    if loading is not None and not loading.fits:
        notes.append(loading.says[-1])
    domain, span = job.cluster.domain, job.plan.ep * job.plan.etp
    if span <= domain < job.cluster.gpus and domain % span:
        notes.append(
            f"Groups of {span} expert ranks straddle scale-up domains of {domain} GPUs. If the scheduler uses "
            f"{domain // span * span} of each, write --set cluster.node.scale_up.size={domain // span * span}."
        )
    ready = startup(job)
    if ready.seconds > LONG_START:
        notes.append(
            f"Each start waits {ready.seconds:,.0f} s for communication groups: {ready.groups:,} groups make "
            f"{ready.operations:.2g} operations on the {job.runtime.startup.store} store. Try "
            + ("runtime.startup.sync=members." if job.runtime.startup.sync == "all_ranks" else "runtime.startup.store=tcp_libuv.")
        )
    if plan_crosses_node(job):
        notes.append(
            f"Tensor parallelism {job.plan.tp} is wider than the scale-up domain of {job.cluster.node.scale_up.size} GPUs."
        )
    return tuple(notes)


def unanswered_notes(job: Job, profile: Profile, sources: Mapping[str, float]) -> tuple[str, ...]:
    """Says that a profile has no measurement of this job, with the usual reasons."""
    if any(source.startswith(f"{profile.name}: ") for source in sources):
        return ()
    table = profile.modules.data.table
    values = [f"{name} {', '.join(sorted(table[name].unique().to_pylist()))}" for name in ("mode", "dtype")]
    contents = ", ".join(values)
    return (
        f"{profile.name} has none of this job's kernels, sub-modules or layers, nor neighbours of them. It holds {contents}; "
        f"the job runs mode {job.runtime.launch}, dtype {job.runtime.precision}.",
    )


def plan_crosses_node(job: Job) -> bool:
    """Whether a tensor-parallel group leaves the scale-up domain."""
    return job.plan.tp > job.cluster.node.scale_up.size
