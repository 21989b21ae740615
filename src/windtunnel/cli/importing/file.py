"""`windtunnel import FILE...`: what other tools wrote, as a job, a cluster, a run or a graph of ours."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.importing.content import save, show
from windtunnel.cli.shared.common import Json, On, Sets, writable, write_json
from windtunnel.formats.reading import Content
from windtunnel.jobs.reading import join_call

EXAMPLES = """\b
Examples:
  windtunnel import config.json
  windtunnel import pretrain.sh --on h100-ib --set cluster.gpus=64 -o job.toml
  windtunnel import "MODEL_SIZE=8B TP=2 run.sh" --on h100-ib -o job.toml
  windtunnel import trace-rank*.json.gz -o last-night
"""


def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Files of one source: a configuration, a trace of each rank, logs, a topology."),
    ],
    on: On = None,
    sets: Sets = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="CLUSTER", help="The cluster that measured calls belong to.")
    ] = None,
    form: Annotated[str | None, typer.Option("--as", metavar="FORMAT", help="The format, if the content does not show it.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE|-", help="Where the result goes.")] = "-",
    json: Json = None,
) -> None:
    writable(("--json", json))
    from windtunnel.api.jobs import read
    from windtunnel.cli.shared.progress import bar

    files = join_call(files)
    with bar("reading") as shown:
        reading = read(*files, overrides=sets or (), on=on, cluster=cluster, format=form, progress=shown)
    if json is not None:
        write_json(reading.as_dict(), json)
    if reading.content is Content.JOB and reading.facts:
        from windtunnel.cli.importing.job import write_configuration  # here: a trace or a log needs no noun of a job

        if json != "-":
            write_configuration(", ".join(files), reading, out)
        return
    if json != "-":
        show(reading, files, None if out == "-" else out)
    if out != "-":
        save(reading, out)
