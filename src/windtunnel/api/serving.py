"""A trained model behind an inference engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.options import asks
from windtunnel.serving.options import ServeFleetOptions, ServeOptions, ServeSearchOptions

if TYPE_CHECKING:
    from windtunnel.exports.exporters import Written
    from windtunnel.serving import Served, ServeFront, ServeLoad, Server
    from windtunnel.serving.calibrated import CalibratedServer
    from windtunnel.serving.engine import EngineSettings
    from windtunnel.serving.replicas.answer import FleetServed
    from windtunnel.serving.replicas.curve import RateCurve
    from windtunnel.serving.speculation import Speculation
    from windtunnel.serving.step_times import StepTimes
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
    if asked.tier:
        from windtunnel.serving.tiers import tier_of

        tiers = tuple(tier_of(text) for text in asked.tier)
        server, front = replace(server, tiers=tiers), None if front is None else replace(front, tiers=tiers)
    if asked.calibration is not None:
        from windtunnel.serving.calibrated import read_server_calibration

        calibration = read_server_calibration(asked.calibration)
        server, front = calibration.apply(server), None if front is None else calibration.apply(front)
        notes = (*notes, f"calibrated: {calibration.in_words()}")
    load = _load_of(asked)
    times, beside, said = _times_of(asked, server)
    notes = (*notes, *said)
    if front is not None:
        served = serve_apart(front, server, load, ttft=asked.ttft, tpot=asked.tpot, record=asked.record)
    else:
        served = serve(server, load, ttft=asked.ttft, tpot=asked.tpot, times=times, record=asked.record, beside=beside)
    if server.tiers:
        plain, other = replace(server, tiers=()), None if front is None else replace(front, tiers=())
        without = serve(plain, load) if other is None else serve_apart(other, plain, load)
        served = replace(served, ttft_without=without.ttft.mean)
    if asked.requests_out is not None and served.records is not None:
        served.records.write(asked.requests_out)
    return replace(served, notes=(*notes, *served.notes), measured=found) if notes or found else served


def _times_of(asked: ServeOptions, server: Server) -> tuple[StepTimes | None, int, tuple[str, ...]]:
    """Passes that are not those of the engine's kernels on the server's GPUs alone: measured ones, or with experts on GPUs of their
    own; how many GPUs these are, and notes. SpecError and PlanError for a server that cannot have them."""
    from windtunnel.base.errors import SpecError

    said = {"--passes": asked.passes, "--experts": asked.experts, "--prefill": asked.prefill}
    given = [name for name, value in said.items() if value is not None]
    if len(given) > 1:
        raise SpecError(given[0], str(said[given[0]]), f"one of {' and '.join(given)}", f"Leave out {given[-1]}.")
    if asked.passes is not None:
        from windtunnel.serving.measured_passes import measured_times

        measured = measured_times(server, asked.passes)
        return measured, 0, (measured.law.in_words(),)
    if asked.experts is not None:
        from windtunnel.serving.expert_pool import PooledTimes, pool_of

        pooled = PooledTimes(server, pool=pool_of(asked.experts)).check_pool()
        return pooled, pooled.pool.gpus, (pooled.in_words(),)
    return None, 0, ()


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
    from windtunnel.serving.sessions import read_sessions, shared_of, with_shared_prefix

    shared = shared_of(asked.shared_prefix) if asked.shared_prefix is not None else None
    users = 16 if asked.concurrency is None and asked.rate is None else asked.concurrency
    if asked.sessions is not None:
        return read_sessions(asked.sessions, users=asked.concurrency, speed=asked.speed, shared=shared, seed=asked.seed)
    if asked.turns is not None or (asked.trace is None and str(asked.think) != "0"):
        return _drawn_sessions(asked, users, asked.rate, asked.requests, None)
    if asked.trace is not None:
        found = read_trace(asked.trace, concurrency=asked.concurrency, speed=asked.speed, most=asked.requests)
    else:
        found = drawn_load(
            asked.isl, asked.osl, requests=asked.requests, concurrency=users, rate=asked.rate, burstiness=asked.burstiness,
            seed=asked.seed,
        )  # fmt: skip
    return found if shared is None else with_shared_prefix(found, shared, asked.seed)


def _drawn_sessions(
    asked: ServeOptions, users: int | None, rate: float | None, requests: int | None, curve: RateCurve | None
) -> ServeLoad:
    """Sessions of these options: of `users`, at `rate` turns a second, or as `curve` says."""
    import numpy as np

    from windtunnel.base.lengths import draw_lengths
    from windtunnel.serving.sessions import drawn_sessions, shared_of

    shared = shared_of(asked.shared_prefix) if asked.shared_prefix is not None else None
    turns = asked.turns if asked.turns is not None else 1
    mean = float(draw_lengths("turns", turns, 1000, np.random.default_rng(asked.seed)).mean())
    arrival = None
    if curve is not None:
        draws = np.random.default_rng([asked.seed, 5])
        arrival = curve.scale_to(curve.mean / mean).arrivals(draws, asked.burstiness)
        count = len(arrival)
    else:
        wanted = requests if requests is not None else 10 * users if users else max(200, round(600.0 * (rate or 0.0)))
        count = max(1, round(wanted / mean))
    return drawn_sessions(
        asked.isl, asked.osl, turns, asked.think, sessions=count, users=users if rate is None and curve is None else None,
        rate=rate, burstiness=asked.burstiness, arrival=arrival, shared=shared, seed=asked.seed,
    )  # fmt: skip


def export_server(tool: str, options: ServeOptions) -> Written:
    """The script that starts the server of these options with a tool of `exports.servers.TOOLS`, which `serve_predict` reads again.

    Raises WindtunnelError with what to type for options that are none, and for a plan that the tool cannot run.
    """
    from windtunnel.exports.servers import hub_name, launch_script

    asked = with_launch(options)[0]
    asked = asked if tool == "dynamo" else replace(asked, engine=tool)
    if asked.experts is not None:
        from windtunnel.base.errors import SpecError

        raise SpecError("--option experts", asked.experts, "none: no line starts a server whose experts have GPUs of their own")
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

    whole = load_model_apart(str(asked.model), path="MODEL") if isinstance(asked.model, (str, Path)) else asked.model
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
            kv=asked.kv, speculation=drafted, context=asked.max_model_len, overrides=changes, **vars(_settings_of(asked)),
        )  # fmt: skip

    plan = ServePlan(tp=tp, pp=asked.pp, dp=asked.dp, ep=asked.ep)
    server = server_on(asked.gpus if asked.gpus is not None else plan.gpus, plan)
    return server, server_on(*prefill_of(asked.prefill)) if asked.prefill is not None else None


def _settings_of(asked: ServeOptions | ServeSearchOptions) -> EngineSettings:
    """What the options say of the engine, whatever its plan."""
    from windtunnel.serving.engine import EngineSettings

    return EngineSettings(**{one.name: getattr(asked, one.name) for one in fields(EngineSettings)})


def _not_stated(options: ServeOptions, said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `said` that nothing states."""
    stated = _find_stated(options)
    if {"rate", "concurrency"} & stated:
        stated |= {"rate", "concurrency"}
    return {name: value for name, value in said.items() if name not in stated}


