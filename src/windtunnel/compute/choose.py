"""Chooses the fitted constants of a GPU."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.compute.curves import Choice, KernelCurves, Provenance
from windtunnel.compute.forward import with_sustained
from windtunnel.compute.kernel_file import available, is_path, load, measured_attention
from windtunnel.compute.processor import is_processor, neutral
from windtunnel.compute.transfer.law import carried_basis, carry_attention, carry_curves, has_same_figures
from windtunnel.spec import load_gpu
from windtunnel.spec.loading.files import names
from windtunnel.spec.machine import GPU

DEFAULT = "h100-sxm-80gb"
"""GPU whose curves are used for an architecture without a file: the best documented recent one. Such estimates are `assumed`."""

BY_ARCHITECTURE = {
    "volta": "a100-sxm-80gb",
    "turing": "a100-sxm-80gb",
    "ampere": "a100-sxm-80gb",
    "ada": "a100-sxm-80gb",
    "hopper": "h100-sxm-80gb",
    "blackwell": "b200-sxm-180gb",
    "blackwell-rtx": "a100-sxm-80gb",
}
"""Architecture -> the GPU whose curves are used for GPUs without a file.

Tensor cores of Blackwell's RTX boards read registers, as Ampere's do, and have no memory of their own as B200's have.
"""


def choose(gpu: GPU) -> Choice:
    """The constants for `gpu`: those of its own file, or another GPU's, transferred by `transfer.carry`.

    `GPU.kernels_from` names a user's file or the GPU to carry from; without it the architecture's GPU is taken, then `DEFAULT`. A
    name without constants counts as none. A GPU whose data sheet was changed by a job is treated as another GPU. Raises FileError
    for a path that is not such a file.
    """
    return _with_attention(_choose_kernels(gpu), gpu)


def _choose_kernels(gpu: GPU) -> Choice:
    """The same without the attention kernels that stand in `kernel_file.ATTENTION`."""
    own = load(str(gpu.kernels_from)) if is_path(gpu.kernels_from) else _load_sustained(gpu.id) if gpu.id in available() else None
    if own is not None and own.id == gpu.id and has_same_figures(gpu, own):
        return Choice(own, Provenance.MODELLED)
    if own is None and is_processor(gpu.architecture):
        return Choice(neutral(gpu), Provenance.ASSUMED)
    stems = [stem for stem in (gpu.kernels_from, BY_ARCHITECTURE.get(gpu.architecture)) if stem in available()]
    if own is None and stems:
        own = _load_sustained(str(stems[0]))
    if own is None:
        return carry_curves(load(DEFAULT), gpu, Provenance.ASSUMED)
    carried = carry_curves(own, gpu)
    if is_path(gpu.kernels_from) or gpu.id not in names("gpus") or not _has_listed_sheet(gpu):
        return carried
    kernels = with_sustained(carried.kernels, gpu.id)
    return carried if kernels is carried.kernels else replace(carried, kernels=kernels, own=("gemm",))


def _with_attention(choice: Choice, gpu: GPU) -> Choice:
    """`choice` with the attention kernels that were measured on `gpu`, or carried from the nearest GPU of its architecture: the one
    with its compute capability, else the first. A kernel that the GPU's own file has stays."""
    near = measured_attention(gpu.architecture)
    if not near or is_path(gpu.kernels_from):
        return choice
    base = min(map(load_gpu, near), key=lambda each: each.capability != gpu.capability)
    own = base.id == gpu.id and _has_listed_sheet(gpu)
    kept = choice.kernels.attention if choice.provenance is Provenance.MODELLED else {}
    found = {library: each for library, each in near[base.id].items() if library not in kept}
    curves = {library: ways if own else carry_attention(ways, base, gpu) for library, (ways, _) in found.items()}
    tables = {f"attention.{library}": basis if own else carried_basis(basis, base.id) for library, (_, basis) in found.items()}
    kernels = replace(choice.kernels, attention=choice.kernels.attention | curves, tables={**choice.kernels.tables, **tables})
    return replace(choice, kernels=kernels, own=(*choice.own, *tables))


def _load_sustained(name: str) -> KernelCurves:
    """The catalogue's curves of a GPU, with its products under sustained power."""
    return with_sustained(load(name), name)


def _has_listed_sheet(gpu: GPU) -> bool:
    """Whether no job changed the figures of the GPU's entry that the laws use."""
    listed = load_gpu(gpu.id)
    return all(getattr(gpu, name) == getattr(listed, name) for name in ("peak", "memory_bandwidth", "sms", "power_w"))
