"""What `predict` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import option

if TYPE_CHECKING:
    from windtunnel.compute import Factors, Profile
    from windtunnel.records import Dataset
    from windtunnel.spec import Job
    from windtunnel.spec.calibration import Calibration

_BESIDE = "flow, packet: a job that runs on the same fabric at the same time, with changes of its fields; repeatable."
_FLOWS = "flow, packet: flows between the fabric's GPUs under the step, a CSV file or a pattern as of `flows`; repeatable."


@dataclass(frozen=True)
class PredictOptions:
    """What a step is asked with."""

    job: Job = shared.job()
    network: str = shared.network()
    seed: int = shared.seed()
    profile: Profile | Dataset | str | Path | None = shared.profile()
    _: KW_ONLY
    kernels: str | Path | None = shared.kernels()
    calibration: Calibration | str | Path | None = option(
        "Factors that `windtunnel calibrate` fitted to runs.", None, metavar="FILE"
    )
    factors: Factors | None = option("Training factors in place of the stored ones.", None, shown=False)
    skip: bool = shared.skip()
    progress: Callable[[float], object] | None = shared.progress()
    loads: bool = option("Count the links over time (`traffic.over_time`), which the page draws.", False, shown=False)
    beside: Sequence[Job | str] = option(_BESIDE, (), metavar="'JOB [KEY=VALUE]...'")
    background: Sequence[str] = option(_FLOWS, (), metavar="FLOWS[@PERIOD]")
    threads: int = shared.threads()


@dataclass(frozen=True)
class PredictCommandOptions(PredictOptions):
    """The same for the command line, which also writes the timeline, and has a word for faults of the fabric."""

    trace: str | None = shared.timeline()
    fault: Sequence[str] = shared.fault()
