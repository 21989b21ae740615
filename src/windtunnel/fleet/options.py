"""What verbs of jobs that run take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from windtunnel.base import shared_options as shared
from windtunnel.base.options import argument, option


@dataclass(frozen=True)
class JudgeOptions:
    """What the records of a watched run are asked with."""

    run: str | Path = argument(
        "A watched run's folder: its rings, or what a collector keeps. Or a collector's address.", metavar="RUN|URL"
    )
    last: int | None = option("Judge and draw the last N steps only.", None, metavar="N", least=1)


@dataclass(frozen=True)
class FleetShowOptions(JudgeOptions):
    """The same for the command line, which writes a page, a trace and JSON."""

    html: str | None = option("Write a page: findings, heat map, mesh.", None, metavar="FILE", writes=True)
    trace: str | None = option("Write all ranks as one Perfetto trace (.pftrace or .json).", None, metavar="FILE", writes=True)
    follow: bool = option("Rewrite the page until the job ends; the page reloads itself.", False)
    every: float = option("With --follow: seconds between two pages.", 5.0, metavar="SECONDS", least=1.0)
    json: str | None = shared.json()
