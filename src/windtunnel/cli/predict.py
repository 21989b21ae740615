"""`windtunnel predict JOB`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.captured import is_capture, load_captured
from windtunnel.cli.shared.common import bar, fault_sets, notes, show_spinner
from windtunnel.cli.shared.job import states_rl, tell_assumed, tell_ignored
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.predict.options import PredictCommandOptions

if TYPE_CHECKING:
    from windtunnel.cli.shared.job import JobSource
    from windtunnel.predict.prediction import Prediction
    from windtunnel.sheet.blocks import Sheet


def command(asked: PredictCommandOptions, outputs: Outputs) -> None:
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
        from windtunnel.cli.rl_predict import answer_rl
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
