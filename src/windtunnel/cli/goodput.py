"""`windtunnel goodput JOB`."""

from __future__ import annotations

import os

from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.common import bar
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.goodput.options import GoodputCommandOptions

DEFAULT = "llama3-2024"
"""Failures of a job that states none: the largest published run with counts by cause."""

DEFAULT_DAYS = 30.0


def command(asked: GoodputCommandOptions, outputs: Outputs) -> None:
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
