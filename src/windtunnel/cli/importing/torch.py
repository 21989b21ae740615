"""`windtunnel import torch TARGET`: a PyTorch module as a graph model, or as a job on a machine."""

from __future__ import annotations

from windtunnel.api.jobs import import_torch_of
from windtunnel.cli.importing.job import write_job
from windtunnel.cli.shared.common import print_list, show_spinner
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.jobs.imports import put_on_machine
from windtunnel.jobs.options import TorchCommandOptions
from windtunnel.spec import dump_job


@bare_command_of(TorchCommandOptions)
def command(asked: TorchCommandOptions) -> None:
    target, on, sets, out = asked.target, asked.on, list(asked.sets), asked.out
    with show_spinner(f"tracing {target}"):
        imported = import_torch_of(asked)
    if on is None and not sets:
        write_job(f"{target} ({imported.format})", imported, None, out)
    else:
        loaded = put_on_machine(imported, on, sets)
        write_job(f"{target} ({imported.format})", loaded, dump_job(loaded.job), out)
    if out != "-":
        print_list(imported.built, f"{imported.model.name} in {out}")
        print_list(imported.assumed, "assumed")
