"""`windtunnel fleet diagnose`: the self-tests of this node, against what a cluster's description expects."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.common import Sets, machines, show_spinner, write_json
from windtunnel.cli.shared.outputs import Outputs


def command(
    tests: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Tests to run; default: all of one node.")] = None,
    expect: Annotated[
        str | None,
        typer.Option("--expect", metavar="CLUSTER", help="The cluster that this node belongs to.", autocompletion=machines),
    ] = None,
    sets: Sets = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Run nothing; write the tests and their expected values for the driver.")
    ] = False,
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.base.errors import SpecError, UnknownName
    from windtunnel.fleet.api import run_node_test
    from windtunnel.fleet.diagnose.registry import TESTS
    from windtunnel.runs.fleet.diagnosis import diagnosis_dict, diagnosis_sheet, expected_tests
    from windtunnel.spec import load_cluster

    for name in tests or ():
        if name not in TESTS:
            raise UnknownName("test", name, list(TESTS))
    cluster = load_cluster(expect, sets or ()) if expect is not None else None
    if plan:
        if cluster is None:
            raise SpecError(
                "--plan", "no cluster", "--plan with --expect CLUSTER", "Type: windtunnel fleet diagnose --plan --expect h100-ib"
            )
        if outputs.csv is not None or outputs.wants_detail:
            raise SpecError("--plan", "a page, CSV or a sheet", "--plan with --json", "A plan is data for the driver.")
        write_json(diagnosis_dict(cluster), outputs.json or "-")
        return
    expected = {one.test: one.options() for one in expected_tests(cluster)} if cluster is not None else {}
    chosen = tests or [name for name, test in TESTS.items() if test.single_node]
    found = []
    for name in chosen:
        with show_spinner(f"running {name}"):
            found.append(run_node_test(name, expected.get(name, [])))
    outputs.show(diagnosis_sheet(found), found)
    if any(one["passed"] is False for one in found):
        raise typer.Exit(1)
