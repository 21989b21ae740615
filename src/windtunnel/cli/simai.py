"""`windtunnel simai WORKLOAD`: the table that SimAI's analytical mode prints, and where it departs from its own formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.cli.shared.common import Json, Quiet, print_list, writable, write, write_json

if TYPE_CHECKING:
    from windtunnel.replay.simai.run import SimaiRun

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
    from windtunnel.replay.simai.run import run_simai

    ran = run_simai(
        workload,
        gpus,
        ratios,
        name,
        gpus_per_server=servers,
        nics_per_server=nics,
        nvlink=nvlink,
        nic=nic,
        gpu_type=gpu_type.upper(),
        nic_type=nic_type.upper(),
        dp_overlap=dp,
        ep_overlap=ep,
        tp_overlap=tp,
        pp_overlap=pp,
    )
    if out is not None:
        write(ran.csv, out, "--out")
    if json is not None:
        write_json(ran.as_dict(), json)
    print_list(ran.broken, "broken")
    missing = ", ".join(ran.assumed_keys)
    print_list([f"{missing} are 1: the first line does not say; SimAI 1.6 ends with SIGFPE there"] if missing else [], "assumed")
    if not quiet and "-" not in (json, out):
        _show(ran)


def _show(ran: SimaiRun) -> None:
    for key, value in ran.summary.items():
        typer.echo(f"{key:>20}  {value}")
    if ran.departures:
        typer.echo("\nWhere this departs from SimAI's own formulas, and the us that the total would change by:")
    for one in ran.departures:
        effect = "not known" if one.microseconds is None else f"{one.microseconds:+,.0f} us"
        typer.echo(f"  {effect:>16}  {one.count:,} x {one.what}")
