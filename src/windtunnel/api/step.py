"""One step and the whole run of a job: time, memory, goodput, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from windtunnel.base.options import asks
from windtunnel.goodput.options import GoodputOptions
from windtunnel.memory.options import MemoryOptions
from windtunnel.search.options import SensitivityOptions

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.compute import Factors, Profile
    from windtunnel.goodput import Goodput
    from windtunnel.records import Dataset
    from windtunnel.report.answer import Answer
    from windtunnel.report.memory import MemoryReport
    from windtunnel.search.levers.sensitivity import Sensitivity
    from windtunnel.spec import Job
    from windtunnel.spec.calibration import Calibration


def predict(
    job: Job,
    network: str = "closed",
    seed: int = 1,
    profile: Profile | Dataset | str | Path | None = None,
    *,
    kernels: str | Path | None = None,
    calibration: Calibration | str | Path | None = None,
    factors: Factors | None = None,
    skip: bool = False,
    progress: Callable[[float], object] | None = None,
    loads: bool = False,
    beside: Sequence[Job] = (),
    background: Sequence[str] = (),
    threads: int = 1,
) -> Answer:
    """How long one step of `job` takes, whether it fits, and where the time goes.

    `network`: closed, flow or packet; `seed` draws the routes of flows. `profile`: measurements of the job's GPU, a dataset or
    its file, used before fitted curves. `kernels`: a .json file of curves from `windtunnel fit kernels`, in place of the
    catalogue's; `calibration`: of `calibrate`, or the file that `windtunnel calibrate` wrote; `factors`: training factors in
    place of the stored ones. `skip`: for packet, replay repeated patterns of transfers instead of simulating them again.
    `progress` is called with the finished share of a packet step. `loads`: flow and packet count the links over time
    (`traffic.over_time`), which the page draws. `beside`: jobs that run on the same fabric at the same time; `background`: flows
    on it, a CSV file or a pattern and how often, such as "flows.csv@50ms". `sharing` of the answer states what they cost, all else
    is of `job` alone. `threads` that simulate packets change no result. Raises WindtunnelError for a job that cannot be predicted.
    """
    from windtunnel.predict.step import predict as run
    from windtunnel.report.answer import Answer

    if kernels is not None:
        job = _with_kernels(job, str(kernels))
    if calibration is not None:
        job = _with_calibration(job, calibration)
    return Answer.of(run(job, network, factors, seed, skip, progress, profile, loads, beside, background, threads))


@asks(GoodputOptions)
def goodput(asked: GoodputOptions) -> Goodput:
    """How much of a run of `job` trains, with the failures of `job.reliability`, how long it takes, and what would help.

    The run has `job.tokens`, or takes `days` of wall time. `replicas`: equal for equal `seed`; 0: the closed form alone. `network`:
    of the step, and of saves to storage on its fabric. SpecError for a job without `reliability` or length, and for what cannot be.
    """
    from windtunnel.goodput.answer import goodput as run

    return run(
        asked.job, asked.days, asked.replicas, asked.seed, network=asked.network, threads=asked.threads, progress=asked.progress
    )


@asks(MemoryOptions)
def memory(asked: MemoryOptions) -> MemoryReport:
    """What every pipeline stage of `job` holds on its fullest GPU, in bytes by part, whether it fits, and what would make it fit.

    The result's `snapshot` writes a stage's peak for pytorch.org/memory_viz. SpecError for a stage that the job does not have.
    `windtunnel.memory_of(job)` counts the bytes alone.
    """
    from windtunnel.report.memory import report_memory

    return report_memory(asked.job, replayed=asked.replay, moments=asked.over_time, stage=asked.stage)


@asks(SensitivityOptions)
def sensitivity(asked: SensitivityOptions) -> Sensitivity:
    """What limits `job`: how much faster a step is with 10 % more of each rate, with every switch of the runtime, and with more
    memory. Raises WindtunnelError for a job that cannot be predicted."""
    from windtunnel.search.levers.sensitivity import sensitivity as run

    progress = asked.progress
    return run(asked.job) if progress is None else run(asked.job, lambda share: (progress(share), None)[1])


def _with_calibration(job: Job, calibration: Calibration | str | Path) -> Job:
    """The job with factors that were fitted to its runs."""
    from pathlib import Path

    from windtunnel.jobs.load import with_calibration

    if isinstance(calibration, (str, Path)):
        return with_calibration(job, calibration)
    return job.model_copy(update={"calibration": calibration})


def _with_kernels(job: Job, path: str) -> Job:
    """The job with a GPU whose kernels use the curves of a file."""
    from windtunnel.base.errors import SpecError
    from windtunnel.compute.kernel_file import is_path, load

    if not is_path(path):
        raise SpecError("kernels", path, "a .json file that `windtunnel fit kernels` wrote")
    load(path)
    gpu = job.cluster.gpu.model_copy(update={"kernels_from": path})
    cluster = job.cluster.model_copy(update={"node": job.cluster.node.model_copy(update={"gpu": gpu})})
    return job.model_copy(update={"cluster": cluster})
