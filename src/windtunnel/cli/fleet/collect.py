"""`windtunnel fleet collect --dir FOLDER`: takes what the nodes of a job send, keeps it, answers questions. `windtunnel fleet ship
FOLDER --collector URL`: sends what the ranks of this node write to the collector. Verbs of `windtunnel fleet` that write files
of other tools: a Grafana dashboard, a JobSet of Kubernetes.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Annotated

import typer

from windtunnel.cli.shared.common import write
from windtunnel.fleet.engines.kubernetes import JobSetOptions, jobset_text


def command(
    dir: Annotated[str, typer.Option("--dir", "-d", metavar="FOLDER", help="Where the run is stored; made if missing.")],
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="TCP port; 0: a free one.")] = 8470,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    unix: Annotated[
        str | None, typer.Option("--unix", metavar="SOCKET", help="Listen on a Unix socket instead, which only its owner can open.")
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file", metavar="FILE", help="Shared secret; default: $WINDTUNNEL_FLEET_TOKEN, else the folder's own."
        ),
    ] = None,
    secrets: Annotated[
        str | None,
        typer.Option("--secrets", metavar="DIR", help="TLS: the folder of certificate, key and token; made if missing."),
    ] = None,
    db: Annotated[
        str | None, typer.Option("--db", metavar="URL", help="Database of the index; default: SQLite in the folder.")
    ] = None,
    keep_days: Annotated[float, typer.Option("--keep-days", min=0, help="Days that sections are kept.")] = 7.0,
    keep_gib: Annotated[float, typer.Option("--keep-gib", min=0, help="GiB of sections that are kept.")] = 200.0,
    keep_summaries: Annotated[float, typer.Option("--keep-summaries", min=0, help="Days that summaries are kept.")] = 365.0,
    otlp: Annotated[str | None, typer.Option("--otlp", metavar="URL", help="Send spans to an OTLP/HTTP receiver.")] = None,
    otlp_ranks: Annotated[str, typer.Option("--otlp-ranks", metavar="R,R", help="Ranks whose sections become spans.")] = "0",
) -> None:
    from windtunnel.base.errors import SpecError
    from windtunnel.fleet.collect.policy import CollectPolicy
    from windtunnel.fleet.collect.serve import serve
    from windtunnel.fleet.wire.secrets import local_token, token_of
    from windtunnel.fleet.wire.timers import apply_timers

    try:
        ranks = [int(part) for part in otlp_ranks.split(",") if part]
    except ValueError as error:
        raise SpecError("--otlp-ranks", otlp_ranks, "numbers with commas", "For example --otlp-ranks 0,8.") from error
    policy = CollectPolicy(
        raw_seconds=keep_days * 86400, raw_bytes=round(keep_gib * (1 << 30)), summary_seconds=keep_summaries * 86400
    )
    policy = apply_timers(policy, "collect")
    if secrets is not None and (unix is not None or token_file is not None):
        other = "--unix" if unix is not None else "--token-file"
        raise SpecError("--secrets", secrets, f"--secrets without {other}", "The secrets have a token; a socket needs no TLS.")
    token = token_of(token_file) if secrets is None else None
    _allow_many_files()

    def tell(address: str) -> None:
        typer.echo(f"collecting into {dir} at {address}")
        if sys.stdout.isatty() and address.startswith("http://") and (known := token or local_token(address)):
            typer.echo(f"in a browser: {address}/?token={known}")

    if token is None and secrets is None and unix is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise SpecError("--host", host, "an address of this machine alone, or secrets", "Give --secrets DIR.")
    serve(
        Path(dir), host, port, unix=Path(unix) if unix else None, token=token, secrets=Path(secrets) if secrets else None,
        db=db, policy=policy, otlp=otlp, otlp_ranks=ranks,
        ready=tell,
    )  # fmt: skip


def _allow_many_files() -> None:
    """As many connections as the machine allows: a node of a job has one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def ship(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the ranks of this node write their rings.")],
    collector: Annotated[str, typer.Option("--collector", "-c", metavar="URL", help="Address that the collector prints.")],
    interval: Annotated[
        float, typer.Option("--interval", min=0, help="Seconds between batches; 0: by the job's size, 1 to 10.")
    ] = 0.0,
    detail: Annotated[
        str, typer.Option("--detail", help="full: every row; summary: counts and times by step and section.")
    ] = "full",
    kib_per_second: Annotated[
        float,
        typer.Option("--kib-per-second", min=0, help="This node's limit; beyond it steps are sent as summaries. 0: no limit."),
    ] = 0.0,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="Shared secret; default: $WINDTUNNEL_FLEET_TOKEN.")
    ] = None,
    secrets: Annotated[
        str | None,
        typer.Option(
            "--secrets",
            metavar="DIR",
            help="For https: the collector's folder or secrets.json; default: $WINDTUNNEL_FLEET_SECRETS.",
        ),
    ] = None,
) -> None:
    from windtunnel.fleet.ship import ShipPolicy, ship
    from windtunnel.fleet.wire.secrets import token_of

    policy = ShipPolicy(interval=interval, detail=detail, bytes_per_second=kib_per_second * 1024)
    done = ship(Path(folder), collector, policy, token_of(token_file), secrets)
    typer.echo(
        f"sent {done.rows} rows in {done.batches} batches of {done.bytes} bytes; {done.lost} lost, {done.reduced} as summaries",
        err=True,
    )


def dashboard() -> None:
    from windtunnel.fleet.collect.dashboard import grafana_dashboard

    typer.echo(json.dumps(grafana_dashboard(), indent=2))


def jobset(asked: JobSetOptions) -> None:
    write(jobset_text(asked), asked.out, "--out")
