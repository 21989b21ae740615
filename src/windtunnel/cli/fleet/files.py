"""Verbs of `windtunnel fleet` that write files of other tools: a Grafana dashboard, a JobSet of Kubernetes."""

from __future__ import annotations

import json

import typer

from windtunnel.cli.shared.common import write
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.fleet.engines.kubernetes import JobSetOptions, jobset_text


def dashboard() -> None:
    from windtunnel.fleet.collect.dashboard import grafana_dashboard

    typer.echo(json.dumps(grafana_dashboard(), indent=2))


@bare_command_of(JobSetOptions, order=("name", "command"))
def jobset(asked: JobSetOptions) -> None:
    write(jobset_text(asked), asked.out, "--out")
