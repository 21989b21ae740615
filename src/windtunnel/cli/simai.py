"""`windtunnel simai WORKLOAD`: the table that SimAI's analytical mode prints, and where it departs from its own formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from windtunnel.cli.shared.common import Json, Quiet, print_list, writable, write, write_json

EXAMPLES = """\b
Examples:
  windtunnel simai workload.txt --gpus 9216 --nvlink 360 --nic 48.5
  windtunnel simai workload.txt --gpus 128 --nvlink 150 --nic 23.5 --dp-overlap 0.5 --out EndToEnd.csv
"""


def command(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A workload that AICB wrote, plain or gzip.")],
    gpus: Annotated[int | None, typer.Option("--gpus", "-g", help="GPUs; default: all_gpus of the first line.")] = None,
    servers: Annotated[int, typer.Option("--gpus-per-server", help="GPUs of a server.")] = 8,
    nics: Annotated[int, typer.Option("--nics-per-server", help="NICs of a server.")] = 8,
    nvlink: Annotated[float, typer.Option("--nvlink", help="GB/s of NVLink for each GPU; 0: by --gpu-type.")] = 0.0,
    nic: Annotated[float, typer.Option("--nic", help="GB/s of a NIC; 0: by --nic-type.")] = 0.0,
    gpu_type: Annotated[str, typer.Option("--gpu-type", help="A100, A800, H100, H800 or H20.")] = "H100",
    nic_type: Annotated[str, typer.Option("--nic-type", help="CX6, CX7 or BF3.")] = "CX7",
    dp: Annotated[float, typer.Option("--dp-overlap", help="Hidden share of data-parallel calls.")] = 0.0,
    ep: Annotated[float, typer.Option("--ep-overlap", help="Hidden share of expert-parallel calls.")] = 0.0,
    tp: Annotated[float, typer.Option("--tp-overlap", help="Hidden share of tensor-parallel calls.")] = 0.0,
    pp: Annotated[float, typer.Option("--pp-overlap", help="Hidden share of messages between stages; 1 as in SimAI's code.")] = 1.0,
    ratios: Annotated[
        str | None, typer.Option("--ratios", metavar="FOLDER", help="nic_ratio.csv, nvlink_ratio.csv, ata_ratio.csv.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run in the table; default: of the file.")] = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE|-", help="Write EndToEnd.csv.")] = None,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json), ("--out", out))
    from windtunnel.base.errors import SpecError
    from windtunnel.formats.simulators.simai.ratios import DEFAULT, read_ratios
    from windtunnel.formats.simulators.simai.workload import read_workload
    from windtunnel.replay.simai.arithmetic import end_to_end
    from windtunnel.replay.simai.differences import differences
    from windtunnel.replay.simai.setting import SimaiSetting
    from windtunnel.replay.simai.table import csv_lines

    path = Path(workload)
    source = read_workload(path)
    count = gpus if gpus is not None else source.keys.get("gpus", 0)
    if not count:
        raise SpecError("--gpus", gpus, "a number of GPUs: the first line of the workload has no all_gpus")
    setting = SimaiSetting(count, servers, nics, nvlink, nic, gpu_type.upper(), nic_type.upper(), dp, ep, tp, pp)
    tables = DEFAULT if ratios is None else read_ratios(Path(ratios))
    result = end_to_end(source, setting, tables)
    run = name if name is not None else path.name.split(".txt")[0]
    departures = differences(source, setting, result, tables)
    if out is not None:
        write("\n".join(csv_lines(result, run)) + "\n", out, "--out")
    if json is not None:
        write_json(_table(result, run, departures, source.broken), json)
    print_list(source.broken, "broken")
    missing = [key for key in ("ep", "pp", "vpp", "ga") if key not in source.keys]
    print_list(
        [f"{', '.join(missing)} are 1: the first line does not say; SimAI 1.6 ends with SIGFPE there"] if missing else [], "assumed"
    )
    if not quiet and "-" not in (json, out):
        _show(result, run, departures)


def _table(result: Any, run: str, departures: Any, broken: tuple[str, ...]) -> dict[str, Any]:
    from windtunnel.replay.simai.table import summary_of

    return {
        "schema": "windtunnel.simai/1",
        "summary": summary_of(result, run),
        "microseconds": {
            "dp": result.dp, "dp_ep": result.dp_ep, "tp": result.tp, "ep": result.ep, "pp": result.pp, "bubble": result.bubble,
            "compute": result.compute, "exposed": result.exposed, "total": result.total,
        },
        "differences": [one.as_dict() for one in departures],
        "layer_rows": len(result.lines),
        "broken": list(broken),
    }  # fmt: skip


def _show(result: Any, run: str, departures: Any) -> None:
    from windtunnel.replay.simai.table import summary_of

    for key, value in summary_of(result, run).items():
        typer.echo(f"{key:>20}  {value}")
    if departures:
        typer.echo("\nWhere this departs from SimAI's own formulas, and the us that the total would change by:")
    for one in departures:
        effect = "not known" if one.microseconds is None else f"{one.microseconds:+,.0f} us"
        typer.echo(f"  {effect:>16}  {one.count:,} x {one.what}")
