"""`windtunnel predict JOB`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.common import (
    Background,
    Beside,
    Fault,
    Megatron,
    ModelFile,
    Network,
    On,
    PacketThreads,
    Seed,
    Sets,
    Source,
    fault_sets,
    notes,
    show_spinner,
    writable,
)
from windtunnel.cli.shared.job import job_beside, job_of, states_rl, tell_assumed, tell_ignored
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.jobs.load import with_calibration
from windtunnel.predict import predict

if TYPE_CHECKING:
    from windtunnel.predict.prediction import Prediction
    from windtunnel.sheet.blocks import Sheet

EXAMPLES = """\b
Examples:
  windtunnel predict megascale-175b-12288 --html page.html
  windtunnel predict llama3.1-70b --on h100-ib --set cluster.gpus=512 --set plan.tp=4 --set plan.pp=4
  windtunnel predict config.json --on llama3-8b-8xh100 --json -
  windtunnel predict llama2-70b-64xh100 --network flow --set cluster.fabric.oversubscription=2
  windtunnel predict a.toml --network flow --beside 'b.toml cluster.placement=nodes:8-15'
"""


@with_outputs
def command(  # long: one option a line
    job: Source = None,
    sets: Sets = None,
    network: Network = "closed",
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Write the timeline: Perfetto, or Chrome's JSON for a .json name.")
    ] = None,
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="PARQUET", help="Measurements of the job's GPU; they take precedence over fitted curves."
        ),
    ] = None,
    kernels: Annotated[
        str | None, typer.Option("--kernels", metavar="FILE.json", help="Curves of `fit kernels` instead of the catalogue's.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="FILE", help="Factors that `windtunnel calibrate` fitted to runs.")
    ] = None,
    fault: Fault = None,
    seed: Seed = 1,
    beside: Beside = None,
    background: Background = None,
    skip: Annotated[bool, typer.Option("--skip", help="packet: reuse the result of transfer patterns that repeat.")] = False,
    threads: PacketThreads = 1,
    *,
    outputs: Outputs,
) -> None:
    fidelity = check_fidelity(network)
    writable(("--trace", trace))
    if trace == "-":
        from windtunnel.base.errors import SpecError

        raise SpecError("--trace", "-", "a file name", "Only --json, --csv and --sheet print to standard output.")
    if kernels is not None:
        from windtunnel.compute.kernel_file import is_path, load

        if not is_path(kernels):
            from windtunnel.base.errors import SpecError

            raise SpecError("--kernels", kernels, "a .json file that `windtunnel fit kernels` wrote")
        load(kernels)
        sets = [*(sets or []), f"cluster.node.gpu.kernels_from={kernels}"]
    sets = [*(sets or []), *fault_sets(fault, "cluster.fabric.faults")]
    if job is not None and states_rl(job):
        others_said = (trace, outputs.html, profile, kernels, calibration, fault, beside, background, model, megatron)
        if fidelity != "closed" or skip or any(others_said):
            raise _only_training(job)
        from windtunnel.cli.rl_predict import answer_rl
        from windtunnel.rl.options import RLPredictOptions

        answer_rl(RLPredictOptions(job, on, tuple(sets or ())), outputs)
        return
    loaded = job_of(job, sets, on, model, megatron, of_a_run=True)
    if calibration is not None:
        loaded = replace(loaded, job=with_calibration(loaded.job, calibration))
    others = [job_beside(text, sets) for text in beside or ()]
    what = f"predicting {loaded.job.name}"
    loads, flows = outputs.json is not None or outputs.wants_detail, background or ()
    if fidelity == "packet":
        with bar(what) as progress:
            prediction = predict(loaded.job, fidelity, None, seed, skip, progress, profile, loads, others, flows, threads)
    else:
        with show_spinner(what):
            prediction = predict(loaded.job, fidelity, None, seed, skip, None, profile, loads, others, flows)
    tell_assumed(loaded)
    if trace is not None:
        from windtunnel.report.timeline.trace import write_trace

        with show_spinner("writing the timeline"):
            slices = write_trace(prediction, trace, prediction.kernel_timeline)
        notes().print(f"{trace}: {slices:,} slices", markup=False)
    detail = outputs.wants_detail or outputs.csv is not None
    outputs.show(partial(_sheet, prediction, detail), partial(_table, prediction))
    tell_ignored(loaded)


def _sheet(prediction: Prediction, detail: bool) -> Sheet:
    from windtunnel.report.sheet import prediction_sheet

    return prediction_sheet(prediction, detail=detail)


def _table(prediction: Prediction) -> dict[str, Any]:
    from windtunnel.report.json import to_json

    return to_json(prediction)


def _only_training(job: str) -> Exception:
    from windtunnel.base.errors import SpecError

    allowed = "a training job beside these options: a step of reinforcement learning has --set, --on, --json and --quiet"
    return SpecError("JOB", job, allowed, f"Write windtunnel rl-predict {job}.")
