"""Verbs of one job: `windtunnel predict JOB`, `memory JOB`, `goodput JOB` and `rl-predict JOB`."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.captured import answer_memory, is_capture, load_captured
from windtunnel.cli.shared.common import bar, fault_sets, notes, show_spinner, write
from windtunnel.cli.shared.job import states_rl, tell_assumed, tell_ignored
from windtunnel.cli.shared.outputs import Outputs, said_command

if TYPE_CHECKING:
    from windtunnel.api.memory import MemoryReport
    from windtunnel.cli.shared.job import JobSource
    from windtunnel.goodput.options import GoodputCommandOptions
    from windtunnel.memory.options import MemoryCommandOptions
    from windtunnel.predict.options import PredictCommandOptions
    from windtunnel.predict.prediction import Prediction
    from windtunnel.rl.options import RLPredictOptions
    from windtunnel.sheet.blocks import Sheet


def predict_command(asked: PredictCommandOptions, outputs: Outputs) -> None:
    from windtunnel.jobs.load import job_beside, with_calibration
    from windtunnel.predict import predict

    source, outputs = outputs.source, replace(outputs, source=None)
    assert source is not None
    fidelity, sets = check_fidelity(asked.network), list(source.sets)
    if asked.trace == "-":
        raise SpecError("--trace", "-", "a file name", "Only --json, --csv and --sheet print to standard output.")
    if is_capture(source.job):
        _of_capture(source, asked, outputs)
        return
    if asked.kernels is not None:
        from windtunnel.compute.kernel_file import is_path, load

        if not is_path(str(asked.kernels)):
            raise SpecError("--kernels", asked.kernels, "a .json file that `windtunnel fit kernels` wrote")
        load(str(asked.kernels))
        sets.append(f"cluster.node.gpu.kernels_from={asked.kernels}")
    source.sets = sets = [*sets, *fault_sets(asked.fault, "cluster.fabric.faults")]
    if source.job is not None and states_rl(source.job):
        others_said = (asked.trace, outputs.html, asked.profile, asked.kernels, asked.calibration, asked.fault, asked.beside,
                       asked.background, source.model, source.megatron)  # fmt: skip
        if fidelity != "closed" or asked.skip or any(others_said):
            raise _only_training(source.job)
        from windtunnel.rl.options import RLPredictOptions

        answer_rl(RLPredictOptions(source.job, source.on, tuple(sets)), outputs)
        return
    loaded = source.load()
    job = loaded.job if asked.calibration is None else with_calibration(loaded.job, str(asked.calibration))
    others = [job_beside(str(text), sets) for text in asked.beside]
    what = f"predicting {job.name}"
    loads = outputs.json is not None or outputs.wants_detail

    def answer(progress: Any = None) -> Prediction:
        return predict(
            job, fidelity, None, asked.seed, asked.skip, progress, asked.profile, loads, others, asked.background, asked.threads
        )

    if fidelity == "packet":
        with bar(what) as progress:
            prediction = answer(progress)
    else:
        with show_spinner(what):
            prediction = answer()
    tell_assumed(loaded)
    if asked.trace is not None:
        from windtunnel.predict.answer.trace import write_trace

        with show_spinner("writing the timeline"):
            slices = write_trace(prediction, asked.trace, prediction.kernel_timeline)
        notes().print(f"{asked.trace}: {slices:,} slices", markup=False)
    detail = outputs.wants_detail or outputs.csv is not None
    outputs.show(partial(_sheet, prediction, detail), partial(_table, prediction))
    tell_ignored(loaded)


def _of_capture(source: JobSource, asked: PredictCommandOptions, outputs: Outputs) -> None:
    """The step of a captured job."""
    from windtunnel.api.capture_sheet import capture_sheet

    said = (asked.trace, asked.profile, asked.kernels, asked.calibration, asked.fault, asked.beside, asked.background)
    captured = load_captured(source, asked.network, "predict", said)
    outputs.show(capture_sheet(captured), captured.as_dict)


def _sheet(prediction: Prediction, detail: bool) -> Sheet:
    from windtunnel.api.prediction_sheet import prediction_sheet

    return prediction_sheet(prediction, detail=detail)


def _table(prediction: Prediction) -> dict[str, Any]:
    from windtunnel.api.json import to_json

    return to_json(prediction)


def _only_training(job: str) -> Exception:
    from windtunnel.base.errors import SpecError

    allowed = "a training job beside these options: a step of reinforcement learning has --set, --on, --json and --quiet"
    return SpecError("JOB", job, allowed, f"Write windtunnel rl-predict {job}.")


def memory_command(asked: MemoryCommandOptions, outputs: Outputs) -> None:
    from windtunnel.api.memory import check_stage
    from windtunnel.api.step import memory

    source = outputs.source
    assert source is not None
    if asked.picture is not None and not asked.picture.lower().endswith((".svg", ".html")):
        raise SpecError("--picture", asked.picture, "a name that ends in .svg or .html")
    if is_capture(source.job):
        if asked.replay or asked.stage is not None or asked.snapshot is not None:
            raise SpecError("JOB", source.job, "a job beside --replay, --stage and --snapshot", "A capture is always replayed.")
        answer_memory(source, asked.picture, replace(outputs, source=None))
        return
    asked = replace(asked, job=source.load().job)
    check_stage(asked.job, asked.stage)
    with show_spinner(f"counting the memory of {asked.job.name}"):
        counted = memory(asked.job, replay=asked.replay, over_time=asked.picture is not None, stage=asked.stage)
        if asked.picture is not None:
            _write_picture(counted, asked.picture)
        if asked.snapshot is not None:
            counted.snapshot(asked.snapshot, asked.stage)
    from windtunnel.api.memory import memory_sheet

    outputs.show(partial(memory_sheet, counted), counted.as_dict)


def _write_picture(counted: MemoryReport, path: str) -> None:
    """The picture as a file, .svg or .html; FileError where it cannot be written."""
    from windtunnel.api.memory import memory_sheet, over_time_picture

    if not path.lower().endswith(".svg"):
        from windtunnel.draw.page.sheet import write_page

        write_page(memory_sheet(counted), path, said_command(), option="--picture")
        return
    from windtunnel.draw.page.painters import memory_svg

    write(memory_svg(over_time_picture(counted.moments, counted.job.name)), path, "--picture")


DEFAULT = "llama3-2024"
"""Failures of a job that states none: the largest published run with counts by cause."""

DEFAULT_DAYS = 30.0


def goodput_command(asked: GoodputCommandOptions, outputs: Outputs) -> None:
    from windtunnel.goodput import goodput

    check_fidelity(asked.network)
    source, job, days = outputs.source, asked.job, asked.days
    assert source is not None
    if job.reliability is None or not any(job.reliability.kinds()):
        job = source.load([f"reliability={DEFAULT}"]).job
        source.assumed.append(f"failures as {DEFAULT}: the job states none")
    if job.tokens is None and days is None:
        days = DEFAULT_DAYS
        source.assumed.append(f"{DEFAULT_DAYS:g} days of wall time: the job has no `tokens`")
    with bar(f"simulating runs of {job.name}") as progress:
        answer = goodput(
            job, days, 0 if asked.closed else asked.replicas, asked.seed, network=asked.network, threads=os.cpu_count() or 1,
            progress=None if asked.closed else progress,
        )  # fmt: skip
    from windtunnel.goodput.answer import run_data
    from windtunnel.goodput.sheet import run_sheet

    outputs.show(run_sheet(answer), lambda: run_data(answer))


def answer_rl(asked: RLPredictOptions, outputs: Outputs) -> None:
    """The answer for a job, where `outputs` wants it."""
    from windtunnel.api.rl import rl_predict, rl_splits
    from windtunnel.rl import RLStep
    from windtunnel.rl.sheet import splits_sheet, step_sheet

    given = (asked.job, asked.on, asked.overrides, asked.log, outputs.wants_detail)
    if not asked.splits:
        with show_spinner("simulating the rollout"):
            step = rl_predict(*given)
        outputs.show(step_sheet(step), step.as_dict)
        return
    with show_spinner("trying divisions"):
        tried = rl_splits(*given)
    table = [
        {"rollout_gpus": whole.rl.rollout.gpus, "step": found.as_dict() if isinstance(found, RLStep) else str(found)}
        for whole, found in tried
    ]
    best = tried[0][1]
    if outputs.wants_detail:
        if not isinstance(best, RLStep):
            raise best
        replace(outputs, json=None, csv=None, quiet=True).show(step_sheet(best, tried), {})
    replace(outputs, html=None, sheet=None).show(splits_sheet(tried), table)
