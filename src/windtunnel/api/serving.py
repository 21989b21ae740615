"""A trained model behind an inference engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.options import asks
from windtunnel.serving.options import ServeOptions, ServeSearchOptions

if TYPE_CHECKING:
    from windtunnel.exports.exporters import Written
    from windtunnel.serving import Served, ServeFront, ServeLoad, Server
    from windtunnel.serving.calibrated import CalibratedServer
    from windtunnel.serving.speculation import Speculation
    from windtunnel.spec import Model


def answer_serve(asked: ServeOptions) -> Served:
    """How fast a model answers on the GPUs of a machine behind an engine, what it costs, and what fits.

    The plan of a copy: `tp` ranks share attention heads, `dp` groups of them share experts (DP attention), `ep` of these divide
    the experts, `pp` stages; copies fill the GPUs. Without `tp`: a node's GPUs as far as they divide the heads.

    The load: lengths `isl` and `osl` (a number, "LOW-HIGH", "MEAN~CV", "MEAN~CV<CAP"), sent by `concurrency` users, each with one
    request at a time, or at `rate` requests a second with `burstiness` as vLLM's benchmark has it; or a `trace` file, played at
    `speed`. `prefill`: prompts have copies of their own beside the `gpus` that decode, such as "gpus=8,tp=4" (and pp, dp, ep);
    their caches travel over the NICs. `speculate`: such as "mtp,drafts=3,accepted=2.4", "eagle,drafts=3,rate=0.7" or
    "draft=llama3.2-1b,drafts=4,rate=0.8". `overrides`: fields of model and cluster, such as "cluster.node.gpu.memory=96GiB".

    Raises WindtunnelError with what to type instead.
    """
    from windtunnel.serving import serve, serve_apart

    asked, notes = with_launch(asked)
    found = None
    if asked.measured is not None:
        from windtunnel.formats.logs.served import read_served

        found = read_served(Path(asked.measured))
        asked = replace(asked, **_not_stated(asked, found.load))
    server, front = servers_of(asked)
    if asked.calibration is not None:
        from windtunnel.serving.calibrated import read_server_calibration

        calibration = read_server_calibration(asked.calibration)
        server, front = calibration.apply(server), None if front is None else calibration.apply(front)
        notes = (*notes, f"calibrated: {calibration.in_words()}")
    load = _load_of(asked)
    if front is not None:
        served = serve_apart(front, server, load, ttft=asked.ttft, tpot=asked.tpot, record=asked.record)
    else:
        served = serve(server, load, ttft=asked.ttft, tpot=asked.tpot, record=asked.record)
    return replace(served, notes=(*notes, *served.notes), measured=found) if notes or found else served


def answer_server_calibration(
    results: Sequence[str | Path], line: str | Path, on: str | Path | None, overrides: Sequence[str] = ()
) -> CalibratedServer:
    """Host and client time of the server that `line` starts (a line, a script, a manifest), or of a model on one copy, by the first
    of the results that its benchmark printed; the others are predicted with and without it. Each result states its load. Errors as
    of `answer_serve`, and SpecError without a machine."""
    from windtunnel.formats.logs.served import read_served
    from windtunnel.jobs.machines import no_machine
    from windtunnel.serving.calibrated import calibrate_server

    if on is None:
        raise no_machine()
    measured = []
    for path in results:
        found = read_served(Path(path))
        asked = with_launch(ServeOptions(str(line), on, overrides=tuple(overrides)))[0]
        asked = replace(asked, **_not_stated(asked, found.load))
        measured.append((found, servers_of(asked)[0], _load_of(asked)))
    return calibrate_server(measured, ", ".join(Path(path).name for path in results[:1]))


def _load_of(asked: ServeOptions) -> ServeLoad:
    """The requests of these options."""
    from windtunnel.serving import read_trace
    from windtunnel.serving.load import drawn_load

    if asked.trace is not None:
        return read_trace(asked.trace, concurrency=asked.concurrency, speed=asked.speed, most=asked.requests)
    users = 16 if asked.concurrency is None and asked.rate is None else asked.concurrency
    return drawn_load(
        asked.isl, asked.osl, requests=asked.requests, concurrency=users, rate=asked.rate, burstiness=asked.burstiness,
        seed=asked.seed,
    )  # fmt: skip


def export_server(tool: str, options: ServeOptions) -> Written:
    """The script that starts the server of these options with a tool of `exports.servers.TOOLS`, which `serve_predict` reads again.

    Raises WindtunnelError with what to type for options that are none, and for a plan that the tool cannot run.
    """
    from windtunnel.exports.servers import hub_name, launch_script

    asked = with_launch(options)[0]
    asked = asked if tool == "dynamo" else replace(asked, engine=tool)
    server, front = servers_of(asked)
    named, assumed = hub_name(str(asked.model), server.model)
    prefill = None if front is None else (front.plan, front.replicas)
    written = launch_script(server, named, tool, prefill=prefill, context=asked.max_model_len)
    return replace(written, assumed=(*assumed, *written.assumed))


def servers_of(asked: ServeOptions) -> tuple[Server, Server | None]:
    """The server of these options, and the one of copies for prompts, where they have their own. Errors as of `answer_serve`."""
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.jobs.machines import cluster_table
    from windtunnel.serving import ServePlan, server_of
    from windtunnel.serving.server import first_plan_of, prefill_of, server_model

    whole = load_model_apart(str(asked.model)) if isinstance(asked.model, (str, Path)) else asked.model
    machine = cluster_table(str(asked.on)) if isinstance(asked.on, (str, Path)) else asked.on
    changes, tp = list(asked.overrides), asked.tp
    if tp is None:
        tp = first_plan_of(whole, machine, asked.gpus, changes, asked.dp * asked.pp).tp
    drafted = None
    if asked.speculate is not None:
        drafted = _speculation(asked.speculate, server_model(whole, machine, asked.gpus, changes))

    def server_on(count: int, plan: ServePlan) -> Server:
        return server_of(
            whole, machine, count, asked.engine, plan, weights=asked.weights, attention_weights=asked.attention_weights,
            kv=asked.kv, step_tokens=asked.step_tokens, running=asked.running, polls=asked.polls, memory=asked.memory,
            speculation=drafted, context=asked.max_model_len, eager=asked.eager, overrides=changes,
        )  # fmt: skip

    plan = ServePlan(tp=tp, pp=asked.pp, dp=asked.dp, ep=asked.ep)
    server = server_on(asked.gpus if asked.gpus is not None else plan.gpus, plan)
    return server, server_on(*prefill_of(asked.prefill)) if asked.prefill is not None else None


def _not_stated(options: ServeOptions, said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `said` that nothing states."""
    defaults = {one.name: one.default for one in fields(ServeOptions)}
    stated = {name for name, default in defaults.items() if name != "model" and getattr(options, name) != default}
    if {"rate", "concurrency"} & stated:
        stated |= {"rate", "concurrency"}
    return {name: value for name, value in said.items() if name not in stated}


