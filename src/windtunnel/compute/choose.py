"""Chooses the fitted constants of a GPU."""

from __future__ import annotations

from windtunnel.compute.curves import Choice, Provenance
from windtunnel.compute.kernel_file import available, is_path, load
from windtunnel.compute.processor import is_processor, neutral
from windtunnel.compute.transfer.carry import carry_curves, has_same_figures
from windtunnel.spec.machine.cluster import GPU

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
    own = load(str(gpu.kernels_from)) if is_path(gpu.kernels_from) else load(gpu.id) if gpu.id in available() else None
    if own is not None and own.id == gpu.id and has_same_figures(gpu, own):
        return Choice(own, Provenance.MODELLED)
    if own is None and is_processor(gpu.architecture):
        return Choice(neutral(gpu), Provenance.ASSUMED)
    stems = [stem for stem in (gpu.kernels_from, BY_ARCHITECTURE.get(gpu.architecture)) if stem in available()]
    if own is None and stems:
        own = load(str(stems[0]))
    return carry_curves(load(DEFAULT), gpu, Provenance.ASSUMED) if own is None else carry_curves(own, gpu)
