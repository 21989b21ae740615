"""`windtunnel measure from TRACE -o FILE.parquet`."""

from __future__ import annotations

from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.measure.options import MeasureFromOptions


@command_of(MeasureFromOptions, order=("trace", "out"))
def command(asked: MeasureFromOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import from_trace
    from windtunnel.records.contents_sheet import dataset_sheet
    from windtunnel.records.kernel_dataset import contents_of

    with show_spinner("reading the trace"):
        data = from_trace(asked.trace, out=asked.out, gpu=asked.gpu)
    outputs.show(dataset_sheet(data), contents_of(data))
