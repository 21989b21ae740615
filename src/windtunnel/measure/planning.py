"""The plan: what is measured within the budget for the predictions of a job, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import replace
from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.units import parse_budget, show_size, show_time
from windtunnel.measure.reasons import CALLS, reasons_of
from windtunnel.memory import memory_of
from windtunnel.memory.state import state_bytes_of
from windtunnel.profile.campaign import STORAGE, Campaign
from windtunnel.profile.case import of_job
from windtunnel.profile.kernels import CLASSES
from windtunnel.profile.plan_slice import PlanSlice
from windtunnel.profile.storage.run import RANKS
from windtunnel.spec import Job, load_gpu, load_job
from windtunnel.spec.loading.files import names
from windtunnel.workload import build, parameter_count

if TYPE_CHECKING:
    from windtunnel.records import About

SHORT = 300.0
"""s. A shorter budget goes to layers first: they say the most of a step for their time."""

LAYERS = {True: 0.5, False: 0.3}
"""Share of the budget for layers, where it is short and where it is not."""

MODES = 240.0
"""s. From this budget on a GPU also runs compiled and as CUDA graphs; on a CPU a compiler takes minutes for a layer."""

STARTING = 15.0
"""s that a few calls between ranks take with the start of their processes."""

FILES = {True: 0.08, False: 0.05}
"""Share of the budget for checkpoints and samples of tokens, where it is short and where it is not."""

WRITERS = 4
"""Ranks that write at once at least, whatever the job has on a node: how they share a disk is what is asked."""

FRAMEWORK, BASE, SEQ = "torchtitan", "h100-ib", 2048
"""Of a model that is given alone, on the machine that is measured: its runtime, the machine that it replaces, most tokens."""

FAMILIES = {"elementwise": ("activation", "rope", "residual")}
"""Kind of operator -> the classes of kernels that are measured for it."""

ALWAYS = ("norm", "embedding", "optimizer", "reduce", "copy")
"""Classes that are measured whatever their share: few cases, and every job has them."""


def seconds_of(text: str | float, option: str = "--budget") -> float:
    """A time as the command line says it, in s. SpecError for anything else."""
    try:
        return parse_budget(text)
    except ValueError as error:
        raise SpecError(option, text, "a time such as 8m, 90s or 1h") from error


def asked_job(job: str | None, model: str | None, sets: Sequence[str]) -> Job:
    """The job whose predictions are asked; of a model alone, by name or as a configuration of another tool, one rank of it.
    SpecError where there is none, or a model beside a job."""
    if (job is None) == (model is None):
        given = Nothing() if job is None else job
        raise SpecError("JOB", given, "a job, or --model NAME", "Such as: windtunnel measure plan llama3-8b-8xh100 --budget 8m.")
    from windtunnel.jobs.load import load_described_job

    if job is not None:
        try:
            return load_described_job(job, list(sets)).job
        except SpecError as error:
            if error.path != "--on":
                raise
    alone = str(job or model)
    if alone in names("models"):
        table = {
            "name": alone, "model": alone, "plan": {"micro_batch": 1, "global_batch": 1, "seq": SEQ},
            "runtime": {"framework": FRAMEWORK}, "cluster": {"base": BASE, "gpus": 1},
        }  # fmt: skip
        return load_job(table, list(sets))
    if model is not None and not Path(alone).is_file():
        raise UnknownName("--model", alone, names("models"))
    own = ["cluster.gpus=1", "plan.micro_batch=1", "plan.global_batch=1", f"runtime.framework={FRAMEWORK}"]
    longest = load_described_job(alone, [*own, "plan.seq=1", *sets], on=BASE).job.model.max_seq
    return load_described_job(alone, [*own, f"plan.seq={min(SEQ, longest)}", *sets], on=BASE).job


def described_gpu(gpu: str, device: str, threads: int) -> tuple[str, str, About | None]:
    """The GPU's id, what PyTorch calls the device, and its description where it is this machine's and not in the catalogue.

    SpecError where `auto` finds no PyTorch, UnknownName for a GPU that is none.
    """
    if gpu != "auto":
        return load_gpu(gpu).id, device, None
    from windtunnel.profile.datasheet import about
    from windtunnel.profile.device import open_device

    there = open_device(device)
    if not there.cuda:
        there.torch.set_num_threads(threads)
    if there.in_catalogue:
        return there.gpu, "cuda", None
    return there.gpu, "cuda" if there.cuda else "cpu", about(there)


def on_machine(job: Job, gpu: str, described: About | None) -> Job:
    """The job on the GPU that is measured: its own machine where that has it, else bare devices."""
    if job.cluster.gpu.id == gpu:
        return job
    if gpu in names("gpus"):
        node = job.cluster.node.model_copy(update={"gpu": load_gpu(gpu)})
        return job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})})
    if described is None:
        raise SpecError("--gpu", gpu, "a GPU of the catalogue, or auto")
    from windtunnel.compute.bench import gpu_of, on_bench

    there = on_bench(job, gpu_of(described), described)
    # a library of CUDA has no kernels there: its own curves answer
    return there.model_copy(update={"runtime": there.runtime.model_copy(update={"attention_library": None})})


def plan_of(
    job: Job,
    gpu: str,
    device: str,
    budget: float,
    ranks: int,
    threads: int,
    source: str,
    sets: Sequence[str],
    described: About | None,
) -> Campaign:
    """Slices in their order: layers first, kernels by their share of the stated error, then other modes and collectives."""
    there = on_machine(job, gpu, described)
    reasons = reasons_of([there])
    case, cuda = of_job(there), device != "cpu"
    measurable = {reason.what: reason for reason in reasons if reason.what in CLASSES or reason.what in FAMILIES}
    layers = LAYERS[budget < SHORT]
    first = (
        "layers first: the budget is short" if budget < SHORT else "what the kernels of a step add up to, and its parts by hooks"
    )
    slices = [PlanSlice("layers", "layers", case, layers, f"{case.model.name}: {first}")]
    calls = next((reason for reason in reasons if reason.what == CALLS), None)
    with_modes = cuda and budget >= MODES
    of_calls = min(0.25, max(0.1, STARTING / budget)) if ranks > 1 else 0.0
    rest = 1.0 - layers - of_calls - (0.2 if with_modes else 0.0)
    weights: dict[str, float] = {}
    for what, reason in measurable.items():
        family = FAMILIES.get(what, (what,))
        weights |= {name: reason.error / len(family) for name in family}
    weights |= {name: 0.0 for name in ALWAYS if name not in weights}
    said = "; ".join(reason.in_words() for reason in measurable.values())
    holds = max(stage.allocated for stage in memory_of(there, build(there)))
    slices.append(PlanSlice("kernels", "kernels", case, rest, said, tuple(weights), tuple(weights.values()), step_bytes=holds))
    if with_modes:
        few = tuple(name for name in weights if name in ("gemm", "norm", "elementwise", "activation", "cross_entropy", "rope"))
        others = ("compile", "cuda_graph")
        why = "what compiling and CUDA graphs change, and whether they compute the same"
        slices.append(PlanSlice("kernels-modes", "kernels", case, 0.1, why, few, tuple(weights[name] for name in few), others))
        slices.append(PlanSlice("layers-modes", "layers", case, 0.1, why, modes=others))
    if ranks > 1:
        why = calls.in_words() if calls is not None else "for steps of several ranks, which no kernel says"
        gradient = round(4.0 * parameter_count(case.model))
        slices.append(PlanSlice("collectives", "collectives", case, of_calls, why, ranks=ranks, gradient_bytes=gradient))
    shares = {reason.what: reason.error for reason in reasons}
    return Campaign(gpu, device, budget, tuple(slices), (source,), tuple(sets), threads if not cuda else 0, shares)


def with_storage(campaign: Campaign, job: Job, loader: bool, checkpoints: str | Path | None) -> Campaign:
    """The plan with files before its calls: checkpoints where the job states failures or their folder is given, samples of tokens
    where a job has a `loader`; without either as it is."""
    classes: tuple[str, ...] = ("checkpoint",) if job.reliability is not None or checkpoints is not None else ()
    classes += ("loader",) if loader else ()
    if not classes:
        return campaign
    stated = job.reliability.checkpoint.size if job.reliability is not None else None
    size, data = stated if stated is not None else state_bytes_of(job).total, job.runtime.data
    width = 2 if data.bytes_per_token <= 2 else 4
    why = {
        "checkpoint": f"a checkpoint of {show_size(size)}, {show_size(size / job.cluster.gpus)} of each rank, at assumed rates",
        "loader": f"samples of {job.plan.seq:,} tokens of {width} B, at assumed {show_size(data.storage)}/s and "
        f"{show_time(data.sample)} a sample",
    }  # fmt: skip
    share = FILES[campaign.budget < SHORT]
    part = PlanSlice(
        STORAGE, STORAGE, campaign.slices[0].case, share, "; ".join(why[name] for name in classes), classes,
        ranks=max(WRITERS, min(RANKS[-1], job.cluster.gpus_of_node)), folder="" if checkpoints is None else str(checkpoints),
        shard_bytes=size / job.cluster.gpus, token_bytes=width, workers=data.workers,
    )  # fmt: skip
    others = [replace(one, share=one.share * (1 - share)) for one in campaign.slices]
    place = next((number for number, one in enumerate(others) if one.kind == CALLS), len(others))
    return replace(campaign, slices=(*others[:place], part, *others[place:]))


def unmeasured_parts(campaign: Campaign) -> tuple[str, ...]:
    """What the predictions rest on and the plan cannot measure, by name."""
    covered = {name for part in campaign.slices for name in part.classes} | {part.kind for part in campaign.slices}
    return tuple(what for what, error in campaign.shares.items() if error > 0.005 and not {what, *FAMILIES.get(what, ())} & covered)
