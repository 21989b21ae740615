"""One step and the whole run of a job: time, memory, goodput, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.options import asks
from windtunnel.goodput.options import GoodputOptions
from windtunnel.memory.options import MemoryOptions
from windtunnel.predict.options import PredictOptions
from windtunnel.search.options import SensitivityOptions

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.api.answer import Answer
    from windtunnel.api.memory import MemoryReport
    from windtunnel.goodput import Goodput
    from windtunnel.search.levers.sensitivity import Sensitivity
    from windtunnel.spec import Job
    from windtunnel.spec.calibration import Calibration


@asks(PredictOptions)
def predict(asked: PredictOptions) -> Answer:
    """How long one step of `job` takes, whether it fits, and where the time goes.

    `profile`: a dataset or its file. `calibration`: of `calibrate`, or the file that `windtunnel calibrate` wrote. `background`:
    such as "flows.csv@50ms". `sharing` of the answer states what jobs and flows beside it cost, all else is of `job` alone. Raises
    WindtunnelError for a job that cannot be predicted.
    """
    from windtunnel.jobs.load import job_beside
    from windtunnel.predict.step import predict as run

    job = asked.job
    if asked.kernels is not None:
        job = _with_kernels(job, str(asked.kernels))
    if asked.calibration is not None:
        job = _with_calibration(job, asked.calibration)
    beside = [job_beside(one) if isinstance(one, str) else one for one in asked.beside]
    from windtunnel.api.answer import Answer

    return Answer.of(
        run(
            job, asked.network, asked.factors, asked.seed, asked.skip, asked.progress, asked.profile, asked.loads, beside,
            asked.background, asked.threads,
        )
    )  # fmt: skip


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
    from windtunnel.api.memory import report_memory

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
