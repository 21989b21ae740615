"""A machine that nobody measured: what to measure for the predictions that are asked, its run, its check, and its use."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "plan": ("measure.plan", "What to measure within a budget for the predictions of a job, and why."),
    "run": ("measure.run", "Measure a plan within its budget, or go on with it."),
    "check": ("measure.check", "Whether predictions may rest on what was measured: held-out kernels, a step that no fit has seen."),
    "use": ("measure.use", "Make it the source of predictions: curves, a machine and jobs as files."),
    "list": ("measure.listed", "What was measured below a folder, with seals and checks."),
    "from": ("measure.traced", "The kernels of a trace of PyTorch's profiler as a dataset."),
}
"""The verbs of `windtunnel measure`; see `cli/shared/verbs.py`."""