def _find_stated(options: ServeOptions) -> set[str]:
    """The names of the options that are not their defaults, the model's left out."""
    return {one.name for one in fields(ServeOptions) if one.name != "model" and getattr(options, one.name) != one.default}


def with_launch(options: ServeOptions) -> tuple[ServeOptions, tuple[str, ...]]:
    """The options of a line, script or manifest that starts a server, where the model is one; what is stated beside it beats it.
    And what was read, ignored and assumed. Raises SpecError for a text that starts no server."""
    from windtunnel.jobs.server_line import launched_server

    launched = launched_server(options.model)
    if launched is None:
        return options, ()
    from windtunnel.formats.jobs.scripts.script_call import file_of
    from windtunnel.formats.jobs.servers.drafts import weights_of
    from windtunnel.jobs.imports import load_model_apart

    launched.check_unset(_find_stated(options), str(options.model))
    file = file_of(str(options.model))
    where = Path(file).name if not any(letter.isspace() for letter in file) else "the line"
    said = dict(launched.fields)
    whole = load_model_apart(said["model"], launched.assumed, "MODEL")
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


def take_line(asked: ServeSearchOptions) -> ServeSearchOptions:
    """The options with model, engine and its settings, formats, drafts and lengths of a line, script or manifest that starts a
    server, where the model is one; what is stated beside it beats it. The plan, copies and users are what is searched, with prompts
    on copies of their own where the line has them. SpecError for a text that starts no server."""
    if not isinstance(asked.model, (str, Path)):
        return asked
    made, notes = with_launch(ServeOptions(str(asked.model), asked.on))
    if not notes:
        return asked
    defaults = {one.name: one.default for one in fields(ServeSearchOptions)}
    alike = {each.name for each in fields(ServeOptions)} & set(defaults) - {"on", "gpus", "rate", "burstiness", "overrides"}
    said: dict[str, Any] = {name: getattr(made, name) for name in alike}
    said |= {"engines": (made.engine,), "prefill": made.prefill is not None}
    said |= {name: (said[name],) for name in ("weights", "kv", "speculate")}
    said = {name: value for name, value in said.items() if value != (None,) and getattr(asked, name) == defaults[name]}
    return replace(asked, model=made.model, **said)


