"""`windtunnel compare A B`: two jobs, or a measured run and the job that it is a run of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.api.options import CompareCommandOptions
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.common import print_list, show_spinner
from windtunnel.cli.shared.job import job_of, tell_assumed, tell_ignored
from windtunnel.cli.shared.outputs import Outputs


def command(asked: CompareCommandOptions, outputs: Outputs) -> None:
    from windtunnel.records.capture_file import captured_files
    from windtunnel.spec import names

    fidelity, things = check_fidelity(asked.network), asked.things
    if len(things) < 2:
        raise SpecError("B", "nothing", "another job, or the job of a run", "For example: windtunnel compare RUN JOB.")
    *first, last = things
    if len(things) > 2 and all(one in names("jobs") for one in things):
        raise SpecError("JOB", f"{len(things)} jobs", "two jobs, or the files of a run and a job", "Name two of them.")
    if captured_files(first):
        _capture_and_job(first, last, asked, outputs)
    elif len(first) == 1 and _is_served(first[0]):
        _result_and_server(first[0], last, asked, outputs)
    elif len(first) > 1 or _is_run(first[0]):
        _run_and_job(first, last, [*asked.sets, *asked.set_b], asked.on, outputs)
    else:
        _two_jobs((first[0], last), (asked.set_a, asked.set_b), asked, fidelity, outputs)


def _is_run(given: str) -> bool:
    """Whether an argument names a run: its folder, or a file that an importer knows and that is no configuration."""
    from windtunnel.formats.door import importer_of
    from windtunnel.formats.head import head_of
    from windtunnel.formats.importers import CONFIGURATIONS
    from windtunnel.formats.jobs.scripts.script_call import file_of
    from windtunnel.records.run_file import is_run

    path = Path(file_of(given))
    if path.is_dir():
        return is_run(path) or not (path / "config.json").is_file()
    return path.is_file() and importer_of(head_of(path)).name not in CONFIGURATIONS


def _is_served(given: str) -> bool:
    """Whether an argument is what an inference server or its benchmark printed."""
    from windtunnel.formats.door import importer_of
    from windtunnel.formats.head import head_of
    from windtunnel.jobs.described import LONGEST

    path = Path(given)
    return len(given) <= LONGEST and path.is_file() and importer_of(head_of(path)).name == "served"


def _result_and_server(result: str, server: str, asked: CompareCommandOptions, outputs: Outputs) -> None:
    """A result beside the prediction of the server that a line or a model's name says."""
    from windtunnel.api.serving import answer_serve
    from windtunnel.serving.options import ServeOptions
    from windtunnel.serving.sheet import server_sheet

    if asked.on is None:
        raise SpecError(
            "--on", "nothing", "the machine of the server", "For example: windtunnel compare RESULT start.sh --on h100-ib."
        )
    options = ServeOptions(server, asked.on, measured=result, overrides=(*asked.sets, *asked.set_b), record=outputs.wants_detail)
    answer = answer_serve(options)
    outputs.show(server_sheet(answer), answer.as_dict)


def _capture_and_job(files: Sequence[str], name: str, asked: CompareCommandOptions, outputs: Outputs) -> None:
    """What a framework does beside what our graph of a job has."""
    from windtunnel.api.against import against, against_sheet
    from windtunnel.api.capture import read_capture

    loaded = job_of(name, [*asked.sets, *asked.set_b], asked.on)
    with show_spinner("comparing"):
        found = against(read_capture(files), loaded.job)
    tell_assumed(loaded)
    outputs.show(against_sheet(found), found.as_dict)
    tell_ignored(loaded)


def _two_jobs(
    names: tuple[str, str], own: tuple[Sequence[str], ...], asked: CompareCommandOptions, fidelity: str, outputs: Outputs
) -> None:
    from windtunnel.api.compare_sheet import compare_sheet
    from windtunnel.api.comparison import compare
    from windtunnel.predict import predict

    jobs = [job_of(name, [*asked.sets, *one], asked.on).job for name, one in zip(names, own, strict=True)]
    with show_spinner("predicting both"):
        first, second = (predict(job, fidelity) for job in jobs)
    comparison = compare(first, second)
    outputs.show(compare_sheet(comparison), comparison.as_dict)


def _run_and_job(files: list[str], name: str, sets: list[str], on: str | None, outputs: Outputs) -> None:
    from windtunnel.cli.runs import run_of
    from windtunnel.runs.comparison import compare_run
    from windtunnel.runs.comparison_sheet import comparison_sheet

    loaded = job_of(name, sets, on)
    run, broken = run_of(files)
    with show_spinner("comparing"):
        comparison = compare_run(run, loaded.job)
    tell_assumed(loaded)
    print_list(broken, "could not be read")
    outputs.show(comparison_sheet(comparison, broken), comparison.as_dict)
    tell_ignored(loaded)
