"""From a GPU to seconds: measure it or import measurements, fit kernel models, judge how they carry to other GPUs."""

from __future__ import annotations

from windtunnel.cli.verbs import Verbs

VERBS: Verbs = {
    "sweep": ("profile_sweep", "Measure kernels one by one: products, attention, norms, optimizers, copies, launches."),
    "show": ("profile_show", "What a dataset holds."),
}
"""The verbs of `windtunnel profile`; see `cli/verbs.py`."""
