"""`windtunnel profile show FILE`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.outputs import Outputs, with_outputs


@with_outputs
def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A dataset of `windtunnel profile`, Parquet or CSV.")],
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.records import read_any
    from windtunnel.records.contents_sheet import dataset_sheet
    from windtunnel.records.kernel_dataset import contents_of

    data = read_any(file)
    outputs.show(dataset_sheet(data), contents_of(data))
