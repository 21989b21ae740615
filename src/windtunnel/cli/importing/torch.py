"""`windtunnel import torch TARGET`: a PyTorch module as a graph model, or as a job on a machine."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.importing.job import write_job
from windtunnel.cli.shared.common import On, Sets, print_list, show_spinner, writable
from windtunnel.formats.jobs.pytorch import import_torch
from windtunnel.jobs.imports import put_on_machine
from windtunnel.spec import dump_job


def command(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="FILE.py:factory, package.module:factory, or FILE.pt2.")],
    arg: Annotated[list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="An argument of the factory.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]SHAPE[:DTYPE]",
            help="An input, if the factory returns only a module, such as 8x3x224x224 or input_ids=2x4096:int64; "
            "the first dimension is the micro batch.",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Format of parameters and activations: bf16, fp16, fp32.")] = "bf16",
    tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="Tokens of a sample; 1 counts samples.")] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the model; default: the factory's.")] = "",
    on: On = None,
    sets: Sets = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE|-", help="Where the TOML goes.")] = "-",
) -> None:
    writable(("--out", out))
    with show_spinner(f"tracing {target}"):
        imported = import_torch(target, arg or (), given or (), dtype, tokens, name)
    if on is None and not sets:
        write_job(f"{target} ({imported.format})", imported, None, out)
    else:
        loaded = put_on_machine(imported, on, sets or [])
        write_job(f"{target} ({imported.format})", loaded, dump_job(loaded.job), out)
    if out != "-":
        print_list(imported.built, f"{imported.model.name} in {out}")
        print_list(imported.assumed, "assumed")
