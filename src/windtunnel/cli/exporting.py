"""`windtunnel export FORMAT JOB`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli.shared.common import Megatron, ModelFile, On, Sets, Source, notes, print_list, writable
from windtunnel.cli.shared.job import job_of, tell_source
from windtunnel.exports.exporters import EXPORTERS, cluster_exporter_of, export_job, exporter_of, save
from windtunnel.jobs.own import load_cluster_alone

EXAMPLES = """\b
Examples:
  windtunnel export toml llama3-8b-8xh100 --set plan.micro_batch=2 -o job.toml
  windtunnel export astra-sim h100-ib --set cluster.gpus=64 -o astra
"""


def command(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="; ".join(f"{w.name}: {w.what}" for w in EXPORTERS) + ".")],
    job: Source = None,
    sets: Sets = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the format; repeatable.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE|FOLDER|-", help="Where to write it; a folder if there are several files.")
    ] = "-",
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
) -> None:
    exporter_of(form)  # refuses a wrong name before the job is read
    options = dict(_pair(text) for text in option or [])
    machine = load_cluster_alone(job, sets) if on is None and model is None and megatron is None else None
    if machine is not None:
        written = cluster_exporter_of(form).export_cluster(machine, options)
    else:
        loaded = job_of(job, sets, on, model, megatron, of_a_run=True)
        tell_source(loaded)
        written = export_job(form, loaded.job, options, loaded.imported)
    print_list(written.assumed, "assumed")
    print_list(written.left_out, f"not said in {form}")
    print_list(written.changed, f"changed against {job}")
    if out != "-":
        if len(written.files) == 1:
            writable(("--out", out))
        try:
            paths = save(written, Path(out))
        except OSError as error:
            raise FileError("--out", out, "a place that can be written", f"{error.strerror}.") from error
        notes().print(f"{len(paths)} files in {out}" if len(paths) > 1 else f"wrote {out}", markup=False)
        return
    if len(written.files) > 1:
        raise SpecError("--out", "-", "a folder", f"{form} has {len(written.files)} files here.")
    (data,) = written.files.values()
    sys.stdout.flush()
    sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode("utf-8"))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SpecError("--option", text, "NAME=VALUE")
    return name.strip(), value.strip()
