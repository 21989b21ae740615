"""What verbs of measured runs take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import shared_options as shared
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.goodput.measured import FleetRun
    from windtunnel.records.run import Run
    from windtunnel.spec import GPU, Cluster, Job

_CHANGE = (
    "scale:CLASS=F, scale:/PATTERN/=F, remove:CLASS, remove:/PATTERN/, fp8, gpu=NAME, network=CLUSTER, "
    "cluster=CLUSTER (both), no-host-gaps, no-stragglers, or dp=, pp=, tp=, cp=, ep=N; repeatable, each is answered alone."
)
_CLUSTER = "The cluster of the trace, for network= and cluster=; default: --job's."
_JOB = "The job of the run: its shapes and its machine; dp=, pp= and such need it."


@dataclass(frozen=True)
class WhatIfOptions:
    """What a measured step with one thing changed is asked with."""

    run: Run | str | Path | Sequence[str | Path] = argument(
        "A run's folder, or the traces of its ranks.", metavar="RUN|FILE...", request="paths"
    )
    changes: str | Sequence[str] = option(_CHANGE, word="--change", metavar="CHANGE")
    _: KW_ONLY
    gpu: str | GPU | None = option("The GPU of the trace, for gpu= and fp8; default: --job's.", None, word="--from", metavar="GPU")
    cluster: str | Cluster | None = option(_CLUSTER, None, word="--on", metavar="CLUSTER")
    job: Job | str | None = option(_JOB, None, metavar="JOB")
    step: int | None = option("One step of the run; default: all that was traced.", None)


@dataclass(frozen=True)
class WhatIfCommandOptions(WhatIfOptions):
    """The same for the command line, which changes the job too."""

    sets: Sequence[str] = shared.sets()


@dataclass(frozen=True)
class CalibrateOptions:
    """What a fit to runs is asked with."""

    runs: Run | str | Path | Sequence[str | Path] | Sequence[Run] = argument(
        "Folders of runs, or files that runs are read from.", metavar="RUN..."
    )
    job: Job | str = option("The job that they are runs of.", metavar="JOB")


@dataclass(frozen=True)
class CalibrateCommandOptions(CalibrateOptions):
    """The same for the command line, which changes the job and writes the factors."""

    sets: Sequence[str] = shared.sets()
    on: str | None = shared.on()
    out: str | None = shared.out("Where the calibration goes (TOML).", default=None, metavar="FILE")


@dataclass(frozen=True)
class FleetCompareOptions:
    """What a watched run beside its job is asked with."""

    run: str | Path = argument("The folder of a watched run: its rings, or what a collector keeps.", metavar="RUN")
    job: Job | str = argument("The job that it is a run of: a name of the catalogue or a file.", metavar="JOB")
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


_DAYS = "Wall time of a job's run."
_FAULTS = "For a job: a kept run's folder, or failures per node and day."


@dataclass(frozen=True)
class JobReplayOptions:
    """What a job's run with stated faults is asked with."""

    job: Job = shared.job()
    faults: float | FleetRun | str | Path = option(_FAULTS, metavar="RUN|RATE")
    days: float = option(_DAYS, 30.0, least=0.001)


@dataclass(frozen=True)
class FleetReplayOptions(RunReplayOptions):
    """The same for the command line, where a run or a job stands in one place."""

    faults: str | None = option(_FAULTS, None, metavar="RUN|RATE")
    days: float = option(_DAYS, JobReplayOptions.days, least=0.001)
    sets: Sequence[str] = shared.sets()
    on: str | None = shared.on()
