"""Kernel times of a GPU: measure or import them, fit kernel models, and evaluate their transfer to other GPUs."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "run": ("profile.run", "Measure layers of a model at a plan's shard shapes, their sub-modules, and a step."),
    "sweep": ("profile.sweep", "Measure kernels one by one: products, attention, norms, optimizers, copies, launches."),
    "host": ("profile.datasets:host", "What a framework's Python costs the host: a layer, an update, a call. Needs no GPU."),
    "import": ("profile.datasets:import_times", "Other people's measurements as a dataset."),
    "export": ("profile.datasets:export", "A dataset as CSV."),
    "fit": ("fit:kernels", "Kernel constants from datasets of one GPU."),
    "show": ("profile.datasets:show", "What a dataset holds."),
    "gains": ("profile.datasets:gains", "What compiling and CUDA graphs gain, shape by shape."),
    "transfer": ("fit:transfer", "Each measured GPU predicted from the others: three methods compared."),
}
"""The verbs of `windtunnel profile`; see `cli/shared/verbs.py`."""
