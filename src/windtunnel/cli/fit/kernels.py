"""`windtunnel fit kernels FILE... -o NAME.json`, also called `windtunnel profile fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError
from windtunnel.calibrate.options import KernelFitCommandOptions
from windtunnel.cli.shared.common import names_of, notes, write_json
from windtunnel.cli.shared.options import bare_command_of

if TYPE_CHECKING:
    from rich.table import Table

    from windtunnel.calibrate.kernels.fit import Use


EXAMPLES = """\b
Examples:
  windtunnel fit kernels kernels.parquet -o my-gpu.json     then: windtunnel predict JOB --kernels my-gpu.json
  windtunnel fit kernels a.parquet b.parquet --only gemm --from h100-sxm-80gb -o my-gpu.json
"""


@bare_command_of(KernelFitCommandOptions, order=("data", "out", "gpu"))
def command(asked: KernelFitCommandOptions) -> None:
    files, out, json = names_of(asked.data), asked.out, asked.json
    if not out.endswith(".json"):
        raise SpecError("--out", out, "a name that ends in .json")
    from windtunnel.cli.shared.progress import stoppable
    from windtunnel.fit import kernels, save_kernels
    from windtunnel.records import read_any

    data = [read_any(file) for file in files]
    for file, each in zip(files, data, strict=True):
        if asked.gpu is not None and each.about.gpu != asked.gpu:
            raise SpecError(f"{file}: about.gpu", each.about.gpu, asked.gpu, "Leave --gpu out, or give that GPU's dataset.")
    with stoppable("fitting") as report:
        fitted = kernels(data, relative=asked.relative, only=asked.only, report=report)
    save_kernels(fitted, out)
    answer = fitted.as_dict()
    if json is not None:
        write_json({"file": out, **answer}, json)
    if json == "-" or asked.quiet:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("errors of rows held out of the fit")
    for name in ("rows", "median %", "90 % below", "bias %"):
        table.add_column(name, justify="right")
    for row in answer["held_out"]:
        table.add_row(
            row["what"], f"{row['rows']:,}", f"{row['median_pct']:.1f}", f"{row['p90_pct']:.1f}", f"{row['bias_pct']:+.1f}"
        )
    console = Console()
    console.print(f"{fitted.kernels.id}: {out}", highlight=False, markup=False)
    console.print(table)
    console.print(_uses(fitted.uses))
    for message in fitted.messages:
        notes().print(message, markup=False)


def _uses(uses: list[Use]) -> Table:
    """Each class: rows, rows that a fit needs, and the origin of its constants."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("class", "rows", "needed", "used"):
        table.add_column(name, justify="right" if name in ("rows", "needed") else "left")
    for each in uses:
        table.add_row(each.what, f"{each.rows:,}", str(each.needed), each.used)
    return table
