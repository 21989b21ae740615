"""Options of `windtunnel fleet run --nodes`: how a job is kept alive. Each says so first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

OF_NODES = "With --nodes:"


def _option(name: str, metavar: str | None, about: str, least: int | None = None) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(name, metavar=metavar, min=least, help=f"{OF_NODES} {about}")
    return made


PerNode = Annotated[int, _option("--nproc-per-node", "P", "processes on each node.", 1)]
Spares = Annotated[int, _option("--spares", "S", "tested nodes that wait.", 0)]
DriverDir = Annotated[Path | None, _option("--driver-dir", "DIR", "the driver's state; default RUN/driver.")]
Retries = Annotated[int, _option("--retries", None, "restarts in a row before the driver gives up.", 0)]
Rejoin = Annotated[bool, _option("--rejoin", None, "start a rank that died anew alone; for scripts with train_through_faults.")]
Shrink = Annotated[bool, _option("--shrink", None, "continue with fewer nodes if no spare is left.")]
EngineName = Annotated[str, _option("--engine", None, "what starts agents: local, slurm, ray, waiting.")]
DriverListen = Annotated[str, _option("--driver-listen", "HOST:PORT", "the driver's address for agents.")]
Tests = Annotated[list[str] | None, _option("--test", "NAME", "a self-test for spares; repeatable.")]
TestAfter = Annotated[bool, _option("--test-after", None, "also test the nodes of a fault before they are used again.")]
CheckpointDir = Annotated[Path | None, _option("--checkpoint", "DIR", "passed to ranks as WINDTUNNEL_FLEET_CHECKPOINT.")]
Limits = Annotated[list[str] | None, _option("--limit", "NAME=SECONDS", "seconds until a rule fires; repeatable.")]
ExpectStep = Annotated[str, _option("--expect-step", "JOB|LOW..HIGH", "report steps outside this range or the job's prediction.")]
Tee = Annotated[bool, _option("--tee", None, "print the ranks' output here too, each line with its rank.")]
Store = Annotated[str, _option("--store", "URL", "keep the driver's state in PostgreSQL instead of a file.")]
Webhook = Annotated[
    str,
    typer.Option(
        "--alarm-webhook", metavar="URL", envvar="WINDTUNNEL_FLEET_ALARM_WEBHOOK", show_envvar=True,
        help="Post each alarm, or with --nodes each incident, there: JSON, or as Slack or PagerDuty take it.",
    ),
]  # fmt: skip
LogRules = Annotated[
    Path | None,
    typer.Option("--log-rules", metavar="FILE", help="TOML with [[rule]] tables of name and match: alarms from lines of the job."),
]
WatchLog = Annotated[
    list[str] | None,
    typer.Option("--watch-log", metavar="PATH", help="A log that the job writes, or a pattern, beside what ranks print."),
]
Counters = Annotated[
    list[str] | None,
    typer.Option("--counters", metavar="URL|FILE", help="An exporter of GPU or NIC counters, such as dcgm-exporter; repeatable."),
]


def monitor_options(log_rules: Path | None, watch_log: Sequence[str], counters: Sequence[str]) -> list[str]:
    """What the monitor beside a job is started with."""
    words = ["--log-rules", str(log_rules.absolute())] if log_rules is not None else []
    words += [word for path in watch_log for word in ("--watch-log", str(Path(path).absolute()))]
    return words + [word for exporter in counters for word in ("--counters", exporter)]