def answer_search(asked: ServeSearchOptions) -> ServeFront:
    """Which copies of a model, of at most `gpus` GPUs of a machine (by default a node's), serve most tokens a second and GPU, and
    which a user sees fastest: every plan of powers of two, with each of `engines`, formats of `weights` and `kv`, and numbers of
    `users` of a copy. `ttft`, `tpot`: limits in seconds that nine of ten requests keep. Lengths as in `serve_predict`. `speculate`:
    texts as in `serve_predict`, each of which is tried, and "none". `prefill`: prompts on copies of their own are tried too, in the
    number that their side needs, with `gpus` GPUs in all for either kind. `rate` or `all_users`: requests a second, or users, of a
    whole load; the answer has how many copies and GPUs it takes, of the choices that keep the limits. A line that starts a server
    says model, engine and formats, as `take_line` has it.

    Raises WindtunnelError with what to type instead.
    """
    asked = take_line(asked)
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.jobs.machines import cluster_table
    from windtunnel.serving import ServeQuestion, search_servers
    from windtunnel.serving.search import USERS
    from windtunnel.serving.server import probe_job
    from windtunnel.serving.whole_load import size_fleets

    whole = load_model_apart(str(asked.model), path="MODEL") if isinstance(asked.model, (str, Path)) else asked.model
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
        _settings_of(asked),
        asked.attention_weights,
        asked.max_model_len,
        asked.burstiness,
    )
    front = search_servers(question, asked.processes, asked.progress)
    if asked.rate is None and asked.all_users is None:
        return front
    return replace(front, fleets=size_fleets(question, front, asked.rate, asked.all_users))


