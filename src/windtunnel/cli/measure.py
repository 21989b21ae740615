"""A machine that nobody measured: what to measure for the predictions that are asked, its run, its check, and its use."""

from __future__ import annotations

from windtunnel.cli.shared.common import notes, show_spinner
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.measure.options import (
    MeasureFromOptions,
    MeasureListOptions,
    MeasurePlanOptions,
    MeasureRunOptions,
)


def plan(asked: MeasurePlanOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import plan
    from windtunnel.measure.sheet import plan_sheet

    with show_spinner("planning"):
        made = plan(**vars(asked))
    outputs.show(plan_sheet(made, "" if asked.out is None else str(asked.out)), made.as_dict())


def run(asked: MeasureRunOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import run
    from windtunnel.measure.sheet import cells_sheet

    def tell(line: str) -> None:
        notes().print(line, markup=False, highlight=False, soft_wrap=True)

    cell = run(asked.folder, budget=asked.budget, only=asked.only, tell=tell)
    outputs.show(cells_sheet((cell,)), cell.as_dict())


def list_measured(asked: MeasureListOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import list_cells
    from windtunnel.measure.sheet import cells_sheet

    cells = list_cells(asked.folder)
    outputs.show(cells_sheet(cells), {"cells": [cell.as_dict() for cell in cells]})


def from_trace(asked: MeasureFromOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import from_trace
    from windtunnel.records.kernel_dataset import contents_of, dataset_sheet

    with show_spinner("reading the trace"):
        data = from_trace(asked.trace, out=asked.out, gpu=asked.gpu)
    outputs.show(dataset_sheet(data), contents_of(data))
