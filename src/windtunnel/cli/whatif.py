"""`windtunnel whatif RUN... --change CHANGE`."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import names_of, print_list, show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.runs.options import WhatIfCommandOptions


def _of_capture(names: list[str], asked: WhatIfCommandOptions, outputs: Outputs) -> None:
    from windtunnel.api.capture import read_capture
    from windtunnel.api.captured_whatif import what_if_captured
    from windtunnel.runs.whatif_sheet import whatif_sheet

    if asked.gpu is not None or asked.job is not None or asked.step is not None:
        raise SpecError("RUN", names[0], "a run beside --from, --job and --step", "Of a capture the machine is known.")
    with show_spinner("replaying"):
        captured = read_capture(names, None if asked.cluster is None else str(asked.cluster))
        rows = what_if_captured(captured, asked.changes)
    outputs.show(whatif_sheet(rows, captured=True), [row.as_dict() for row in rows])


@command_of(WhatIfCommandOptions, order=("run", "changes", "gpu", "cluster", "job", "sets"))
def command(asked: WhatIfCommandOptions, outputs: Outputs) -> None:
    from windtunnel.cli.runs import run_of
    from windtunnel.cli.shared.job import job_of
    from windtunnel.records.capture_file import captured_files
    from windtunnel.runs.whatif import TracedMachine, what_if
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    if captured_files(names := names_of(asked.run)):
        _of_capture(names, asked, outputs)
        return
    if asked.sets and asked.job is None:
        raise SpecError("--set", ", ".join(asked.sets), "--job JOB beside it, whose fields it changes")
    of_run = None if asked.job is None else job_of(str(asked.job), list(asked.sets)).job
    source, on = asked.gpu, asked.cluster
    machine = TracedMachine(
        None if source is None else load_gpu(str(source)), None if on is None else load_cluster(str(on)), of_run
    )
    run, broken = run_of(names_of(asked.run))
    with show_spinner("replaying"):
        rows = what_if(run, asked.changes, machine, asked.step)
    print_list(broken, "could not be read")
    from windtunnel.runs.whatif_sheet import whatif_sheet

    outputs.show(whatif_sheet(rows, broken), [row.as_dict() for row in rows])