def with_launch(options: ServeOptions) -> tuple[ServeOptions, tuple[str, ...]]:
    """The options of a line, script or manifest that starts a server, where the model is one; what is stated beside it beats it.
    And what was read, ignored and assumed. Raises SpecError for a text that starts no server."""
    from windtunnel.jobs.server_line import launched_server

    launched = launched_server(options.model)
    if launched is None:
        return options, ()
    from windtunnel.formats.jobs.servers.launch import weights_of
    from windtunnel.jobs.imports import load_model_apart

    where = Path(str(options.model)).name if not any(letter.isspace() for letter in str(options.model)) else "the line"
    said = dict(launched.fields)
    whole = load_model_apart(said["model"], launched.assumed)
    if options.weights is None and launched.quantization and whole.checkpoint is None:
        said["weights"] = weights_of(launched.quantization)
        if said["weights"] is None:
            launched.assumed.append(f"weights of 16 bits: {launched.quantization} is no quantisation that is known")
    copies = said.pop("copies", 1)
    if not whole.experts and said.get("dp", 1) > 1:  # engines start copies of a dense model
        copies *= said.pop("dp")
    made = replace(options, **_not_stated(options, said))
    tp = made.tp or 1
    made = replace(made, tp=tp, gpus=made.gpus if made.gpus is not None else copies * tp * made.pp * made.dp)
    return made, launched.notes(where)


def answer_search(asked: ServeSearchOptions) -> ServeFront:
    """Which copies of a model, of at most `gpus` GPUs of a machine (by default a node's), serve most tokens a second and GPU, and
    which a user sees fastest: every plan of powers of two, with each of `engines`, formats of `weights` and `kv`, and numbers of
    `users` of a copy. `ttft`, `tpot`: limits in seconds that nine of ten requests keep. Lengths as in `serve_predict`. `speculate`:
    texts as in `serve_predict`, each of which is tried, and "none". `prefill`: prompts on copies of their own are tried too, in the
    number that their side needs, with `gpus` GPUs in all for either kind. `rate` or `all_users`: requests a second, or users, of a
    whole load; the answer has how many copies and GPUs it takes, of the choices that keep the limits.

    Raises WindtunnelError with what to type instead.
    """
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.jobs.machines import cluster_table
    from windtunnel.serving import ServeQuestion, search_servers
    from windtunnel.serving.search import USERS
    from windtunnel.serving.server import probe_job
    from windtunnel.serving.whole_load import size_fleets

    whole = load_model_apart(str(asked.model)) if isinstance(asked.model, (str, Path)) else asked.model
    machine = cluster_table(str(asked.on)) if isinstance(asked.on, (str, Path)) else asked.on
    probe = probe_job(whole, machine, asked.gpus, list(asked.overrides))
    question = ServeQuestion(
        probe.model,
        probe.cluster,
        asked.gpus if asked.gpus is not None else probe.cluster.node.gpus,
        tuple(asked.engines),
        tuple(asked.weights) or (None,),
        tuple(asked.kv) or (None,),
        tuple(sorted(set(asked.users))) if asked.users else USERS,
        str(asked.isl),
        str(asked.osl),
        asked.ttft,
        asked.tpot,
        asked.seed,
        tuple(_speculation(text, probe.model) for text in asked.speculate) or (None,),
        asked.prefill,
    )
    front = search_servers(question, asked.processes, asked.progress)
    if asked.rate is None and asked.all_users is None:
        return front
    return replace(front, fleets=size_fleets(question, front, asked.rate, asked.all_users))


serve_predict = asks(ServeOptions)(answer_serve)
serve_search = asks(ServeSearchOptions)(answer_search)


def _speculation(text: str, model: Model) -> Speculation | None:
    """What a text says of drafts for `model`; a model that drafts may be any that serve-predict takes."""
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.serving.speculation import speculation_of

    return speculation_of(text, model, load_model_apart)
