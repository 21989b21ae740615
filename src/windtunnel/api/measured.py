"""Measured runs and traces: beside a prediction, changed, fitted, and replayed on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from windtunnel.api.options import CompareOptions
from windtunnel.base.options import asks
from windtunnel.replay.options import GraphReplayOptions, SimaiOptions
from windtunnel.runs.options import CalibrateOptions, WhatIfOptions

if TYPE_CHECKING:
    from windtunnel_oracles.astrasim.files import AstraRun
    from windtunnel_oracles.loggops import LogGOPSRun
    from windtunnel_oracles.simai.run import SimaiRun

    from windtunnel.api.comparison import Comparison
    from windtunnel.records.run import Run
    from windtunnel.replay import ReplayResult
    from windtunnel.runs.calibrate import Calibrated
    from windtunnel.runs.comparison import RunComparison
    from windtunnel.runs.whatif import WhatIf
    from windtunnel.serving.calibrated import CalibratedServer
    from windtunnel.spec import Job


def _compare(asked: CompareOptions) -> Comparison | RunComparison:
    """Two jobs side by side, or a measured run and the job that it is a run of.

    Two jobs: fields that differ, figures and parts of the step, each of `a` and of `b`, predicted with `network`. A run (as read,
    its folder, or the files of its ranks): what differs from the prediction of `b`, why, and what each cause costs, in seconds.
    Raises WindtunnelError for a job that cannot be predicted, SpecError for files that hold no run.
    """
    from windtunnel.api.comparison import compare as compare_predictions
    from windtunnel.predict import predict
    from windtunnel.runs.comparison import compare_run
    from windtunnel.runs.sources import run_of
    from windtunnel.spec import Job

    if isinstance(asked.a, Job):
        return compare_predictions(predict(asked.a, asked.network), predict(asked.b, asked.network))
    return compare_run(run_of(asked.a), asked.b)


if TYPE_CHECKING:

    @overload
    def compare(a: Job, b: Job, network: str = ...) -> Comparison: ...
    @overload
    def compare(a: Run | str | Path | Sequence[str | Path], b: Job, network: str = ...) -> RunComparison: ...
    def compare(a: Any, b: Any, network: Any = ...) -> Any: ...
else:
    compare = asks(CompareOptions)(_compare)


@asks(WhatIfOptions)
def whatif(asked: WhatIfOptions) -> tuple[WhatIf, ...]:
    """A measured step with one thing changed, for each of `changes` alone: seconds measured, replayed, and changed.

    `run`: as read, its folder, or the files of its ranks. SpecError for a change that is not understood, or lacks the GPU, cluster
    or job that it is about.
    """
    from windtunnel.base.errors import SpecError
    from windtunnel.runs.sources import run_of
    from windtunnel.runs.whatif import TracedMachine, what_if
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    changes = [asked.changes] if isinstance(asked.changes, str) else list(asked.changes)
    if not changes:
        raise SpecError("--change", "nothing", "one change or more")
    source = load_gpu(asked.gpu) if isinstance(asked.gpu, str) else asked.gpu
    on = load_cluster(asked.cluster) if isinstance(asked.cluster, str) else asked.cluster
    job = _job_of(asked.job) if asked.job is not None else None
    return what_if(run_of(asked.run), changes, TracedMachine(source, on, job), asked.step)


@asks(CalibrateOptions)
def calibrate(asked: CalibrateOptions) -> Calibrated | CalibratedServer:
    """A few physical factors, each with its error, with which the prediction of `job` shows what its runs measured.

    `runs` may be results of a server's benchmark instead, and `job` what starts the server, on the machine `on`: the first result
    corrects host and client time, and the others judge it.

    `runs`: a run (as read, its folder, or the files of its ranks), or several: their folders, or as read. The result's
    `fit.calibration` goes into `job.calibration`; `before` and `after` are errors of the step on steps that were left out of the
    fit. SpecError for runs without events of a device.
    """
    from windtunnel.records.run import Run
    from windtunnel.records.run_file import is_run
    from windtunnel.runs.calibrate import calibrate as fit
    from windtunnel.runs.sources import run_of

    runs = asked.runs
    if (results := server_results(runs)) is not None:
        from windtunnel.api.serving import answer_server_calibration

        return answer_server_calibration(results, str(asked.job), asked.on)
    job = _job_of(asked.job)
    if isinstance(runs, (Run, str, Path)):
        return fit([run_of(runs)], job)
    if all(not isinstance(one, Run) and not is_run(Path(one)) for one in runs):
        return fit([run_of([str(one) for one in runs])], job)
    return fit([run_of(one) for one in runs], job)


def server_results(runs: object) -> list[Path] | None:
    """The files, where all are results that a server's benchmark printed; None for runs."""
    from windtunnel.formats.head import head_of
    from windtunnel.formats.logs.served import recognises

    named = [runs] if isinstance(runs, (str, Path)) else runs
    if not isinstance(named, (list, tuple)) or not named or not all(isinstance(name, (str, Path)) for name in named):
        return None
    paths = [Path(name) for name in named]
    return paths if all(path.is_file() and recognises(head_of(path)) for path in paths) else None


