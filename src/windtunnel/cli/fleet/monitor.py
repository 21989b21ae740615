"""`windtunnel fleet monitor RUN`: tells what goes wrong in a running job, as it comes."""

from __future__ import annotations

import json as text
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.cli.fleet.run_options import Counters, LogRules, WatchLog, Webhook

if TYPE_CHECKING:
    from windtunnel.fleet.findings.finding import Finding
    from windtunnel.fleet.recorded import Recorded


def command(
    run: Annotated[str, typer.Argument(metavar="RUN|URL", help="A watched run's folder, or the address of its collector.")],
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Seconds between two looks.")] = 1.0,
    json: Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Append each alarm as a line of JSON.")] = None,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB", help="Also report differences from this job's prediction: a name or a file."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="PARQUET", help="With --job: measurements of the job's GPU, preferred to fitted curves."),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=4, help="With --job: compare the last N steps.")] = 10,
    once: Annotated[
        bool, typer.Option("--once", help="Run until the first alarm or the job's end; exit with 3 after an alarm.")
    ] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for the run to begin, and do not exit when it has ended.")] = False,
    share: Annotated[
        float,
        typer.Option("--share", min=0.001, max=1.0, help="Largest share of a core to spend on judging which ranks are slow."),
    ] = 1.0,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge/--no-judge",
            help="Judge the ranks, or look at this machine's lines, disk and devices only: another monitor judges.",
        ),
    ] = True,
    webhook: Webhook = "",
    log_rules: LogRules = None,
    watch_log: WatchLog = None,
    counters: Counters = None,
) -> None:  # long: each option of the command is a parameter
    from windtunnel.cli.shared.common import notes
    from windtunnel.fleet.api import monitor_run
    from windtunnel.fleet.launch.sidecars import STEPS
    from windtunnel.fleet.launch.webhook import AlarmWebhook

    target = None if json in (None, "-") else Path(str(json))
    kept = target.with_name(STEPS) if target is not None and stay else None
    console = notes()
    hook = AlarmWebhook(webhook, os.environ.get("WINDTUNNEL_FLEET_RUN") or Path(run).name) if webhook else None
    if hook is not None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that alarms that wait are sent
    try:
        looks = monitor_run(
            run, every, against=_against(job, steps, profile), share=share, stay=stay, kept=kept, log_rules=log_rules,
            watch_log=tuple(watch_log or ()), counters=tuple(counters or ()), judge=judge,
        )  # fmt: skip
        for alarms in looks:
            for alarm in alarms:
                if hook is not None:
                    hook.offer(alarm)
                line = text.dumps(alarm.as_dict())
                if json == "-":
                    print(line, flush=True)
                elif target is not None:
                    with suppress(OSError):  # on a full disk the terminal has it all the same
                        _append(target, line + "\n")
                if json != "-":
                    stamp = time.strftime("%H:%M:%S", time.localtime(alarm.seconds))
                    state = "over: " if alarm.cleared else ""
                    console.print(f"{stamp} {alarm.verdict}: {state}{alarm.text}", markup=False, highlight=False, soft_wrap=True)
            if once and alarms:
                raise typer.Exit(3)
    finally:
        if hook is not None:
            hook.close()


def _append(path: Path, line: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:
        file.write(line)


def _against(job: str | None, steps: int, profile: str | None) -> Callable[[Recorded], Sequence[Finding]]:
    """What leaves the prediction of a job; nothing without a job."""
    if job is None:
        return lambda recorded: ()
    from windtunnel.cli.shared.job import job_of, tell_source
    from windtunnel.runs.fleet.watching import Expectation

    loaded = job_of(job)
    tell_source(loaded)
    return Expectation(loaded.job, steps, profile)
