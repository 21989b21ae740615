"""Kernel times of a GPU: measure or import them, fit kernel models, and evaluate their transfer to other GPUs."""

from __future__ import annotations

from windtunnel.cli.verbs import Verbs

VERBS: Verbs = {
    "run": ("profile_run", "Measure layers of a model at a plan's shard shapes, their sub-modules, and a step."),
    "sweep": ("profile_sweep", "Measure kernels one by one: products, attention, norms, optimizers, copies, launches."),
    "import": ("profile_import", "Other people's measurements as a dataset."),
    "export": ("profile_export", "A dataset as CSV."),
    "fit": ("fit_kernels", "Kernel constants from datasets of one GPU."),
    "show": ("profile_show", "What a dataset holds."),
    "gains": ("profile_gains", "What compiling and CUDA graphs gain, shape by shape."),
    "transfer": ("fit_transfer", "Each measured GPU predicted from the others: three methods compared."),
}
"""The verbs of `windtunnel profile`; see `cli/verbs.py`."""