def answer_fleet_question(asked: ServeFleetOptions) -> FleetServed:
    """How many replicas of a server keep limits under a load, and what users wait, GPUs do and the load costs, behind a router.

    The load: `users` who each have one request at a time, `rate` requests a second, a rate over a day (`curve`: a file, or
    "swing=0.6" about `rate`), a `trace`, or sessions (`turns`, `think`, or a file of `sessions`). Without `replicas` the fewest are
    sought that keep `ttft` and `tpot` (seconds) for nine of ten requests at the peak. `prefill`: prompts on replicas of their own,
    such as "tp=2,replicas=4,on=h200-ib". `mtbf` (hours) and `cold_start` (seconds) say how replicas fail; `autoscale` ("2-40") lets
    their number follow the load. The server's options are those of `serve_predict`.

    Raises WindtunnelError with what to type instead.
    """
    from windtunnel.base.errors import SpecError
    from windtunnel.serving.replicas.sizing import FleetQuestion, answer_fleet

    names = {each.name for each in fields(ServeOptions)} & {each.name for each in fields(ServeFleetOptions)}
    said = {name: getattr(asked, name) for name in names - {"prefill", "requests", "rate", "requests_out"}}
    plan, (fronts, front_machine) = asked.prefill, (None, None)
    if plan is not None:
        plan, fronts, front_machine = _front_of(plan)
    server_asked, notes = with_launch(ServeOptions(**said))
    if plan is None and server_asked.prefill is not None:  # of a line: how many of them is sought
        plan = ",".join(word for word in server_asked.prefill.split(",") if not word.startswith("gpus=")) or "tp=1"
    server = _one_copy(servers_of(replace(server_asked, gpus=None))[0])
    front = None
    if plan is not None:
        other = replace(server_asked, gpus=None, prefill=plan, on=front_machine or server_asked.on)
        found = servers_of(replace(other, tp=None, pp=1, dp=1, ep=1) if front_machine else other)[1]
        front = None if found is None else _one_copy(found)
    curve = _curve_of(asked)
    load = _fleet_load(asked, server_asked, curve, asked.users, asked.rate, asked.requests)
    length = float(load.output.mean())

    def probe(part: float) -> ServeLoad:
        """The load of a part of the fleet at the peak."""
        if curve is None and asked.rate is None and asked.users is None:
            return load.part(0, max(1, round(1.0 / part)))
        if asked.users is not None:
            users = max(1, round(asked.users * part))
            return _fleet_load(asked, server_asked, None, users, None, min(10 * users, 20_000))
        rate = part * (curve.peak if curve is not None else asked.rate or 0.0)
        count = int(min(max(400.0, rate * max(60.0, 0.1 * length)), 20_000.0))
        return _fleet_load(asked, server_asked, None, None, rate, count)

    if asked.mtbf is not None and not asked.mtbf > 0.0:
        raise SpecError("mtbf", asked.mtbf, "hours, such as 500")
    if not asked.cold_start >= 0.0:
        raise SpecError("cold_start", asked.cold_start, "seconds, such as 120")
    question = FleetQuestion(
        server, front, load, probe, asked.router, asked.ttft, asked.tpot, asked.replicas, fronts,
        float("inf") if asked.mtbf is None else 3600.0 * asked.mtbf, asked.cold_start, _scaling_of(asked.autoscale), asked.target,
        1.0 if curve is None else float(curve.rates[0]) / curve.peak, asked.seed, notes,
    )  # fmt: skip
    answer = answer_fleet(question)
    if asked.requests_out is not None:
        answer.records.write(asked.requests_out)
    return answer


def _one_copy(server: Server) -> Server:
    """The server of one replica."""
    from windtunnel.serving.predict import with_gpus

    return with_gpus(server, server.plan.gpus)


def _front_of(text: str) -> tuple[str, int | None, str | None]:
    """The plan of replicas for prompts, how many there are, and on which machine. SpecError for other words."""
    from windtunnel.base.errors import SpecError

    said = {name.strip(): value.strip() for name, _, value in (word.partition("=") for word in text.split(","))}
    count, machine = said.pop("replicas", None), said.pop("on", None)
    if (count is not None and not (count.isdecimal() and int(count) > 0)) or "gpus" in said or not said:
        raise SpecError(
            "prefill", text, "tp, pp, dp, ep, replicas with positive numbers, and on, such as tp=2,replicas=4,on=h200-ib"
        )
    return ",".join(f"{name}={value}" for name, value in said.items()), int(count) if count else None, machine