def _job_of(job: Job | str) -> Job:
    from windtunnel.api.jobs import load

    return load(job) if isinstance(job, str) else job


@asks(GraphReplayOptions)
def replay(asked: GraphReplayOptions) -> ReplayResult:
    """A trace graph on a cluster; rank n runs on GPU n. The result has seconds of each rank, by what they went to.

    `graph`: as read, a run, or the files of one source (Chakra, GOAL, a profiler's traces, …). SpecError for a cluster that is too
    small, UnknownName for a name that is none.
    """
    from windtunnel.replay.options import ReplayOptions
    from windtunnel.replay.run import replay as run
    from windtunnel.replay.sources import graph_from
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    gpu = load_gpu(asked.source) if isinstance(asked.source, str) else asked.source
    options = ReplayOptions(asked.network, asked.compute, asked.calls, gpu, asked.precision, asked.seed, asked.skip, asked.threads)
    options.check()
    machine = load_cluster(asked.cluster) if isinstance(asked.cluster, str) else asked.cluster
    return run(graph_from(asked.graph, asked.compute), machine, options, asked.progress)


def replay_astra_sim(
    files: str | Path | Sequence[str | Path],
    system: str | Path,
    network: str | Path,
    memory: str | Path | None = None,
    groups: str | Path | None = None,
    congestion_aware: bool = False,
) -> AstraRun:
    """Chakra traces as ASTRA-sim runs them, with the files of its `system` (JSON), analytical `network` (YAML), remote `memory` and
    communicator `groups`; `congestion_aware`: its backend of that name. The result has cycles of each rank. FileError and SpecError
    for files that are none of these."""
    from windtunnel_oracles.astrasim.files import replay_astra_sim as run

    return run([files] if isinstance(files, (str, Path)) else files, system, network, memory, groups, congestion_aware)


def replay_loggops(schedule: str | Path, parameters: str = "") -> LogGOPSRun:
    """A GOAL schedule as LogGOPSim runs it. `parameters`: "L=2500,o=1500,g=1000,G=6,O=0,S=65535" in ns, S in bytes; those left out
    are LogGOPSim's. The result has ns of each rank. FileError and SpecError for a file or parameters that are none."""
    from windtunnel_oracles.loggops import replay_loggops as run

    return run(schedule, parameters)


def simai_of(asked: SimaiOptions) -> SimaiRun:
    """The table of SimAI's analytical mode for a workload that AICB wrote, and where it departs from its own formulas.

    `ratios`: a folder with its three CSVs of ratios. The result's `csv` is the text of EndToEnd.csv. FileError and SpecError for
    files and settings that are none.
    """
    from windtunnel_oracles.simai.run import run_simai

    return run_simai(
        asked.workload, asked.gpus, asked.ratios, asked.name, gpus_per_server=asked.gpus_per_server,
        nics_per_server=asked.nics_per_server, nvlink=asked.nvlink, nic=asked.nic, gpu_type=asked.gpu_type.upper(),
        nic_type=asked.nic_type.upper(), dp_overlap=asked.dp_overlap, ep_overlap=asked.ep_overlap, tp_overlap=asked.tp_overlap,
        pp_overlap=asked.pp_overlap,
    )  # fmt: skip


simai = asks(SimaiOptions)(simai_of)
