"""`windtunnel plan --budget DOLLARS --days DAYS --loss NATS`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.amounts import amount, counts
from windtunnel.cli.shared.amounts import days as days_of
from windtunnel.cli.shared.common import Sets
from windtunnel.cli.shared.machines import split_list
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import bar

EXAMPLES = """\b
Examples:
  windtunnel plan --budget 2M --days 30
  windtunnel plan --loss 2.0 --on h100-ib,b200-ib --days 60
  windtunnel plan --model llama3.1-8b --tokens 2T --on h100-ib --gpus 256,512,1024
  windtunnel plan --days 30 --tokens-per-parameter 20 --on a100-ib --gpus 3360 --set cluster.price_per_gpu_hour=1.8
"""


@with_outputs
def command(  # long: one option a line
    budget: Annotated[str | None, typer.Option("--budget", metavar="DOLLARS", help="Most dollars to spend, such as 2M.")] = None,
    days: Annotated[
        str | None, typer.Option("--days", metavar="DAYS", help="Days until the deadline; also 30d, '3 weeks'.")
    ] = None,
    loss: Annotated[str | None, typer.Option("--loss", metavar="NATS", help="Loss to reach, by the law (nats per token).")] = None,
    on: Annotated[list[str] | None, typer.Option("--on", metavar="CLUSTER,...", help="Clusters to try; repeatable.")] = None,
    gpus: Annotated[str | None, typer.Option("--gpus", metavar="N,...", help="Numbers of GPUs to try.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME|FILE", help="This model, of the catalogue or a file.")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="N", help="A decoder of about this size, such as 70B.")
    ] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", metavar="N", help="This many tokens, such as 2T.")] = None,
    ratio: Annotated[
        str | None,
        typer.Option("--tokens-per-parameter", metavar="N", help="Tokens for each parameter, instead of the best split."),
    ] = None,
    law: Annotated[
        str,
        typer.Option("--law", metavar="NAME|FILE", help="Law of the loss: epoch, hoffmann or a file; --set law.E=1.7 changes it."),
    ] = "epoch",
    goodput: Annotated[float, typer.Option("--goodput", metavar="SHARE", help="Share of the days spent on useful steps.")] = 1.0,
    sets: Sets = None,
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.api.choices import plan
    from windtunnel.spec import load_law

    own = [text for text in sets or [] if not text.strip().startswith("law.")]
    changes = [text.strip().removeprefix("law.") for text in sets or [] if text.strip().startswith("law.")]
    with bar("planning") as progress:
        answer = plan(
            budget=amount(budget, "--budget"),
            days=days_of(days, "--days"),
            loss=amount(loss, "--loss"),
            on=split_list(on),
            gpus=counts(gpus),
            model=model,
            parameters=amount(parameters, "--parameters"),
            tokens=amount(tokens, "--tokens"),
            tokens_per_parameter=amount(ratio, "--tokens-per-parameter"),
            law=load_law(law, changes),
            goodput=goodput,
            overrides=own,
            progress=progress,
        )
    from windtunnel.search.budget.data import as_dict
    from windtunnel.search.budget.sheet import plan_sheet

    outputs.show(plan_sheet(answer), as_dict(answer))
