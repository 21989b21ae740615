"""Answers of other verbs than predict whose numbers are watched: searches, levers, plans, servers, RL steps, calls, fabrics,
replays, runs and fits. Each takes a fraction of a second; long lists are folded to their sums."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from acting import acting_cases
from asked import CALLS, FABRICS, MACHINES, PLANS, RL, RL_CHANGES, SEARCHED, SERVED, SMALL, TINY
from drawn_fits import fitted_cases
from drawn_jobs import job_cases
from drawn_parts import part_cases
from drawn_rooms import room_cases
from drawn_runs import drawn_cases
from drawn_servers import served_cases
from drawn_service import service_cases
from drawn_watched import watched_cases
from folding import folded, folded_list
from varied import varied_cases
from varied_networks import network_cases

import windtunnel as wt
from windtunnel.engine.routes import route
from windtunnel.network.fabrics import cluster_graph, parse_fabric
from windtunnel.search.bound.bounds import bounds
from windtunnel.search.space import Space

UNIT = Path(__file__).parents[1] / "unit"
"""What builds tables and calls for tests of other questions."""


def data_of(answer: Any) -> Any:
    """Folded plain data of an answer, as its JSON has it; without the job that it repeats."""
    plain = wt.as_dict(answer) if not isinstance(answer, (list, tuple, dict)) else answer
    return folded({key: item for key, item in plain.items() if key not in _REPEATED} if isinstance(plain, dict) else plain)


_REPEATED = ("job", "graph", "version")


def _sum_rows(cluster: str, op: str, gpus: int, network: str) -> Any:
    rows = wt.collective(cluster, op, gpus=gpus, sizes=[3e3, 2e5, 5e7], network=network)
    return [{key: row[key] for key in ("time_us", "busbw_GBs", "channels", "relative_error") if key in row} for row in rows]


def _fabric(text: str) -> Any:
    graph = parse_fabric(text)
    return _graph(graph)


def _graph(graph: Any) -> Any:
    ends = np.arange(min(graph.endpoints, 64))
    paths = route(graph, ends, np.roll(ends, 5))
    columns = (
        "node_kind",
        "node_site",
        "link_from",
        "link_to",
        "link_rate",
        "link_latency",
        "link_axis",
        "endpoint",
        "nic_start",
        "nics",
        "rail",
    )
    return folded({**{name: getattr(graph, name) for name in columns}, "hops": np.diff(paths.start), "links": paths.links})


def _bounds(name: str) -> Any:
    from test_search_bounds import COMMON, PLANS, SPACES

    source, overrides, fields = SPACES[name]
    columns = Space(wt.load(source, overrides), COMMON | fields).columns()
    columns = columns.take(np.sort(np.random.default_rng(1).permutation(len(columns))[:PLANS]))
    return folded(bounds(columns))


def bounds_of_spaces() -> dict[str, Callable[[], Any]]:
    """Bounds of the spaces that tests/laws compares with predictions."""
    if str(UNIT.parent / "laws") not in sys.path:
        sys.path.insert(0, str(UNIT.parent / "laws"))
    spaces = import_module("test_search_bounds").SPACES
    return {f"bounds of {name}": partial(_bounds, name) for name in spaces}


def _search(name: str, objective: Any) -> Any:
    overrides, fields = SEARCHED[name]
    result = wt.search(wt.load("llama3-8b-8xh100", overrides), fields, objective, processes=1)
    return data_of(result)


def _words(lines: Iterable[Any]) -> list[list[str]]:
    """The numbers that sentences say."""
    return [re.findall(r"\d[\d.,]*", str(line)) for line in lines]


def _reasons(objective: str, at_most: dict[str, float] | None = None) -> Any:
    from windtunnel.search.reasons import reason_lines

    overrides, fields = SEARCHED["money"]
    job = wt.load("llama3-8b-8xh100", [*overrides, "tokens=1e11", "plan.recompute=full"])
    result = wt.search(job, fields, objective, at_most=at_most, processes=1)
    lines = [line for why in result.explanations for line in reason_lines(result, why)]
    return {"values": result.best.values, "said": _words(lines), **_decided(result)}


def _decided(result: Any) -> dict[str, Any]:
    decisions = [decision for why in result.explanations for decision in why.decisions]
    return {"decisions": [[decision.path, decision.loss, decision.least] for decision in decisions]}


def _levers(source: str, *overrides: str) -> Any:
    from windtunnel.search.change import facts_of
    from windtunnel.search.levers.pricing import price_levers

    return folded(list(price_levers(facts_of(wt.load(source, list(overrides))))))


def _plan(overrides: Sequence[str] = (), gpus: Sequence[int] = (64,), cluster: str = "h100-ib", **wish: float) -> Any:
    from windtunnel.search.budget.planner import plan
    from windtunnel.search.budget.sheet import reasons
    from windtunnel.search.budget.wish import Wish
    from windtunnel.spec import load_law

    answer = plan(Wish(load_law("epoch"), **wish), [cluster], gpus, overrides)
    return {**data_of(answer), "said": _words(reasons(answer))}


def _rl(changes: Sequence[str]) -> Any:
    return data_of(wt.rl_predict(RL, None, changes))


def _served(name: str) -> Any:
    model, on, gpus, more = SERVED[name]
    return data_of(wt.serve_predict(model, on, gpus, **more))


def _predicted(source: str, *overrides: str, network: str = "closed") -> Any:
    p = wt.predict(wt.load(source, list(overrides)), network=network)
    stages = [folded(stage) for stage in p.memory]
    return {"step": p.step_time_s, "breakdown": dict(p.breakdown), "overlapped": dict(p.overlapped), "memory": stages[:2]}


@cache
def _traced(folder: str, *overrides: str) -> Any:
    """A predicted step as the profiler's trace of a run, read again."""
    path = Path(folder) / f"{len(overrides)}.json"
    wt.export(wt.load("llama3-8b-8xh100", [*SMALL, *overrides]), "kineto").save(path)
    return wt.read(path).value


