"""Servers under varied loads whose numbers are watched: single ones, copies behind routers, caches, traces, published errors, and
steps of RL. Each takes less than half a second."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from asked import RL
from drawn_fits import digits
from folding import folded, folded_list
from varied import or_refused, said

import windtunnel as wt


def _small(**more: Any) -> Any:
    return wt.serve_predict(
        "llama3.1-8b", "h100-ib", **{"gpus": 2, "isl": "300~1<900", "osl": "40~1<90", "requests": 24, "concurrency": 8} | more
    )


LOADS: dict[str, dict[str, Any]] = {
    "turns": {"turns": "3", "think": 0.5, "shared_prefix": "200:0.5", "isl": "150~1<400", "requests": 30},
    "bursts": {"rate": 20.0, "burstiness": 0.3, "concurrency": None, "ttft": 0.5, "tpot": 0.05},
    "tier": {"turns": 4, "think": "2", "tier": ["host=20GB,bandwidth=20GB/s"], "memory": 0.35, "requests": 40, "isl": 2000},
    "whole prompts": {"engine": "trtllm", "whole_prompts": True, "polls": 2, "running": 6},
    "few tokens": {"engine": "sglang", "step_tokens": 256, "running": 4, "polls": 3, "memory": 0.6},
    "eager": {"eager": True, "sync": True, "step_tokens": 512},
    "graphs": {"graphs": "1,4,16", "release": "0.8.0"},
    "no padding": {"engine": "trtllm", "graphs": "16+", "kv": "fp8", "weights": "fp8"},
    "preempted": {"memory": 0.3, "osl": 600, "isl": 900, "requests": 60, "concurrency": 60},
    "published drafts": {"speculate": "eagle,drafts=3"},
    "looked up": {"speculate": "ngram,drafts=4,accepted=1.8", "engine": "sglang"},
    "record": {"record": True},
    "apart": {"prefill": "gpus=1,tp=1", "turns": 3, "think": 0.3, "shared_prefix": "200:0.5", "gpus": 3, "tp": 1},
    "apart from many": {
        "prefill": "gpus=2,tp=1",
        "gpus": 4,
        "tp": 1,
        "speculate": "eagle,drafts=2,rate=0.6",
        "rate": 30.0,
        "concurrency": None,
    },
    "stages": {"gpus": 4, "tp": 2, "pp": 2, "turns": 2},
    "one rank": {"tp": 1, "concurrency": 1, "requests": 5, "max_model_len": 2048, "running": 1},
    "draft model": {"speculate": "draft=llama3.2-1b,drafts=4,accepted=2.5", "engine": "trtllm", "polls": 3},
}


def _loaded(name: str) -> Any:
    answer = wt.as_dict(_small(**{key: tuple(item) if isinstance(item, list) else item for key, item in LOADS[name].items()}))
    return folded({key: item for key, item in answer.items() if key not in ("job", "version")})


def _without_core(name: str) -> Any:
    """The same, scheduled in Python."""
    from windtunnel.serving import simulate

    core = simulate.run_on_core
    simulate.run_on_core = lambda *asked: None
    try:
        return _loaded(name)
    finally:
        simulate.run_on_core = core


def _calibrated(gap: float, kernels: float, client: float, printed: str) -> Any:
    """A server calibrated by the result of one whose host, kernels and client take what is stated, and judged on another load."""
    from dataclasses import replace

    from windtunnel.formats.logs.served import MeasuredServer
    from windtunnel.serving import ServePlan, serve, server_of
    from windtunnel.serving.calibrated import calibrate_server
    from windtunnel.serving.load import drawn_load

    usual = server_of(wt.load_model("qwen3-8b"), "h100-ib", 1, "vllm", ServePlan(tp=1))
    true = replace(usual, engine=replace(usual.engine, gap=gap, kernels=kernels, client=client))
    measured = []
    for users in (4, 12):
        load = drawn_load(400, 60, concurrency=users, requests=3 * users)
        answer = serve(true, load)
        figures: dict[str, Any] = {"tokens_per_s": answer.tokens_per_s, "ttft": {printed: getattr(answer.ttft, printed or "mean")}}
        if printed:
            figures["tpot"] = {printed: getattr(answer.tpot, printed)}
        measured.append((MeasuredServer(f"bench {users}", figures), usual, load))
    found = calibrate_server(measured)
    answers = [folded(serve(found.calibration.apply(usual), load).as_dict()) for _, _, load in measured]
    return [folded(found.as_dict()), said([found.calibration.in_words()]), *answers]


def _published() -> Any:
    """Errors of made-up servers: lines of figures, spreads of first tokens, and what stands in for a kind."""
    from windtunnel.serving import published as room

    draw = np.random.default_rng(11)
    firsts = [
        room.FirstToken(*draw.uniform(0.01, 0.5, 3), cold=n % 4 * 0.1 * (n > 20), engine="vllm" if n % 3 else "sglang")
        for n in range(40)
    ]
    errors = [0.0, *(draw.normal(0.0, 0.3, 39)).tolist()]
    spreads = room.fit_spreads(firsts, errors)
    line = room.errors_of_figure(errors)
    kinds = [(kind, one) for kind, one in list(room.catalogue_servers().items())[:6]]
    answers: list[Any] = [digits(vars(spreads), 3), folded(line), said([line.as_text()]), line.leans, line.band(0.5)]
    stated = room.FirstSpreads(0.05, 0.2, 0.4, {"vllm": 0.3})
    answers += [stated.of(firsts[0]), stated.of(firsts[31]), stated.spread(firsts[25]), room.first_widening(stated, firsts, errors)]
    for kind, one in kinds:
        wide = one.state_first(firsts[3]).widen_errors()
        answers.append([folded(wide.as_dict()), one.first_error(firsts[2], stated), len(room.kinds_around(kind))])
        found = [room.servers_like(type(kind)("x", kind.engine, trained, kind.sides)) for trained in ("x", kind.trained)]
        answers.append([None if near is None else [near.rows, near.users] for near in found])
    return answers


def _drafts() -> Any:
    """What texts say of drafts, for models of families with published figures and without."""
    from windtunnel.serving.speculation import speculation_of

    found = []
    for model in ("llama3.1-8b", "deepseek-v3", "qwen3-30b-a3b", "llama3-70b"):
        for method in ("eagle", "mtp", "ngram", "draft=llama3.2-1b"):
            for rest in (
                "drafts=1",
                "drafts=3",
                "drafts=7",
                "drafts=2,rate=0.5",
                "drafts=4,accepted=2.5",
                "drafts=2,accepted=4",
                "drafts=0",
            ):
                one = or_refused(
                    lambda text=f"{method},{rest}", model=model: speculation_of(text, wt.load_model(model), wt.load_model)
                )
                found.append(
                    0.0 if one is None else -1.0 if isinstance(one, list) else one.accepted + 10 * one.rate + int(one.sums[77])
                )
    return found


def _curves() -> Any:
    """Rates over time from files and swings, at several means, over longer times, and arrivals with them."""
    from windtunnel.serving.replicas.curve import read_curve

    answers = []
    with tempfile.TemporaryDirectory() as folder:
        texts = ("hour,rate\n0,5\n1,20\n2.5,1\n", "0,5\n60,9\n600,0\n", "s,r\n0,1\n0,2\n", "s,r\n0,0\n5,0\n", "s,r\n0,-1\n5,1\n")
        for number, text in enumerate(texts):
            path = Path(folder) / f"{number}.csv"
            path.write_text(text, encoding="utf-8")
            for mean in (None, 3.0):
                one = or_refused(lambda path=path, mean=mean: read_curve(str(path), mean))
                if isinstance(one, list):
                    answers.append(one[0])
                    continue
                longer = one.over_seconds(2.3 * one.span)
                came = [longer.arrivals(np.random.default_rng(1), burst) for burst in (1.0, 0.4)]
                answers.append([one.mean, one.peak, one.span, longer.mean, *(folded_list(each.tolist()) for each in came)])
    swings = [
        or_refused(lambda text=text, mean=mean: read_curve(text, mean))
        for text, mean in (("swing=0.6", 9.0), ("swing=2", 9.0), ("swing=1", None))
    ]
    return answers + [one[0] if isinstance(one, list) else [one.mean, one.peak] for one in swings]


def _whole(**load: Any) -> Any:
    asked = {"isl": 300, "osl": 32, "users": [1, 8, 32], "ttft": 0.2, "tpot": 0.02, "engines": ["vllm", "trtllm"], "processes": 1}
    answer = wt.as_dict(wt.serve_search("llama3.1-8b", "h100-ib", **{"gpus": 2} | asked | load))
    names = (
        "users",
        "throughput",
        "interactivity",
        "busy",
        "ttft",
        "tpot",
        "gpus",
        "copies",
        "plan",
        "engine",
        "dollars_per_million_tokens",
    )
    rows = {key: item for key, item in answer.items() if key in ("front", "fleets", "nearest")}
    brief = {key: [{name: row[name] for name in names if name in row} for row in item] for key, item in rows.items()}
    return {**folded({key: item for key, item in answer.items() if key not in rows}), **folded(brief)}


def _pooled() -> Any:
    asked = {"tp": 1, "dp": 8, "ep": 8, "weights": "fp8", "isl": 300, "osl": 16, "requests": 150, "concurrency": 16}
    return folded(wt.as_dict(wt.serve_predict("deepseek-v3", "h200-ib", 8, experts="gpus=16,micro=2", engine="sglang", **asked)))


COPIES: dict[str, dict[str, Any]] = {
    **{f"by {router}": {"router": router} for router in ("round-robin", "random", "least-tokens")},
    "that fail": {"router": "kv-aware", "mtbf": 0.02, "cold_start": 0.5, "ttft": 0.12},
    "with prompts sized": {"prefill": "tp=1", "shared_prefix": None, "turns": None, "think": "0"},
    "that follow limits": {"autoscale": "1-5", "cold_start": 0.3, "rate": 60.0, "users": None, "requests": 32},
    "of users": {"users": 9, "requests": 60},
    "of two": {"tp": 2, "weights": "fp8", "kv": "fp8", "memory": 0.4},
}


def _copies(name: str) -> Any:
    asked = {
        "tp": 1,
        "isl": "300~1<900",
        "osl": 24,
        "users": 60,
        "requests": 150,
        "ttft": 0.15,
        "tpot": 0.02,
        "turns": 2,
        "think": 0.2,
    }
    return folded(wt.as_dict(wt.serve_fleet("llama3.1-8b", "h100-ib", **asked | {"shared_prefix": "300:0.5"} | COPIES[name])))


def _traces() -> Any:
    from windtunnel.serving.sessions import read_sessions
    from windtunnel.serving.traces import read_trace

    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n2023-11-16 18:17:04.0319600,396,109\n"
    moon = "".join(f'{{"timestamp": {t}, "input_length": {n}, "output_length": {o}, "hash_ids": [{h}]}}\n' for t, n, o, h in
                   ((0, 675, 50, "0, 1"), (1500, 1700, 9, "0, 2, 3, 4"), (2000, 512, 1, "5")))  # fmt: skip
    burst = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,472,18,490,x\n45,ChatGPT,1087,230,1317,x\n"
    )
    turns = "session,new_isl,osl,wait\na,100,20,0\na,50,30,1.5\nb,70,10,0\na,10,5,2\n"
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("a.csv", azure), ("m.jsonl", moon), ("b.csv", burst), ("s.csv", turns)):
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            read = (
                (read_sessions,)
                if name == "s.csv"
                else (read_trace, partial(read_trace, speed=2.5), partial(read_trace, concurrency=1))
            )
            found = [or_refused(lambda one=one, path=path: vars(one(path))) for one in read]
            answers += [folded(one) if isinstance(one, dict) else one[0] for one in found]  # the numbers are of a drawn folder
    return answers


RL_MORE: dict[str, tuple[str, ...]] = {
    "no room": ("cluster.gpus=8", "model=llama3-70b", "rl.mode=split", "rl.rollout.gpus=4", "rl.rollout.tp=4"),
    "critic apart": ("rl.critic=true", "rl.mode=split", "rl.rollout.gpus=8", "rl.reference=true"),
    "fp8 rollout": ("rl.rollout.weights=fp8", "rl.rollout.kv=fp8", "rl.pack_tokens=3000"),
    "long tail": ("rl.response=2000~2<8000", "rl.samples=2"),
}


def _rl(name: str) -> Any:
    return folded({key: item for key, item in wt.as_dict(wt.rl_predict(RL, None, list(RL_MORE[name]))).items() if key != "job"})


def _autoscaled() -> Any:
    answer = wt.serve_fleet(
        "llama3.1-8b",
        "h100-ib",
        tp=1,
        isl="300~1<900",
        osl=24,
        rate=40.0,
        curve="swing=0.7",
        hours=0.01,
        ttft=0.3,
        tpot=0.03,
        autoscale="1-6",
        target=8.0,
        cold_start=2.0,
    )
    return folded(wt.as_dict(answer))


def _tiers() -> Any:
    """Prompts of four kinds, whose blocks two small tiers keep, and how caches of other blocks name them."""
    from windtunnel.serving.cache import BlockNames, names_of
    from windtunnel.serving.tiers import TierStore, tier_of

    draw, told = np.random.default_rng(1), []
    store = TierStore([tier_of("host=1MB,bandwidth=10GB/s"), tier_of("disk=4MB,bandwidth=1GB/s,latency=2ms")], 65536.0)
    for request in range(60):
        blocks, kind = int(draw.integers(1, 13)), int(draw.integers(0, 12))
        names = BlockNames([kind * 10 + part for part in range(4)], 3, blocks)
        told.append([*store.match(names, 1, blocks), *store.fetch(names, int(draw.integers(0, 2)), blocks, 0.001 * request)])
        store.put(names, blocks)
    named = [names_of(range(5), size, block, 1400) for size, block in ((512, 16), (16, 64), (16, 24), (64, 64))]
    answers = [folded_list(told), store.hits, store.filled, store.links, store.waited, [[one.per, one.named] for one in named]]
    return [
        *answers,
        *(
            or_refused(lambda text=text: vars(tier_of(text)))
            for text in ("a=1TB,bandwidth=2GB/s", "a=1TB", "host=x,bandwidth=1GB/s")
        ),
    ]


def _passes() -> Any:
    """The law of passes that took a known time, with gaps of the host behind them."""
    from windtunnel.serving.lengths import Passing
    from windtunnel.serving.measured_passes import fit_passes, read_passes

    draw = np.random.default_rng(6)
    sizes = np.column_stack([draw.integers(*ends, 60) for ends in ((0, 4000), (0, 4), (0, 10**6), (0, 90), (0, 10**5))]).astype(
        float
    )
    seconds = 2e-3 + sizes @ (3e-6, 1e-5, 2e-10, 2e-5, 1e-8)
    begins = np.cumsum(seconds + 1e-3) - seconds
    answers: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for gaps in (False, True):
            heads = ["seconds", "prompt", "chunks", "pairs", "decodes", "cached", *(["begin"] if gaps else [])]
            rows = np.column_stack([seconds, sizes, *([begins] if gaps else [])])
            path = Path(folder) / f"{gaps}.csv"
            path.write_text("\n".join([",".join(heads), *(",".join(map(repr, row)) for row in rows.tolist())]), encoding="utf-8")
            law = read_passes(path)
            answers += [digits(vars(law)), said([law.in_words()])]
            answers.append(
                [
                    digits(law.seconds(Passing(prompt=p, chunks=1, pairs=p * p, decodes=d, cached=9 * d)))
                    for p, d in ((0, 5), (100, 0), (3000, 60))
                ]
            )
        answers.append(digits(vars(fit_passes(seconds[::-1], sizes[::-1], begins[::-1]))))
    return answers


def served_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {}
    table |= {f"load {name}": partial(_loaded, name) for name in LOADS}
    table |= {f"load {name} in Python": partial(_without_core, name) for name in LOADS if name != "record"}
    table |= {f"calibrated server {number}": partial(_calibrated, *asked) for number, asked in enumerate(CALIBRATED)}
    table |= {f"whole load {number}": partial(or_refused, partial(_whole, **load)) for number, load in enumerate(WHOLE)}
    long = {"prefill": "gpus=1,tp=1", "tp": 1, "isl": "64-60000", "osl": 5, "memory": 0.3}
    table["prompts too long for a part"] = partial(or_refused, partial(_small, **long))
    table |= {"published servers": _published, "drafts": _drafts, "rates over time": _curves}
    table |= {f"rl {name}": partial(or_refused, partial(_rl, name)) for name in RL_MORE}
    table |= {f"copies {name}": partial(or_refused, partial(_copies, name)) for name in COPIES}
    table |= {
        "experts apart": _pooled,
        "traces of requests": _traces,
        "autoscaled copies": _autoscaled,
        "tiers": _tiers,
        "passes": _passes,
    }
    return table


CALIBRATED = ((4e-3, 1.0, 0.0, "mean"), (0.0, 1.2, 0.05, "p50"), (2e-3, 1.0, 0.01, ""), (0.0, 0.8, 0.0, "mean"))
WHOLE: tuple[dict[str, Any], ...] = (
    {"rate": 40.0},
    {"all_users": 100},
    {"ttft": 1e-4},
    {"weights": ["fp8", "bf16"], "kv": ["fp8"], "tpot": None},
    {"tpot": 0.0062, "users": [1, 4, 16, 64, 256]},
    {"prefill": True, "gpus": 4, "ttft": 0.3, "tpot": 0.009, "users": [2, 16, 128], "engines": ["vllm"]},
    {"prefill": True, "gpus": 6, "ttft": 0.02, "tpot": None, "users": [4, 64], "engines": ["sglang"], "isl": 3000},
)
