"""A machine that nobody measured: what to measure for the predictions that are asked, its run, its check, and its use."""

from __future__ import annotations

from windtunnel.cli.shared.common import notes, show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.verbs import Verbs
from windtunnel.measure.options import (
    MeasureCheckOptions,
    MeasureFromOptions,
    MeasureListOptions,
    MeasurePlanOptions,
    MeasureRunOptions,
    MeasureUseOptions,
)

VERBS: Verbs = {
    "plan": ("measure:plan", "What to measure within a budget for the predictions of a job, and why."),
    "run": ("measure:run", "Measure a plan within its budget, or go on with it."),
    "check": ("measure:check", "Whether predictions may rest on what was measured: held-out kernels, a step that no fit has seen."),
    "use": ("measure:use", "Make it the source of predictions: curves, a machine and jobs as files."),
    "list": ("measure:list_measured", "What was measured below a folder, with seals and checks."),
    "from": ("measure:from_trace", "The kernels of a trace of PyTorch's profiler as a dataset."),
}
"""The verbs of `windtunnel measure`; see `cli/shared/verbs.py`."""


@command_of(MeasurePlanOptions, order=("job", "model", "gpu", "budget", "out"))
def plan(asked: MeasurePlanOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import plan
    from windtunnel.measure.sheet import plan_sheet

    with show_spinner("planning"):
        made = plan(**vars(asked))
    outputs.show(plan_sheet(made, "" if asked.out is None else str(asked.out)), made.as_dict())


@command_of(MeasureRunOptions, order=("folder", "budget"))
def run(asked: MeasureRunOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import run
    from windtunnel.measure.sheet import cells_sheet

    def tell(line: str) -> None:
        notes().print(line, markup=False, highlight=False, soft_wrap=True)

    cell = run(asked.folder, budget=asked.budget, only=asked.only, tell=tell)
    outputs.show(cells_sheet((cell,)), cell.as_dict())


@command_of(MeasureCheckOptions, order=("folder",))
def check(asked: MeasureCheckOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import check
    from windtunnel.measure.sheet import check_sheet

    with show_spinner("checking"):
        checked = check(asked.folder, ranks=asked.ranks, budget=asked.budget)
    outputs.show(check_sheet(checked), checked.as_dict())


@command_of(MeasureUseOptions, order=("folder",))
def use(asked: MeasureUseOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import use
    from windtunnel.measure.sheet import used_sheet

    used = use(asked.folder, anyway=asked.anyway)
    outputs.show(used_sheet(used), used.as_dict())


@command_of(MeasureListOptions, order=("folder",))
def list_measured(asked: MeasureListOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import list_cells
    from windtunnel.measure.sheet import cells_sheet

    cells = list_cells(asked.folder)
    outputs.show(cells_sheet(cells), {"cells": [cell.as_dict() for cell in cells]})


@command_of(MeasureFromOptions, order=("trace", "out"))
def from_trace(asked: MeasureFromOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import from_trace
    from windtunnel.records.kernel_dataset import contents_of, dataset_sheet

    with show_spinner("reading the trace"):
        data = from_trace(asked.trace, out=asked.out, gpu=asked.gpu)
    outputs.show(dataset_sheet(data), contents_of(data))
