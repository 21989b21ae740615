"""Whole answers about drawn jobs and servers whose numbers are watched: steps, memory, tables of kernels, timelines, money, levers,
searches. Each takes some hundredths of a second, so there are many: what a branch needs, one of them has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from folding import digest, folded
from varied import or_refused, said

import windtunnel as wt

CHANGES: tuple[tuple[str, ...], ...] = (
    (),
    ("reliability=llama3-2024", "tokens=1e12", "cluster.economics.mode=buy", "cluster.economics.node_dollars=3e5"),
    ("unequal.slow=[{nodes=[0],factor=1.3}]", "unequal.jitter.sigma=0.05", "unequal.draws=2"),
    ("runtime.optimizer=muon", "runtime.muon_tp=distributed"),
    ("runtime.optimizer=adafactor", "plan.recompute=ops"),
    ("plan.offload.optimizer=host", "cluster.node.host_memory=2TB"),
    ("plan.recompute=full", "plan.recompute_layers=1", "runtime.launch=eager"),
    ("runtime.optimizer=muon", "runtime.muon_tp=blockwise", "runtime.exp_avg_dtype=bf16"),
    ("plan.tp=8", "plan.sequence_parallel=true", "plan.dp=none", "cluster.gpus=64", "plan.global_batch=64"),
    ("plan.sharding=fsdp", "plan.pp=1", "plan.vpp=1", "plan.dp=none", "cluster.gpus=32", "plan.global_batch=64"),
    ("runtime.launch=cuda_graph", "runtime.reduce_every_micro_batch=true", "runtime.fused_wgrad=false"),
    ("runtime.precision=fp8", "runtime.optimizer=sgd", "runtime.data.sample=0.02"),
    ("cluster.gpu_spread=0.03", "cluster.slow_nodes=0.05", "cluster.price_per_gpu_hour=2.5", "tokens=1e11"),
    ("runtime.optimizer=muon", "runtime.fused_optimizer=false", "plan.sharding=none"),
    ("runtime.attention=unfused", "runtime.fused_norm=false", "runtime.fused_activation=false", "runtime.fused_rope=false"),
    ("model.window=512", "plan.seq=4096", "runtime.fused_cross_entropy=false"),
)
"""A job takes those of its number."""


def _drawn(number: int) -> Any:
    from tests.wide_jobs import drawn_job
    from windtunnel.memory.over_time import over_time
    from windtunnel.memory.result import why
    from windtunnel.predict.answer.timeline import pass_times
    from windtunnel.predict.answer.trace import chrome, perfetto, tracks_of
    from windtunnel.workload import build

    changes = CHANGES[number % len(CHANGES)]
    try:
        job = drawn_job(number, changes)
    except RecursionError:
        return 0
    p = wt.predict(job)
    data = {key: value for key, value in wt.as_dict(p).items() if key not in ("job", "version")}
    workload = build(job)
    columns = [np.asarray(value).ravel() for value in vars(workload.ops).values() if isinstance(value, np.ndarray)]
    moments = []
    if number % 3 == 0:
        one, times = p.memory[-1], pass_times(p.timeline, workload.schedule[-1], len(p.memory) - 1)
        found = over_time(workload, one.stage, times, one.context, one.usable - one.context, until_full=True)
        moments = [found.thin(20).as_dict()]
    answers = [data, columns, moments, said(why(workload, p.memory)), said([*p.assumptions, *p.warnings])]
    if number % 4 == 0:
        tracks = tracks_of(p.timeline, job=job)
        answers.append(
            [
                len({span.name for track in tracks for span in track.spans}),
                len(tracks),
                len(perfetto(tracks)),
                chrome(tracks).count(b"\n"),
            ]
        )
        answers.append([[span.start, span.end] for track in tracks[:6] for span in track.spans[:40]])
    return answers


def _jobs(first: int, count: int) -> Any:
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    return digest([or_refused(partial(_drawn, number)) for number in range(first, first + count)], 60)


SERVED = ("llama3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gemma3-27b", "qwen3-next-80b-a3b", "gpt-oss-120b", "llama3-70b",
          "kimi-k2", "glm-4.5-air", "deepseek-v4-flash", "minimax-m1", "qwen2.5-1.5b", "llama2-13b", "llama4-scout",
          "lfm2-8b-a1b")  # fmt: skip
HOLDERS = ("h100-ib", "h200-ib", "a100-ib", "b200-ib", "gb200-nvl72", "mi300x-roce", "l40s", "a100-pcie")


def _server(draw: Any, one: Callable[..., Any], some: Callable[..., Any]) -> tuple[str, str, dict[str, Any]]:
    """Model, machine and what both a server and its copies are asked for. `one(*of)`, `some(chance, *of)`: drawn, the latter often
    None."""
    model, tp, dp = one(*SERVED), one(1, 2, 4, 8), one(1, 1, 1, 2)
    asked = {
        "engine": one("vllm", "vllm", "sglang", "trtllm"), "tp": tp, "dp": dp, "pp": one(1, 1, 1, 2),
        "ep": tp * dp if "b-a" in model or "deepseek" in model or "kimi" in model else 1,
        "isl": one(100, 700, "500~0.8<3000", "64-900"), "osl": one(5, 40, "30~1<200"),
        "weights": some(0.5, "fp8", "int8", "w8a8", "int4"),
        "kv": some(0.3, "fp8"), "burstiness": one(1.0, 0.4, 2.0), "memory": some(0.3, 0.5, 0.95),
        "step_tokens": some(0.3, 300, 4096), "running": some(0.3, 4, 64), "polls": some(0.2, 1, 4),
        "graphs": some(0.3, "1,2,4,8", "16+"),
        "eager": draw.random() < 0.2,
        "sync": draw.random() < 0.2, "seed": int(draw.integers(1, 99)),
        "ttft": some(0.5, 0.1, 1.0), "tpot": some(0.5, 0.01, 0.05), "expert_kernel": some(0.1, "triton", "cutlass"),
    }  # fmt: skip
    asked["whole_prompts"] = asked["engine"] == "trtllm" and draw.random() < 0.4
    if draw.random() < 0.3:
        asked |= {"turns": one(2, "1-4"), "think": one(0, 0.3), "shared_prefix": some(0.7, "300:0.5", "64:0.9")}
    return model, one(*HOLDERS), asked


def _drawn_server(number: int) -> Any:
    draw = np.random.default_rng(number)

    def one(*of: Any) -> Any:
        return of[int(draw.integers(len(of)))]

    def some(chance: float, *of: Any) -> Any:
        return one(*of) if draw.random() < chance else None

    model, on, asked = _server(draw, one, some)
    gpus = asked["tp"] * asked["dp"] * asked["pp"]
    if number % 5 == 4:
        asked |= {"users" if number % 2 else "rate": one(20, 60), "router": one("kv-aware", "least-requests", "random"),
                  "requests": 80,
                  "mtbf": some(0.4, 0.03), "cold_start": 1.0, "dp": 1, "ep": 1 if asked["ep"] == 1 else asked["tp"],
                  "autoscale": some(0.4, "1-4")}  # fmt: skip
        return wt.as_dict(wt.serve_fleet(model, on, one(None, 2, 3) if not asked["autoscale"] else None, **asked))
    asked |= {"concurrency": 12} if draw.random() < 0.6 else {"rate": float(draw.uniform(1.0, 60.0))}
    asked |= {"requests": 20, "record": number % 7 == 0}
    asked["speculate"] = some(
        0.25, "eagle,drafts=3,rate=0.6", "mtp,drafts=1", "ngram,drafts=4,accepted=2", "draft=llama3.2-1b,drafts=2"
    )
    asked["tier"] = one((), (), (), ("host=30GB,bandwidth=20GB/s",), ("host=2GB,bandwidth=50GB/s", "disk=1TB,bandwidth=5GB/s"))
    if draw.random() < 0.25:
        first = one(1, gpus, 2 * gpus)
        asked |= {"prefill": f"gpus={first},tp={one(1, first)}"}
        gpus += first
    if asked["ep"] > 1 and draw.random() < 0.3:
        asked |= {"experts": f"gpus={2 * gpus},micro={one(1, 2, 3)}"}
    return wt.as_dict(wt.serve_predict(model, on, gpus, **asked))


def _servers(first: int, count: int) -> Any:
    def answer(number: int) -> Any:
        return {key: value for key, value in _drawn_server(number).items() if key not in ("job", "version")}

    return digest([or_refused(partial(answer, number)) for number in range(first, first + count)])


FIELDS: tuple[dict[str, Any], ...] = (
    {"plan.tp": (1, 2, 4, 8), "plan.micro_batch": (1, 2, 4), "plan.recompute": ("none", "selective", "full")},
    {"plan.pp": (1, 2, 4), "plan.vpp": (1, 2), "plan.sharding": ("none", "zero1", "zero3"), "runtime.overlap_p2p": (True, False)},
    {"plan.sharding": ("zero1", "fsdp", "hsdp"), "plan.shard_group": (None, 2, 8), "plan.micro_batch": (1, 2, 3)},
    {"plan.tp": (1, 2, 4), "plan.sequence_parallel": (True, False), "plan.cp": (1, 2), "plan.dp": (2, 4, 8)},
    {"plan.schedule": ("auto", "gpipe", "1f1b", "zb-h1"), "plan.pp": (2, 4), "plan.recompute_layers": (None, 1)},
    {"runtime.overlap_grad_reduce": (True, False), "runtime.overlap_param_gather": (True, False), "plan.ep": (1, 2, 4)},
)
OBJECTIVES: tuple[Any, ...] = ("time", "tokens", "dollars", ["time", "joules"], "days", "area", "silicon", ["bill", "gpus"])


def _drawn_search(number: int) -> Any:
    from tests.wide_jobs import drawn_job
    from windtunnel.search.levers.reasons import advise, sentences
    from windtunnel.search.reasons import certificate_lines, front_lines, reason_lines

    job = drawn_job(number + 1000, ("plan.dp=none", "cluster.price_per_gpu_hour=2", "tokens=1e10", "cluster.node.gpu.power_w=1500"))
    result = wt.search(
        job, FIELDS[number % len(FIELDS)], OBJECTIVES[number // 2 % len(OBJECTIVES)], margin=0.04 * (number % 3), processes=1
    )
    told = [*certificate_lines(result.certificate, result)[1:], *front_lines(result)]
    told += [line for why in result.explanations for line in reason_lines(result, why)]
    data = {key: value for key, value in wt.as_dict(result).items() if key not in ("job", "version", "certificate")}
    certificate = {key: value for key, value in vars(result.certificate).items() if not key.endswith("_s")}
    answers = [folded(data), certificate, said(told[1:])]
    if number % 3 == 0:
        prediction = wt.predict(job)
        found = advise(prediction)
        answers.append([[one.part, one.cost_s, one.step_time_s, one.gain] for one in found])
        answers.append(said(sentences(prediction, found)))
    return answers


def _searches(first: int, count: int) -> Any:
    return digest([or_refused(partial(_drawn_search, number)) for number in range(first, first + count)])


def job_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {f"jobs from {first}": partial(_jobs, first, 8) for first in range(0, 96, 8)}
    return (
        table
        | {f"servers from {first}": partial(_servers, first, 10) for first in range(0, 110, 10)}
        | {f"searches from {first}": partial(_searches, first, 3) for first in range(0, 27, 3)}
    )
