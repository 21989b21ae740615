"""What verbs of jobs that run take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
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
    """The same for the command line, which writes a trace, and a page anew while the job runs."""

    trace: str | None = option("Write all ranks as one Perfetto trace (.pftrace or .json).", None, metavar="FILE", writes=True)
    follow: bool = option("Rewrite the page until the job ends; the page reloads itself.", False)
    every: float = option("With --follow: seconds between two pages.", 5.0, metavar="SECONDS", least=1.0)


replay_faults = partial(option, "For a job: a kept run's folder, or failures per node and day.", metavar="RUN|RATE")
replay_days = partial(option, "Wall time of a job's run.", 30.0, least=0.001)


@dataclass(frozen=True)
class FleetCompareOptions:
    """What a watched run beside its job is asked with; `job`: a Job too, which windtunnel-fleet does not have."""

    run: str | Path = argument("The folder of a watched run: its rings, or what a collector keeps.", metavar="RUN")
    job: Any = argument("The job that it is a run of: a name of the catalogue or a file.", metavar="JOB")
    _: KW_ONLY
    last: int | None = option("Compare the last N steps only.", None, metavar="N", least=1)
    profile: str | Path | None = shared.profile()
    usual: str | Path | None = option("Compare with this earlier run of the job instead of the prediction.", None, metavar="RUN")


@dataclass(frozen=True)
class FleetCompareCommandOptions(FleetCompareOptions):
    """The same for the command line, which changes the job too."""

    sets: Sequence[str] = shared.sets()
    on: str | None = shared.on()


@dataclass(frozen=True)
class RunReplayOptions:
    """What a kept run's own faults are asked with."""

    run: str | Path = argument("A kept run's folder; or a job, with --faults.", metavar="RUN|JOB", request="target")
    _: KW_ONLY
    nodes: int = option("Nodes of the kept run.", 1, least=1)
    spares: int = option("Spare nodes of the kept run.", 0, least=0)
    step: float | None = option("Seconds of a step of the kept run, if no event states them.", None, metavar="SECONDS")
    interval: float | None = option("Training between checkpoints, if no event states it.", None, metavar="SECONDS")
    node_repair: str | None = option("Time until a replaced node is back, such as 1d; also computes spares.", None, metavar="TIME")


@dataclass(frozen=True)
class FleetReplayOptions(RunReplayOptions):
    """The same for the command line, where a run or a job stands in one place."""

    faults: str | None = replay_faults(default=None)
    days: float = replay_days()
    sets: Sequence[str] = shared.sets()
    on: str | None = shared.on()
