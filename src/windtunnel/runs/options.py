"""What verbs of measured runs take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import argument, option
from windtunnel.fleet.options import replay_days, replay_faults

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
        "Folders of runs, or files that runs are read from; or results of a server's benchmark.", metavar="RUN..."
    )
    job: Job | str = option("The job that they are runs of; or the line or script that starts the server.", metavar="JOB")
    on: str | None = shared.on()


@dataclass(frozen=True)
class CalibrateCommandOptions(CalibrateOptions):
    """The same for the command line, which changes the job and writes the factors."""

    sets: Sequence[str] = shared.sets()
    out: str | None = shared.out("Where the calibration goes (TOML).", default=None, metavar="FILE")


@dataclass(frozen=True)
class JobReplayOptions:
    """What a job's run with stated faults is asked with."""

    job: Job = shared.job()
    faults: float | FleetRun | str | Path = replay_faults()
    days: float = replay_days()
