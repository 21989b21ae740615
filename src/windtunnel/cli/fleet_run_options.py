"""Options of `windtunnel fleet run --nodes`: how a job is kept alive. Each says so first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OF_NODES = "Of --nodes:"


def _option(name: str, metavar: str | None, about: str, least: int | None = None) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(name, metavar=metavar, min=least, help=f"{OF_NODES} {about}")
    return made


PerNode = Annotated[int, _option("--nproc-per-node", "P", "processes a node.", 1)]
Spares = Annotated[int, _option("--spares", "S", "tested nodes that wait.", 0)]
DriverDir = Annotated[Path | None, _option("--driver-dir", "DIR", "the driver's state; default RUN/driver.")]
Retries = Annotated[int, _option("--retries", None, "restarts in a row before it stops.", 0)]
Shrink = Annotated[bool, _option("--shrink", None, "go on with fewer nodes where no spare is left.")]
EngineName = Annotated[str, _option("--engine", None, "who starts agents: local, slurm, ray, waiting.")]
DriverListen = Annotated[str, _option("--driver-listen", "HOST:PORT", "where agents find the driver.")]
Tests = Annotated[list[str] | None, _option("--test", "NAME", "a self-test of spares; again for more.")]
TestAfter = Annotated[bool, _option("--test-after", None, "test the nodes of a fault too, before they are used again.")]
CheckpointDir = Annotated[Path | None, _option("--checkpoint", "DIR", "told to ranks as WINDTUNNEL_FLEET_CHECKPOINT.")]
Limits = Annotated[list[str] | None, _option("--limit", "NAME=SECONDS", "when a rule fires; again for more.")]
ExpectStep = Annotated[str, _option("--expect-step", "JOB|LOW..HIGH", "tell steps outside of the prediction.")]
Store = Annotated[str, _option("--store", "URL", "the driver's state in PostgreSQL, not in a file.")]
