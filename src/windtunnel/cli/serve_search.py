"""`windtunnel serve-search MODEL --on CLUSTER`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import Sets
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.cli.shared.serving import (
    DRAFTED,
    SPECULATE,
    Machine,
    ModelArgument,
    OutputLength,
    PromptLength,
    Seed,
    check_given,
    words_of,
)
from windtunnel.serving.engine import ENGINES

EXAMPLES = """\b
Examples:
  windtunnel serve-search llama3.1-70b --on h100-ib --weights fp8 --isl 4096 --osl 1024 --ttft 2 --tpot 0.03
  windtunnel serve-search llama3.1-70b --on h100-ib --weights fp8 --isl 8192 --osl 512 --ttft 3 --tpot 0.02 --prefill
  windtunnel serve-search deepseek-v3 --on b200-ib --gpus 16 --engine sglang,trtllm --weights fp8,nvfp4
"""


@with_outputs
def command(
    model: ModelArgument = None,
    on: Machine = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Most GPUs of a copy; default: those of a node.")] = None,
    engine: Annotated[str, typer.Option("--engine", help=f"{ENGINES.own_words}; several with commas.")] = ENGINES.default,
    weights: Annotated[str, typer.Option("--weights", help="Formats of the weights: bf16, fp8, nvfp4, with commas.")] = "bf16",
    kv: Annotated[str, typer.Option("--kv", help="Formats of the cache, likewise.")] = "bf16",
    isl: PromptLength = "1024",
    osl: OutputLength = "1024",
    users: Annotated[
        str | None, typer.Option("--users", metavar="N,N,...", help="Users of a copy that are tried; default: 1 to 1,024.")
    ] = None,
    ttft: Annotated[
        float | None, typer.Option("--ttft", metavar="SECONDS", help="Limit of the time to the first token, for nine of ten.")
    ] = None,
    tpot: Annotated[
        float | None, typer.Option("--tpot", metavar="SECONDS", help="Limit of the time of each further token, for nine of ten.")
    ] = None,
    speculate: Annotated[
        list[str] | None, typer.Option("--speculate", metavar=DRAFTED, help=f"{SPECULATE} May be repeated; none: no drafts.")
    ] = None,
    prefill: Annotated[
        bool, typer.Option("--prefill", help="Try prompts on copies of their own too, with --gpus GPUs in all for either kind.")
    ] = False,
    seed: Seed = 1,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Worker processes; default: one for each core.")] = None,
    sets: Sets = None,
    *,
    outputs: Outputs,
) -> None:
    model, on = check_given(model, on)
    from windtunnel.api.serving import serve_search

    counts = None if users is None else _counts(users)
    lists = {"engines": words_of(engine), "weights": words_of(weights), "kv": words_of(kv)}
    with bar(f"serving {model}") as progress:
        found = serve_search(
            model, on, gpus, **lists, isl=isl, osl=osl, users=counts, speculate=speculate or (), prefill=prefill, ttft=ttft,
            tpot=tpot, seed=seed, processes=jobs, progress=progress, overrides=sets or (),
        )  # fmt: skip
    from windtunnel.serving.front_sheet import front_sheet

    shared = [model, "--on", on, "--isl", isl, "--osl", osl, "--seed", str(seed)]
    asked = [shlex.quote(word) for word in [*shared, *(word for text in sets or () for word in ("--set", text))]]
    outputs.show(front_sheet(found, asked), found.as_dict())


def _counts(text: str) -> list[int]:
    try:
        found = [int(word) for word in words_of(text)]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise SpecError("--users", text, "positive numbers with commas, such as 1,8,64")
    return found
