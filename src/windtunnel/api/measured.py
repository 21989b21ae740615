"""Measured runs and traces: beside a prediction, changed, fitted, and replayed on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from windtunnel.records.run import Run
    from windtunnel.replay import ReplayResult
    from windtunnel.replay.astrasim.files import AstraRun
    from windtunnel.replay.loggops import LogGOPSRun
    from windtunnel.replay.simai.run import SimaiRun
    from windtunnel.replay.sources import GraphSource
    from windtunnel.report.comparison import Comparison
    from windtunnel.runs.calibrate import Calibrated
    from windtunnel.runs.comparison import RunComparison
    from windtunnel.runs.sources import RunSource
    from windtunnel.runs.whatif import WhatIf
    from windtunnel.spec import GPU, Cluster, Job


@overload
def compare(a: Job, b: Job, network: str = "closed") -> Comparison: ...
@overload
def compare(a: Run | str | Path | Sequence[str | Path], b: Job, network: str = "closed") -> RunComparison: ...
def compare(a: Job | RunSource, b: Job, network: str = "closed") -> Comparison | RunComparison:
    """Two jobs side by side, or a measured run and the job that it is a run of.

    Two jobs: fields that differ, figures and parts of the step, each of `a` and of `b`, predicted with `network`. A run (as read,
    its folder, or the files of its ranks): what differs from the prediction of `b`, why, and what each cause costs, in seconds.
    Raises WindtunnelError for a job that cannot be predicted, SpecError for files that hold no run.
    """
    from windtunnel.predict import predict
    from windtunnel.report.comparison import compare as compare_predictions
    from windtunnel.runs.comparison import compare_run
    from windtunnel.runs.sources import run_of
    from windtunnel.spec import Job

    if isinstance(a, Job):
        return compare_predictions(predict(a, network), predict(b, network))
    return compare_run(run_of(a), b)


def whatif(
    run: RunSource,
    changes: str | Sequence[str],
    *,
    gpu: str | GPU | None = None,
    cluster: str | Cluster | None = None,
    job: Job | None = None,
    step: int | None = None,
) -> tuple[WhatIf, ...]:
    """A measured step with one thing changed, for each of `changes` alone: seconds measured, replayed, and changed.

    `run`: as read, its folder, or the files of its ranks. `changes`: scale:CLASS=F, scale:/PATTERN/=F, remove:CLASS,
    remove:/PATTERN/, fp8, gpu=NAME, network=CLUSTER, no-host-gaps, no-stragglers, or dp=N, pp=N, tp=N, cp=N, ep=N. `gpu`: the GPU
    of the trace, for gpu= and fp8; `cluster`: its cluster, for network=; `job`: its job, for other degrees. `step`: one step of the
    run; left out: all that was traced. SpecError for a change that is not understood, or lacks one of these.
    """
    from windtunnel.base.errors import SpecError
    from windtunnel.runs.sources import run_of
    from windtunnel.runs.whatif import TracedMachine, what_if
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    asked = [changes] if isinstance(changes, str) else list(changes)
    if not asked:
        raise SpecError("--change", "nothing", "one change or more")
    source = load_gpu(gpu) if isinstance(gpu, str) else gpu
    on = load_cluster(cluster) if isinstance(cluster, str) else cluster
    return what_if(run_of(run), asked, TracedMachine(source, on, job), step)


def calibrate(runs: RunSource | Sequence[Run], job: Job) -> Calibrated:
    """A few physical factors, each with its error, with which the prediction of `job` shows what its runs measured.

    `runs`: a run (as read, its folder, or the files of its ranks), or several: their folders, or as read. The result's
    `fit.calibration` goes into `job.calibration`; `before` and `after` are errors of the step on steps that were left out of the
    fit. SpecError for runs without events of a device.
    """
    from windtunnel.records.run import Run
    from windtunnel.records.run_file import is_run
    from windtunnel.runs.calibrate import calibrate as fit
    from windtunnel.runs.sources import run_of

    if isinstance(runs, (Run, str, Path)):
        return fit([run_of(runs)], job)
    if all(not isinstance(one, Run) and not is_run(Path(one)) for one in runs):
        return fit([run_of([str(one) for one in runs])], job)
    return fit([run_of(one) for one in runs], job)


def replay(
    graph: GraphSource,
    cluster: str | Cluster,
    *,
    network: str = "closed",
    compute: str = "trace",
    calls: str = "network",
    source: str | GPU | None = None,
    precision: str = "bf16",
    seed: int = 1,
    skip: bool = False,
    threads: int = 1,
    progress: Callable[[float], object] | None = None,
) -> ReplayResult:
    """A trace graph on a cluster; rank n runs on GPU n. The result has seconds of each rank, by what they went to.

    `graph`: as read, a run, or the files of one source (Chakra, GOAL, a profiler's traces, …). `compute`: trace (times as written),
    kernels (windtunnel's, by shapes or bytes) or roofline (FLOPs and bytes at peak). `calls`: network, or trace: times as written.
    `source`: the GPU that the trace is from, whose times are scaled to the cluster's; `precision`: the number format of
    computation. `network`: closed, flow or packet; `seed` draws the routes; `skip`: for packet, reuse patterns that repeat;
    `threads` of packets change no result.
    SpecError for a cluster that is too small, UnknownName for a name that is none.
    """
    from windtunnel.replay.options import ReplayOptions
    from windtunnel.replay.run import replay as run
    from windtunnel.replay.sources import graph_from
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    gpu = load_gpu(source) if isinstance(source, str) else source
    options = ReplayOptions(network, compute, calls, gpu, precision, seed, skip, threads)
    options.check()
    machine = load_cluster(cluster) if isinstance(cluster, str) else cluster
    return run(graph_from(graph, compute), machine, options, progress)


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
    from windtunnel.replay.astrasim.files import replay_astra_sim as run

    return run([files] if isinstance(files, (str, Path)) else files, system, network, memory, groups, congestion_aware)


def replay_loggops(schedule: str | Path, parameters: str = "") -> LogGOPSRun:
    """A GOAL schedule as LogGOPSim runs it. `parameters`: "L=2500,o=1500,g=1000,G=6,O=0,S=65535" in ns, S in bytes; those left out
    are LogGOPSim's. The result has ns of each rank. FileError and SpecError for a file or parameters that are none."""
    from windtunnel.replay.loggops import replay_loggops as run

    return run(schedule, parameters)


def simai(
    workload: str | Path,
    gpus: int | None = None,
    *,
    ratios: str | Path | None = None,
    name: str | None = None,
    **options: Any,
) -> SimaiRun:
    """The table of SimAI's analytical mode for a workload that AICB wrote, and where it departs from its own formulas.

    `gpus`: all_gpus of the workload's first line where left out. `options`: gpus_per_server (8), nics_per_server (8), nvlink and
    nic (GB/s; 0: by gpu_type "H100" and nic_type "CX7"), and the hidden shares dp_overlap, ep_overlap, tp_overlap (0) and
    pp_overlap (1). `ratios`: a folder with its three CSVs of ratios; `name` of the run in the table. The result's `csv` is the text
    of EndToEnd.csv. FileError and SpecError for files and settings that are none.
    """
    from windtunnel.base.errors import UnknownName
    from windtunnel.replay.simai.run import run_simai
    from windtunnel.replay.simai.setting import SimaiSetting

    for option in options:
        if option not in SimaiSetting.__dataclass_fields__:
            raise UnknownName("simai", option, list(SimaiSetting.__dataclass_fields__))
    return run_simai(workload, gpus, ratios, name, **options)
