"""`windtunnel fleet dashboard`: a Grafana dashboard for the metrics of collectors."""

from __future__ import annotations

import json

import typer

EXAMPLES = """\b
Examples:
  windtunnel fleet dashboard > grafana.json
"""


def command() -> None:
    from windtunnel.fleet.collect.dashboard import grafana_dashboard

    typer.echo(json.dumps(grafana_dashboard(), indent=2))