def _of_run(do: Callable[[Any, Any], Any]) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        job = wt.load("llama3-8b-8xh100", SMALL)
        return do(_traced(folder, "plan.recompute=full", "cluster.node.gpu.memory_bandwidth=2.9TB/s"), job)


def _exported(format: str, do: Callable[[Path, list[Path]], Any], *overrides: str, **options: Any) -> Any:
    """What becomes of a small job's step in the files of another tool."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        job = wt.load("llama3-8b-8xh100", [*SMALL, "model.layers=2", "plan.tp=2", "plan.sharding=zero1", *overrides])
        wt.export(job, format, **options).save(Path(folder) / format)
        found = Path(folder) / format
        return do(found, sorted(found.rglob("*.*")) if found.is_dir() else [found])


def _astra_sim() -> Any:
    def run(path: Path, files: list[Path]) -> Any:
        configured = path.parent / "astra"
        wt.export(wt.load("llama3-8b-8xh100", [*SMALL, "model.layers=2", "plan.tp=2", "plan.sharding=zero1"]), "astra-sim").save(
            configured
        )
        names = {file.name: file for file in configured.rglob("*.*")}
        system, network = (next(names[name] for name in names if word in name) for word in ("system", "network"))
        memory = next((names[name] for name in names if "memory" in name), None)
        return folded(wt.replay_astra_sim(files, system, network, memory))

    return _exported("chakra", run)


def _replayed(path: Path, files: list[Path], **options: Any) -> Any:
    return data_of(wt.replay(path if path.is_file() else files[0].parent, "h100-ib", **options))


def _unit(name: str) -> Any:
    """A file of tests/unit, for what it builds."""
    if str(UNIT) not in sys.path:
        sys.path.insert(0, str(UNIT))
    return import_module(name)


def _helper(name: str) -> Any:
    """A module that tests share."""
    if str(UNIT.parents[1]) not in sys.path:
        sys.path.insert(0, str(UNIT.parents[1]))
    return import_module(name)


def _astra_calls(aware: bool) -> Any:
    leave = _unit("test_astrasim_collectives").leave
    found = {}
    for shape, count, algorithm in product(
        ("Ring", "Switch", "FullyConnected"), (4, 8, 16), ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
    ):
        for call in ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"):
            for entered in (None, np.arange(count) * 700.0):
                key = f"{shape} {count} {algorithm} {call} {entered is None}".replace(" ", "-")
                try:
                    found[key] = folded(leave(shape, count, call, 2**18, algorithm, aware, entered))
                except wt.WindtunnelError:
                    found[key] = "refused"
    return [
        sum(value == "refused" for value in found.values()),
        folded_list([sum(map(float, _numbers(value))) for value in found.values()]),
    ]


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [float(value)] if isinstance(value, (int, float)) else []


def _simai_rates() -> Any:
    from windtunnel_oracles.simai.busbw import group_rate
    from windtunnel_oracles.simai.setting import SimaiSetting

    setting, rates = SimaiSetting(256, nvlink=360, nic=48.5), []
    for group, call, parts in product(("TP", "EP", "DP", "DP_EP"), ("allreduce", "allgather", "alltoall"), (False, True)):
        for tp, ep, ranks in product((1, 2, 4, 8, 16), (1, 2, 8), (1, 2, 4, 16)):
            rate = group_rate(setting, call, group, tp, ep, ranks, parts)
            rates.append([-2.0, 0.0] if rate is None else [float(rate[0]), float(rate[1])])
    return [folded_list(rates[at : at + 60]) for at in range(0, len(rates), 60)]


def _fitted_engines() -> Any:
    import tempfile

    from windtunnel.calibrate.engines.catalogue import error_lines, fit_gpu

    with tempfile.TemporaryDirectory() as folder:
        _unit("test_fit_engines").tables(Path(folder))
        fitted = fit_gpu(wt.read_measured(folder))
    return {"fitted": folded(fitted), "errors": folded([list(line) for line in error_lines([fitted])])}


def _fitted_kernels() -> Any:
    tiny_cpu = _helper("tests.helpers.fit_rows").tiny_cpu
    from windtunnel.calibrate.kernels.fit import fit

    return folded(fit([tiny_cpu()]))


def _late_rank() -> Any:
    runs = _helper("tests.synthetic_runs")
    sets = [
        "cluster.gpus=8",
        "plan.dp=none",
        "plan.global_batch=8",
        "plan.seq=4096",
        "model.layers=4",
        "plan.vpp=1",
        "plan.tp=2",
        "plan.pp=2",
    ]
    job = wt.load("llama2-70b-64xh100", [*sets, "model=llama3.1-8b"])
    run = runs.with_slow_tasks(job, runs.graph_of_job(job), rank=5, value=1.3)
    return {
        "shown": data_of(wt.runs.show(run)),
        "compared": data_of(wt.compare(run, job)),
        "what": [data_of(row.as_dict()) for row in wt.whatif(run, ["no-stragglers", "scale:gemm=0.5", "no-host-gaps"])],
    }


def _logged(times: float) -> Any:
    from windtunnel.records.run import Run, Steps

    job = wt.load("mixtral-8x7b-64xh100", ["model.layers=8", "plan.global_batch=64"])
    step = wt.predict(job).step_time_s
    seconds = np.full(24, times * step) * (1.0 + 0.01 * np.cos(np.arange(24)))
    seconds[[9, 19]] *= 1.4
    return data_of(wt.compare(Run(Steps.of(-1, range(1, 25), seconds=seconds), (), {}), job))


def _plan_or_words(*job: str) -> Any:
    try:
        return _predicted(*job)
    except wt.WindtunnelError as error:
        return type(error).__name__


def _whatif(run: Any, job: Any) -> Any:
    changes = ["no-host-gaps", "scale:gemm=0.5", "scale:attention=1.5", "no-stragglers"]
    return [data_of(row.as_dict()) for row in wt.whatif(run, changes)]


def cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = bounds_of_spaces()
    table |= {f"serve {name}": partial(_served, name) for name in SERVED}
    table |= {f"rl {name}": partial(_rl, changes) for name, changes in RL_CHANGES.items()}
    table |= {f"fabric {text}": partial(_fabric, text) for text in FABRICS}
    table |= {
        f"graph of {name}": lambda name=name: _graph(cluster_graph(wt.load_cluster(name, ["gpus=16"])).graph) for name in MACHINES
    }
    for network in ("closed", "flow", "packet"):
        for name in MACHINES:
            gpus = 8 if name == "dgx-1v" else 4 if name == "a100-pcie" else 16
            for op in CALLS:
                table[f"{op} {name} {network}"] = partial(_sum_rows, name, op, gpus, network)
    table |= {
        "search by time": partial(_search, "dense", "time"),
        "search by money and memory": partial(_search, "money", ["dollars", "gpus"]),
        "search by joules": partial(_reasons, "joules"),
        "search by money until a day": partial(_reasons, "bill", {"days": 40.0}),
        "levers": partial(_levers, "llama3-8b-8xh100", "plan.global_batch=32"),
        "levers of a pipeline": partial(_levers, "gpt3-175b-64"),
        "levers of a pipeline that computes again": partial(
            _levers, "gpt3-175b-64", "plan.recompute=full", "plan.vpp=1", "plan.recompute_layers=4", "plan.global_batch=32"
        ),
        "levers of fsdp": partial(_levers, "llama3-8b-8xh100", *SMALL, "runtime.launch=eager", "plan.recompute=full"),
        "levers of a machine": partial(
            _levers, "llama2-70b-64xh100", "plan.global_batch=64", "model.layers=16", "unequal.slow=[{nodes=[1],factor=1.4}]"
        ),
        "levers of a mixture": partial(_levers, "mixtral-8x7b-64xh100"),
        "plan in days": partial(_plan, days=10.0),
        "plan for a loss": partial(_plan, ["cluster.economics.mode=buy"], loss=2.3, days=5.0),
        "plan for money": partial(_plan, [], (8,), budget=9600.0, parameters=1e9),
        "sensitivity": lambda: data_of(wt.sensitivity(wt.load("llama3-8b-8xh100", ["model.layers=8"]))),
        "room in memory": lambda: data_of(wt.memory(wt.load("llama3-8b-8xh100", ["plan.micro_batch=4", "plan.recompute=none"]))),
        "serve search": lambda: data_of(
            wt.serve_search("llama3.1-8b", "h100-ib", 2, isl=256, osl=64, users=[1, 8, 64], processes=1, engines=["vllm", "sglang"])
        ),
        "serve search apart": lambda: data_of(
            wt.serve_search(
                "llama3.1-8b", "h100-ib", 4, isl=900, osl=64, users=[4, 32], processes=1, prefill=True, ttft=2.0, tpot=0.03
            )
        ),
        "serve fleet": lambda: data_of(
            wt.serve_fleet(
                "llama3.1-8b",
                "h100-ib",
                tp=1,
                isl=512,
                osl=64,
                rate=60.0,
                requests=400,
                ttft=0.2,
                tpot=0.02,
                turns=3,
                think=1,
                shared_prefix="500:0.5",
                router="cache-aware",
                mtbf=0.01,
                cold_start=2.0,
            )
        ),
        "rl splits": lambda: [data_of(step) if hasattr(step, "step_time_s") else "refused" for _, step in wt.rl_splits(RL)],
        "flows of a permutation": lambda: data_of(wt.flows("fat_tree:k=4,link=400Gb/s", "permutation:bytes=1MiB", "flow")),
        "packets of an incast": lambda: data_of(wt.flows("fat_tree:k=4,link=400Gb/s", "incast:bytes=256KiB", "packet")),
        "step over flows": partial(_predicted, "llama3-8b-8xh100", *SMALL, "cluster.gpus=16", network="flow"),
        "step over packets": partial(
            _predicted,
            "llama3-8b-8xh100",
            *SMALL,
            "model.layers=1",
            "model.vocab=2048",
            "plan.seq=512",
            "cluster.gpus=16",
            network="packet",
        ),
        "step of unequal ranks": partial(
            _predicted,
            "gpt3-175b-64",
            "plan.global_batch=32",
            "unequal.slow=[{nodes=[2],factor=1.2}]",
            "unequal.mixed=[{nodes=[0,1],gpu='a100-sxm-80gb'}]",
        ),
        "step beside a save": partial(
            _predicted, *TINY, "reliability=llama3-2024", "cluster.fabric.storage.servers=2", network="flow"
        ),
        "step beside flows": lambda: data_of(
            {
                "s": wt.predict(
                    wt.load(*TINY[:1], list(TINY[1:])), network="flow", background=["ring:shift=8,bytes=1MiB@5ms"]
                ).step_time_s
            }
        ),
        "tests of a node": lambda: folded(wt.runs.expected_options(wt.load_cluster("h100-ib"))),
        "step of a mixture": partial(
            _predicted, "mixtral-8x7b-64xh100", "plan.global_batch=64", "model.layers=8", "runtime.moe_a2a_overlap=true"
        ),
        "what if": partial(_of_run, _whatif),
        "comparison of a run": partial(_of_run, lambda run, job: data_of(wt.compare(run, job))),
        "calibrated run": partial(_of_run, lambda run, job: folded(wt.calibrate(run, job).fit)),
        "report of a run": partial(_of_run, lambda run, job: data_of(wt.runs.show(run))),
        "replay of chakra": partial(_exported, "chakra", _replayed),
        "replay of chakra over flows": partial(_exported, "chakra", partial(_replayed, network="flow")),
        "replay of goal": partial(_exported, "goal", _replayed),
        "goal by LogGOPS": partial(
            _exported, "goal", lambda path, _: folded(wt.replay_loggops(path, "L=2500,o=1500,g=1000,G=4,O=0,S=0"))
        ),
        "astra-sim": _astra_sim,
        "steps of plans": lambda: [_plan_or_words(*job) for job in PLANS],
        "astra-sim's collectives": partial(_astra_calls, False),
        "astra-sim's collectives that meet": partial(_astra_calls, True),
        "simai's rates": _simai_rates,
        "fit of engines": _fitted_engines,
        "fit of kernels": _fitted_kernels,
        "late rank": _late_rank,
        "log of a slow run": partial(_logged, 1.3),
        "log of a fast run": partial(_logged, 0.9),
        "simai": partial(_exported, "simai", lambda path, _: folded(wt.simai(path, 8))),
        "fit of power": lambda: folded(wt.fit.power()),
        "fit of collectives": lambda: folded(wt.fit.collectives()),
    }
    return (
        table
        | drawn_cases()
        | varied_cases()
        | network_cases()
        | fitted_cases()
        | served_cases()
        | service_cases()
        | watched_cases()
        | room_cases()
        | job_cases()
        | part_cases()
        | acting_cases()
    )
