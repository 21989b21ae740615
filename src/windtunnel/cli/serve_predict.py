"""`windtunnel serve-predict MODEL --on CLUSTER`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.api.serving import serve_predict
from windtunnel.cli.shared.common import Sets
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.serving import (
    DRAFTED,
    SPECULATE,
    Machine,
    ModelArgument,
    OutputLength,
    PromptLength,
    Seed,
    check_given,
)
from windtunnel.serving.engine import ENGINES

EXAMPLES = """\b
Examples:
  windtunnel serve-predict llama3.1-70b --on h100-ib --tp 4 --weights fp8 --concurrency 64
  windtunnel serve-predict deepseek-v3 --on b200-ib --engine sglang --tp 8 --weights fp8 --isl 8192 --osl 1024 --concurrency 32
  windtunnel serve-predict llama3.1-70b --on h100-ib --gpus 8 --tp 4 --prefill gpus=4,tp=2 --weights fp8 --isl 8192 --rate 2
  windtunnel serve-predict llama3.1-8b --on h100-ib --gpus 2 --tp 1 --trace azure.csv --ttft 1 --tpot 0.05
"""


@with_outputs
def command(  # long: every option
    model: ModelArgument = None,
    on: Machine = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs of all copies; default: those of one.")] = None,
    engine: Annotated[str, typer.Option("--engine", help=f"{ENGINES.own_words}.")] = ENGINES.default,
    tp: Annotated[
        int | None, typer.Option("--tp", min=1, help="Ranks that share attention heads; default: those of a node.")
    ] = None,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, help="DP attention: groups of tp ranks that share the experts.")] = 1,
    ep: Annotated[int, typer.Option("--ep", min=1, help="Ranks, of tp x dp, that divide the experts.")] = 1,
    weights: Annotated[str, typer.Option("--weights", help="Format of the weights: bf16, fp8 or nvfp4.")] = "bf16",
    attention_weights: Annotated[
        str | None, typer.Option("--attention-weights", help="Format of attention's projections, where it differs.")
    ] = None,
    kv: Annotated[str, typer.Option("--kv", help="Format of the cache: bf16, fp8 or nvfp4.")] = "bf16",
    isl: PromptLength = "1024",
    osl: OutputLength = "1024",
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Closed loop: users with one request each at a time; default: 16.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Open loop: requests a second.")] = None,
    burstiness: Annotated[float, typer.Option("--burstiness", help="Of --rate: 1 is Poisson, below is burstier.")] = 1.0,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="How many requests; default: ten for each user.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Requests of a trace: Azure's, Mooncake's or BurstGPT's columns.")
    ] = None,
    speed: Annotated[float, typer.Option("--speed", help="Of --trace: 2 plays it twice as fast.")] = 1.0,
    ttft: Annotated[float | None, typer.Option("--ttft", metavar="SECONDS", help="Limit of the time to the first token.")] = None,
    tpot: Annotated[
        float | None, typer.Option("--tpot", metavar="SECONDS", help="Limit of the time of each further token.")
    ] = None,
    step_tokens: Annotated[
        int | None, typer.Option("--step-tokens", min=1, help="Most tokens of a forward pass; default: the engine's.")
    ] = None,
    running: Annotated[int | None, typer.Option("--running", min=1, help="Most requests that run at once.")] = None,
    polls: Annotated[
        int | None, typer.Option("--polls", min=1, help="Decoding passes between two looks at new requests (SGLang); default 1.")
    ] = None,
    memory: Annotated[float | None, typer.Option("--memory", help="Share of GPU memory that the engine may use.")] = None,
    prefill: Annotated[
        str | None,
        typer.Option("--prefill", metavar="gpus=N,tp=N", help="Prompts have copies of their own beside --gpus, which decode."),
    ] = None,
    speculate: Annotated[str | None, typer.Option("--speculate", metavar=DRAFTED, help=SPECULATE)] = None,
    seed: Seed = 1,
    sets: Sets = None,
    *,
    outputs: Outputs,
) -> None:
    model, on = check_given(model, on)
    answer = serve_predict(
        model,
        on,
        gpus,
        engine,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        weights=weights,
        attention_weights=attention_weights,
        kv=kv,
        isl=isl,
        osl=osl,
        concurrency=concurrency,
        rate=rate,
        burstiness=burstiness,
        requests=requests,
        trace=trace,
        speed=speed,
        ttft=ttft,
        tpot=tpot,
        step_tokens=step_tokens,
        running=running,
        polls=polls,
        memory=memory,
        prefill=prefill,
        speculate=speculate,
        seed=seed,
        record=outputs.wants_detail,
        overrides=sets or (),
    )
    from windtunnel.serving.sheet import server_sheet

    outputs.show(server_sheet(answer), answer.as_dict())
