"""`windtunnel profile export FILE`: a dataset as CSV."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.common import writable, write


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A dataset, Parquet or CSV.")],
    csv: Annotated[str, typer.Option("--csv", metavar="FILE|-", help="Where the CSV goes; `profile import` reads it back.")] = "-",
) -> None:
    from windtunnel.records import read_any, to_csv

    writable(("--csv", csv))
    write(to_csv(read_any(file)), csv, "--csv")
