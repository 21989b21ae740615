"""`windtunnel predict JOB`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import Annotated

import typer

from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.common import (
    Background,
    Beside,
    Fault,
    Json,
    Megatron,
    ModelFile,
    Network,
    On,
    PacketThreads,
    Quiet,
    Seed,
    Sets,
    Source,
    fault_sets,
    notes,
    show_spinner,
    writable,
    write_json,
)
from windtunnel.cli.shared.job import job_beside, job_of, states_rl, tell_assumed, tell_ignored
from windtunnel.cli.shared.progress import bar
from windtunnel.jobs.load import with_calibration
from windtunnel.predict import predict

EXAMPLES = """\b
Examples:
  windtunnel predict megascale-175b-12288 --html page.html
  windtunnel predict llama3.1-70b --on h100-ib --set cluster.gpus=512 --set plan.tp=4 --set plan.pp=4
  windtunnel predict config.json --on llama3-8b-8xh100 --json -
  windtunnel predict llama2-70b-64xh100 --network flow --set cluster.fabric.oversubscription=2
  windtunnel predict a.toml --network flow --beside 'b.toml cluster.placement=nodes:8-15'
"""


def command(  # long: one option a line
    job: Source = None,
    sets: Sets = None,
    network: Network = "closed",
    json: Json = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Write the timeline: Perfetto, or Chrome's JSON for a .json name.")
    ] = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page.")] = None,
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
    quiet: Quiet = False,
) -> None:
    fidelity = check_fidelity(network)
    writable(("--json", json), ("--trace", trace), ("--html", html))
    if html is not None and html != "-":
        from windtunnel.draw.page.frame import check_page

        check_page(html)
    for option, path in (("--trace", trace), ("--html", html)):
        if path == "-":
            from windtunnel.base.errors import SpecError

            raise SpecError(option, "-", "a file name", "Only --json prints to standard output.")
    if kernels is not None:
        from windtunnel.compute.kernel_file import is_path, load

        if not is_path(kernels):
            from windtunnel.base.errors import SpecError

            raise SpecError("--kernels", kernels, "a .json file that `windtunnel fit kernels` wrote")
        load(kernels)
        sets = [*(sets or []), f"cluster.node.gpu.kernels_from={kernels}"]
    sets = [*(sets or []), *fault_sets(fault, "cluster.fabric.faults")]
    if job is not None and states_rl(job):
        others_said = (trace, html, profile, kernels, calibration, fault, beside, background, model, megatron)
        if fidelity != "closed" or skip or any(others_said):
            raise _only_training(job)
        from windtunnel.cli.rl_predict import answer_rl
        from windtunnel.cli.shared.outputs import Outputs
        from windtunnel.rl.options import RLPredictOptions

        answer_rl(RLPredictOptions(job, on, tuple(sets or ())), Outputs(json=json, quiet=quiet))
        return
    loaded = job_of(job, sets, on, model, megatron, of_a_run=True)
    if calibration is not None:
        loaded = replace(loaded, job=with_calibration(loaded.job, calibration))
    others = [job_beside(text, sets) for text in beside or ()]
    what = f"predicting {loaded.job.name}"
    loads, flows = html is not None or json is not None, background or ()
    if fidelity == "packet":
        with bar(what) as progress:
            prediction = predict(loaded.job, fidelity, None, seed, skip, progress, profile, loads, others, flows, threads)
    else:
        with show_spinner(what):
            prediction = predict(loaded.job, fidelity, None, seed, skip, None, profile, loads, others, flows)
    tell_assumed(loaded)
    if json is not None:
        from windtunnel.report.json import to_json

        write_json(to_json(prediction), json)
    if trace is not None:
        from windtunnel.report.timeline.trace import write_trace

        with show_spinner("writing the timeline"):
            slices = write_trace(prediction, trace, prediction.kernel_timeline)
        notes().print(f"{trace}: {slices:,} slices", markup=False)
    if html is not None:
        from windtunnel.report.page.prediction import write_html

        with show_spinner("writing the page"):
            write_html(prediction, html, shlex.join(["windtunnel", *sys.argv[1:]]))
        notes().print(f"{html}: the report as a page", markup=False)
    if not quiet and json != "-":
        from windtunnel.report.text.terminal import report

        report(prediction)
    tell_ignored(loaded)


def _only_training(job: str) -> Exception:
    from windtunnel.base.errors import SpecError

    allowed = "a training job beside these options: a step of reinforcement learning has --set, --on, --json and --quiet"
    return SpecError("JOB", job, allowed, f"Write windtunnel rl-predict {job}.")
