"""`windtunnel export JOB`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.base.errors import UnknownName
from windtunnel.cli.common import Megatron, ModelFile, On, Sets, Source, writable, write
from windtunnel.cli.source import job_of
from windtunnel.spec import dump_job

FORMATS = ("toml", "json")


EXAMPLES = """\b
Examples:
  windtunnel export llama3-8b-8xh100 --set plan.micro_batch=2 -o job.toml
"""


def command(
    job: Source = None,
    sets: Sets = None,
    form: Annotated[str, typer.Option("--format", help=", ".join(FORMATS))] = "toml",
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE|-", help="Where it goes.")] = "-",
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
) -> None:
    if form not in FORMATS:
        raise UnknownName("--format", form, FORMATS)
    writable(("--out", out))
    loaded = job_of(job, sets, on, model, megatron)
    loaded.tell()
    if form == "toml":
        write(dump_job(loaded.job), out, "--out")
    else:
        import tomllib

        from windtunnel.report.json import dumps

        write(dumps(tomllib.loads(dump_job(loaded.job))), out, "--out")