def _scaling_of(text: str | None) -> tuple[int, int] | None:
    """Replicas at least and at most of "2-40". SpecError for other words."""
    from windtunnel.base.errors import SpecError

    if text is None:
        return None
    low, _, high = text.partition("-")
    if not (low.strip().isdecimal() and high.strip().isdecimal() and 1 <= int(low) <= int(high) <= 1024):
        raise SpecError("autoscale", text, "replicas at least and at most, such as 2-40")
    return int(low), int(high)


def _curve_of(asked: ServeFleetOptions) -> RateCurve | None:
    """The rate over time of these options; None where it does not change. SpecError for a load that is none or too large."""
    from windtunnel.base.errors import SpecError
    from windtunnel.serving.replicas.curve import read_curve

    stated = [
        asked.users is not None,
        asked.rate is not None or asked.curve is not None,
        asked.trace is not None or asked.sessions is not None,
    ]
    if sum(stated) != 1 and not (stated == [True, False, True]):
        raise SpecError(
            "load", "several" if any(stated) else "none", "one of --users, --rate (with --curve), --trace and --sessions"
        )
    if asked.curve is None and asked.hours is None:
        return None
    if asked.rate is None and asked.curve is None:
        raise SpecError("hours", asked.hours, "--rate or --curve beside it")
    import numpy as np

    from windtunnel.serving.replicas.curve import HOUR, RateCurve

    if asked.curve is None:
        curve = RateCurve(np.array([0.0, HOUR]), np.full(2, float(asked.rate or 0.0)))
    else:
        curve = read_curve(asked.curve, asked.rate)
    if asked.hours is not None:
        if not asked.hours > 0.0:
            raise SpecError("hours", asked.hours, "a positive number")
        curve = curve.over_seconds(HOUR * asked.hours)
    if (count := curve.mean * curve.span) > 2_000_000:
        raise SpecError(
            "hours",
            asked.hours or curve.span / HOUR,
            "at most 2,000,000 requests",
            f"These are {count:,.0f}: write --hours {curve.span / HOUR * 1.9e6 / count:.3g}.",
        )
    return curve


def _fleet_load(
    asked: ServeFleetOptions,
    server: ServeOptions,
    curve: RateCurve | None,
    users: int | None,
    rate: float | None,
    requests: int | None,
) -> ServeLoad:
    """Requests of a fleet: those of `serve_predict`, or at the moments of `curve`."""
    import numpy as np

    from windtunnel.base.lengths import draw_lengths
    from windtunnel.serving import ServeLoad
    from windtunnel.serving.sessions import shared_of, with_shared_prefix

    if curve is None:
        made = replace(server, concurrency=users, rate=None if users else rate, requests=requests)
        return _load_of(made)
    if asked.turns is not None or str(asked.think) != "0":
        return _drawn_sessions(server, None, None, None, curve)
    draws = np.random.default_rng([asked.seed, 5])
    arrival = curve.arrivals(draws, server.burstiness)[: asked.requests]
    if not len(arrival):
        arrival = np.zeros(1)
    count = len(arrival)
    made_load = ServeLoad(draw_lengths("isl", server.isl, count, draws), draw_lengths("osl", server.osl, count, draws), arrival)
    return made_load if asked.shared_prefix is None else with_shared_prefix(made_load, shared_of(asked.shared_prefix), asked.seed)


serve_predict = asks(ServeOptions)(answer_serve)
serve_fleet = asks(ServeFleetOptions)(answer_fleet_question)
serve_search = asks(ServeSearchOptions)(answer_search)


def _speculation(text: str, model: Model) -> Speculation | None:
    """What a text says of drafts for `model`; a model that drafts may be any that serve-predict takes."""
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.serving.speculation import speculation_of

    return speculation_of(text, model, load_model_apart)
