"""The GPU that a file of constants was fitted on."""

from __future__ import annotations

from pydantic import ValidationError

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.compute.curves import KernelCurves
from windtunnel.spec import load_gpu
from windtunnel.spec.machine import GPU


def known_gpu(name: str) -> GPU | None:
    """The catalogue's entry, if it has one."""
    try:
        return load_gpu(name)
    except UnknownName:
        return None


def gpu_of(kernels: KernelCurves, path: str | None = None) -> GPU:
    """The GPU that a file of constants was fitted on; for a user's file (`path`), with its curves.

    Raises SpecError if neither the catalogue nor the file describes the GPU.
    """
    try:
        gpu = GPU(**kernels.datasheet) if kernels.datasheet else known_gpu(kernels.id)
    except (ValidationError, TypeError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SpecError("kernels.datasheet", reason, "fields of a GPU", "Fit it again with `windtunnel fit kernels`.") from None
    if gpu is None:
        raise SpecError(
            "kernels.id",
            kernels.id,
            "a GPU of the catalogue, or a file with a datasheet",
            "Fit it again with `windtunnel fit kernels`.",
        )
    return gpu if path is None else gpu.model_copy(update={"kernels_from": path})
