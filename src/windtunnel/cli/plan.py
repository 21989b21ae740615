"""`windtunnel plan --budget DOLLARS --days DAYS --loss NATS`."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.search.options import PlanOptions


@command_of(PlanOptions)
def command(asked: PlanOptions, outputs: Outputs) -> None:
    from windtunnel.api.choices import plan_of
    from windtunnel.search.budget.data import as_dict
    from windtunnel.search.budget.sheet import plan_sheet
    from windtunnel.spec import load_law

    own = [text for text in asked.overrides if not text.strip().startswith("law.")]
    changes = [text.strip().removeprefix("law.") for text in asked.overrides if text.strip().startswith("law.")]
    with bar("planning") as progress:
        answer = plan_of(replace(asked, law=load_law(str(asked.law), changes), overrides=own, progress=progress))
    outputs.show(plan_sheet(answer), as_dict(answer))
