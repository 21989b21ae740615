"""A trained model behind an inference engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.serving.engine import ENGINES

if TYPE_CHECKING:
    from windtunnel.serving import Served, ServeFront
    from windtunnel.serving.speculation import Speculation
    from windtunnel.spec import Cluster, Model


def serve_predict(  # long: every option of the command line
    model: str | Path | Model,
    on: str | Path | Cluster,
    gpus: int | None = None,
    engine: str = ENGINES.default,
    *,
    tp: int | None = None,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    weights: str = "bf16",
    attention_weights: str | None = None,
    kv: str = "bf16",
    isl: int | str = 1024,
    osl: int | str = 1024,
    concurrency: int | None = None,
    rate: float | None = None,
    burstiness: float = 1.0,
    requests: int | None = None,
    trace: str | Path | None = None,
    speed: float = 1.0,
    ttft: float | None = None,
    tpot: float | None = None,
    step_tokens: int | None = None,
    running: int | None = None,
    polls: int | None = None,
    memory: float | None = None,
    prefill: str | None = None,
    speculate: str | None = None,
    seed: int = 1,
    record: bool = False,
    overrides: Sequence[str] = (),
) -> Served:
    """How fast `model` answers on `gpus` of the machine `on` behind `engine` (vllm, sglang, trtllm), what it costs, and what fits.

    The plan of a copy: `tp` ranks share attention heads, `dp` groups of them share experts (DP attention), `ep` of these divide
    the experts, `pp` stages; copies fill the GPUs. Without `tp`: a node's GPUs as far as they divide the heads. `weights`,
    `attention_weights`, `kv`: bf16, fp8, nvfp4.

    The load: lengths `isl` and `osl` (a number, "LOW-HIGH", "MEAN~CV", "MEAN~CV<CAP"), sent by `concurrency` users, each with one
    request at a time (the default: 16), or at `rate` requests a second with `burstiness` as vLLM's benchmark has it; or a `trace`
    file, played at `speed`. `requests`: how many. `ttft`, `tpot`: limits in seconds. `step_tokens`, `running`, `memory`: limits of
    the engine in place of its defaults. `prefill`: prompts have copies of their own beside the `gpus` that decode, such as
    "gpus=8,tp=4" (and pp, dp, ep); their caches travel over the NICs. `speculate`: what drafts tokens, how many a pass, and how
    many tokens a pass yields, such as "mtp,drafts=3,accepted=2.4", "eagle,drafts=3,rate=0.7" or
    "draft=llama3.2-1b,drafts=4,rate=0.8". `overrides`: fields of model and cluster, such as "cluster.node.gpu.memory=96GiB".
    `record`: the answer has a `detail` for pages: each request's latencies, what passes did, where a pass's time goes.

    Raises WindtunnelError with what to type instead.
    """
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.jobs.machines import cluster_table
    from windtunnel.serving import ServePlan, Server, read_trace, serve, serve_apart, server_of
    from windtunnel.serving.load import drawn_load
    from windtunnel.serving.server import first_plan_of, prefill_of, server_model

    whole = load_model_apart(str(model)) if isinstance(model, (str, Path)) else model
    machine = cluster_table(str(on)) if isinstance(on, (str, Path)) else on
    changes = list(overrides)
    if tp is None:
        chosen = first_plan_of(whole, machine, gpus, changes, dp * pp)
        tp = chosen.tp

    drafted = _speculation(speculate, server_model(whole, machine, gpus, changes)) if speculate is not None else None

    def server_on(count: int, plan: ServePlan) -> Server:
        return server_of(
            whole, machine, count, engine, plan, weights=weights, attention_weights=attention_weights, kv=kv,
            step_tokens=step_tokens, running=running, polls=polls, memory=memory, speculation=drafted, overrides=changes,
        )  # fmt: skip

    server = server_on(gpus if gpus is not None else tp * dp * pp, ServePlan(tp=tp, pp=pp, dp=dp, ep=ep))
    if trace is not None:
        load = read_trace(trace, concurrency=concurrency, speed=speed, most=requests)
    else:
        users = 16 if concurrency is None and rate is None else concurrency
        load = drawn_load(isl, osl, requests=requests, concurrency=users, rate=rate, burstiness=burstiness, seed=seed)
    if prefill is not None:
        return serve_apart(server_on(*prefill_of(prefill)), server, load, ttft=ttft, tpot=tpot, record=record)
    return serve(server, load, ttft=ttft, tpot=tpot, record=record)


def serve_search(  # long: every option of the command line
    model: str | Path | Model,
    on: str | Path | Cluster,
    gpus: int | None = None,
    *,
    engines: Sequence[str] = (ENGINES.default,),
    weights: Sequence[str] = ("bf16",),
    kv: Sequence[str] = ("bf16",),
    isl: int | str = 1024,
    osl: int | str = 1024,
    users: Sequence[int] | None = None,
    speculate: Sequence[str] = (),
    prefill: bool = False,
    ttft: float | None = None,
    tpot: float | None = None,
    seed: int = 1,
    processes: int | None = None,
    progress: Callable[[float], object] | None = None,
    overrides: Sequence[str] = (),
) -> ServeFront:
    """Which copies of `model`, of at most `gpus` GPUs of the machine `on` (by default a node's), serve most tokens a second and
    GPU, and which a user sees fastest: every plan of powers of two, with each of `engines`, formats of `weights` and `kv`, and
    numbers of `users` of a copy. `ttft`, `tpot`: limits in seconds that nine of ten requests keep. Lengths as in `serve_predict`.
    `speculate`: texts as in `serve_predict`, each of which is tried, and "none". `prefill`: prompts on copies of
    their own are tried too, in the number that their side needs, with `gpus` GPUs in all for either kind.

    Raises WindtunnelError with what to type instead.
    """
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.jobs.machines import cluster_table
    from windtunnel.serving import ServeQuestion, search_servers
    from windtunnel.serving.search import USERS
    from windtunnel.serving.server import probe_job

    whole = load_model_apart(str(model)) if isinstance(model, (str, Path)) else model
    machine = cluster_table(str(on)) if isinstance(on, (str, Path)) else on
    probe = probe_job(whole, machine, gpus, list(overrides))
    most = gpus if gpus is not None else probe.cluster.node.gpus
    counts = tuple(sorted(set(users))) if users else USERS
    question = ServeQuestion(
        probe.model,
        probe.cluster,
        most,
        tuple(engines),
        tuple(weights),
        tuple(kv),
        counts,
        str(isl),
        str(osl),
        ttft,
        tpot,
        seed,
        tuple(_speculation(text, probe.model) for text in speculate) or (None,),
        prefill,
    )
    return search_servers(question, processes, progress)


def _speculation(text: str, model: Model) -> Speculation | None:
    """What a text says of drafts for `model`; a model that drafts may be any that serve-predict takes."""
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.serving.speculation import speculation_of

    return speculation_of(text, model, load_model_apart)
