"""Answers to drawn inputs whose numbers are watched: traces and graphs of no real job, counts of GPUs under made-up prices, fits of
made-up measurements. Each takes hundredths of a second; every draw has its own seed, so that one more moves no other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from asked import TINY
from folding import folded, folded_list

import windtunnel as wt
from windtunnel.base.comm import Comm
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps
from windtunnel.records.trace_graph import TaskKind, TraceGraph

KERNELS = ("ampere_bf16_gemm", "flash_fwd", "elementwise", "rms_norm", "multi_tensor_adam", "cross_entropy_fwd", "grouped_gemm")
NAMES = (*KERNELS, "ncclDevKernel_AllReduce", "ncclDevKernel_SendRecv", "Memcpy DtoD", "cudaLaunchKernel", "cudaStreamSynchronize",
         "aten::mm", "ProfilerStep#1")  # fmt: skip
COMMS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER)


def _events(draw: np.random.Generator, rank: int, ranks: int, late: float) -> Events:
    """Launches of a host and what they start on three streams: the same on all ranks, at times of their own."""
    same, rows, free, now, calls = np.random.default_rng(7), [], dict[int, float](), 0.0, [0, 0]
    for number in range(60):
        what = str(same.choice(["kernel", "call", "copy", "send", "sync"], p=[0.5, 0.25, 0.1, 0.05, 0.1]))
        lane, size, pick, group = (int(same.integers(*ends)) for ends in ((7, 10), (2**10, 2**24), (0, 7), (0, 2)))
        now += float(draw.exponential(3e-5))
        took, launch = float(draw.lognormal(-10.0, 0.8)), number if draw.random() > 0.05 else -1
        rows.append((EventKind.LAUNCH, 10, 2 if number % 7 == 3 else 1, now, 5e-6, number, number // 4, 0, np.nan, -1, -1, -1))
        if what == "sync":
            rows.append((EventKind.SYNC, 11, 1, now + 6e-6, took, number, -1, 0, np.nan, -1, -1, -1))
            now += took
            continue
        begin = max(now + 8e-6, free.get(lane, 0.0)) + (late if what == "call" else 0.0)
        free[lane] = begin + took
        place = (lane, begin, took, launch, -1)
        if what == "kernel":
            rows.append((EventKind.KERNEL, pick, *place, 0, np.nan, -1, -1, -1))
        elif what == "copy":
            rows.append((EventKind.COPY, 9, *place, 0, float(size), -1, -1, -1))
        elif what == "call":
            rows.append((EventKind.CALL, 7, *place, int(COMMS[pick % 3]), float(size), group, calls[group], -1))
            calls[group] += 1
        else:
            rows.append((EventKind.CALL, 8, *place, int(Comm.SEND_RECV), float(size), -1, -1, (rank + 1) % ranks))
    rows.append((EventKind.ANNOTATION, 13, 1, 0.0, now / 2, -1, -1, 0, np.nan, -1, -1, -1))
    rows += [(EventKind.OPERATOR, 12, 1, rows[at][3] - 1e-6, 1.5e-5, -1, at // 4, 0, np.nan, -1, -1, -1) for at in range(0, 40, 4)]
    rows.sort(key=lambda row: row[3])
    kinds = (np.uint8, np.int32, np.int32, float, float, np.int64, np.int64, np.uint8, float, np.int32, np.int64, np.int32)
    columns = [np.asarray(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return Events(*columns, names=NAMES, groups=(tuple(range(ranks)), (0, 1)[:ranks]), group_names=("DATA_PARALLEL_GROUP", ""))


def run_of_events(seed: int, ranks: int, steps: int) -> Run:
    """Traces of `ranks` ranks, of which the first comes late to calls, and `steps` equal steps."""
    draw = np.random.default_rng(seed)
    late = [4e-5, *[0.0] * (ranks - 1)]
    traces = tuple(
        RankTrace(rank, _events(draw, rank, ranks, late[rank]), 100.0 + 0.01 * rank, "NVIDIA H100 80GB HBM3", ranks)
        for rank in range(ranks)
    )
    length = max(float((trace.events.begin + trace.events.seconds).max()) for trace in traces) / max(steps, 1)
    step, rank = np.repeat(np.arange(steps), ranks), np.tile(np.arange(ranks), steps)
    return Run(Steps.of(rank, step, begin=step * length, seconds=np.full(len(step), length)), traces, {}, "drawn")


def _report(seed: int, ranks: int, steps: int) -> Any:
    return folded(wt.as_dict(wt.runs.show(run_of_events(seed, ranks, steps))))


def _operators() -> Any:
    """Operators of all kinds in a trace, beside what the GPU's kernels take for them."""
    from windtunnel.records.run import OperatorCalls
    from windtunnel.runs.operators import operators_of

    half, draw = "c10::BFloat16", np.random.default_rng(8)
    inputs: tuple[tuple[str, tuple[tuple[int, ...], ...], str], ...] = (
        ("aten::mm", ((512, 256), (256, 1024)), half),
        ("aten::bmm", ((8, 128, 64), (8, 64, 128)), half),
        ("aten::addmm", ((1024,), (512, 256), (256, 1024)), "float"),
        ("aten::linear", ((4, 512, 256), (1024, 256)), half),
        ("aten::_scaled_dot_product_flash_attention", ((2, 8, 512, 64), (2, 8, 512, 64), (2, 8, 512, 64)), half),
        ("aten::_flash_attention_backward", ((2, 512, 8, 64),) * 4, half),
        ("aten::mul", ((512, 1024), (512, 1024)), half),
        ("aten::_fused_rms_norm", ((512, 1024),), "float"),
        ("aten::embedding", ((32000, 256), (512,)), half),
        ("aten::copy_", ((512, 1024), (512, 1024)), half),
        ("own::thing", (), ""),
        ("aten::mm", ((512, 256), (256, 1024)), ""),
    )
    calls = tuple(
        OperatorCalls(
            op, "layers", "forward" if n % 2 else "backward", shapes, (form,) * len(shapes), n + 1, draw.uniform(1e-5, 1e-3)
        )
        for n, (op, shapes, form) in enumerate(inputs)
    )
    traces = [
        RankTrace(0, _events(draw, 0, 1, 0.0), device=device, operators=calls) for device in ("NVIDIA H100 80GB HBM3", "", "x")
    ]
    return [[folded(row) for row in operators_of([one])] for one in traces]


def _changed(seed: int, ranks: int) -> Any:
    from windtunnel.runs.whatif import TracedMachine, what_if

    changes = ["scale:gemm=0.5", "remove:norm", "scale:/flash|adam/=2", "fp8", "gpu=b200-sxm-180gb", "network=aws-p5",
               "cluster=h200-ib", "no-host-gaps", "no-stragglers"]  # fmt: skip
    cluster = wt.load_cluster("h100-ib", ["gpus=16"])
    rows = what_if(run_of_events(seed, ranks, 0), changes, TracedMachine(gpu=cluster.gpu, cluster=cluster))
    return folded([row.as_dict() for row in rows])


@cache
def _job(*changes: str) -> Any:
    return wt.load(TINY[0], [*TINY[1:], *changes])


def _suspected(measured: float, *changes: str) -> Any:
    from windtunnel.runs.suspects import suspected_causes

    expected = wt.predict(_job(*changes)).step_time_s
    return [[*one.sets, one.seconds, one.share] for one in suspected_causes(_job(*changes), measured * expected, expected)]


def _logged(seed: int, count: int) -> Any:
    from windtunnel.runs.log_facts import log_facts

    draw = np.random.default_rng(seed)
    seconds = 0.3 * draw.lognormal(0.0, 0.02, count) * (1.0 + 0.1 * np.arange(count) / count)
    seconds[3 :: int(draw.integers(4, 9))] *= 1.5
    seconds[draw.integers(0, count, 2)] = np.nan
    columns = {"tokens": np.full(count, 8100.0), "tflops": draw.uniform(200, 400, count), "memory": draw.uniform(1e9, 9e9, count)}
    facts = {"world_size": 32, "num_layers": 2, "micro_batch_size": 4, "timing_s/update_actor": 0.2, "seq_length": 512}
    run = Run(Steps.of(-1, np.arange(count), seconds=seconds, **columns), (), facts)
    return folded(log_facts(run, wt.predict(_job())))


def _factors(seed: int, *changes: str) -> Any:
    """A run whose kernels, calls and launches are the expected ones times drawn factors; one rank and one group are slow."""
    from dataclasses import replace

    from windtunnel.runs.causes import causes_of
    from windtunnel.runs.expected import expected_run
    from windtunnel.runs.factors import factors_of, stages_of
    from windtunnel.runs.observed import observe

    job, draw = _job(*changes), np.random.default_rng(seed)
    expected = observe(expected_run(job), job)
    ranks = np.arange(job.cluster.gpus)
    stage = stages_of(ranks, job)
    slow = np.where(ranks == 3, 1.3, 1.0)
    kernels = {name: seconds[stage] * slow * draw.uniform(0.9, 1.4) for name, seconds in expected.kernels.items()}
    calls = {key: (each * draw.uniform(0.8, 1.6), count) for key, (each, count) in expected.calls.items()}
    groups = {
        key.axis: {(0, 1): {key: 1e-3}, (2, 3): {key: 1e-3 * draw.uniform(1.3, 2.0)}, (4, 5): {key: 1.01e-3}} for key in calls
    }
    measured = replace(
        expected, ranks=ranks, kernels=kernels, compute=np.sum(list(kernels.values()), axis=0),
        calls=dict(list(calls.items())[1:]), groups=groups, launch=expected.launch[stage] * 1.2,
    )  # fmt: skip
    found = factors_of(measured, expected, job)
    return {
        "factors": folded(found),
        "causes": [[one.key, one.factor, one.seconds] for one in causes_of(job, found)],
        "expected": folded({name: value for name, value in vars(expected).items() if name not in ("calls", "groups", "times")}),
    }


def _graph(seed: int, lanes: bool, stuck: bool, ranks: int = 4) -> TraceGraph:
    """Tasks of every kind: products, attention, bytes, calls of all ranks, messages of pairs, loads and marks. `stuck`: every rank
    sends first, to the next one."""
    draw, same = np.random.default_rng(seed), np.random.default_rng(3)
    kinds = same.choice([0, 0, 0, 1, 2, 3, 4, 5, 6], 40)
    names = ("aten::mm gemm", "flash_attn", "elementwise", "Memcpy HtoD", "triton::add", "all", "send", "mark")
    shape, count = same.integers(1, 40, (40, 4)) * 32, 40 * ranks
    kind = np.tile(kinds, ranks).astype(np.uint8)
    pick = np.tile(same.integers(0, 5, 40), ranks)
    rank = np.repeat(np.arange(ranks), 40)
    message = np.isin(kind, (TaskKind.SEND, TaskKind.RECEIVE))
    if not stuck:
        kind[message] = np.where(rank[message] % 2, TaskKind.RECEIVE, TaskKind.SEND)
    around = (rank + np.where(kind == TaskKind.SEND, 1, ranks - 1)) % ranks
    name = np.where(kind == TaskKind.COMPUTE, pick, np.where(kind == TaskKind.COLLECTIVE, 5, np.where(kind == 6, 7, 6)))
    product = (kind == TaskKind.COMPUTE) & (pick == 0)
    products = np.where(product[:, None], np.column_stack([np.tile(shape, (ranks, 1)), np.full(count, 2)]), 0)
    fused = np.flatnonzero((kind == TaskKind.COMPUTE) & (pick == 1))
    attentions = [[at, at // 2, 2, 8, 4, 256, 512, 64, at % 3, 0, at % 2, 2, at % 2] for at in fused.tolist()]
    seconds = draw.lognormal(-9.0, 1.0, count)
    seconds[draw.random(count) < 0.2] = np.nan
    dep = [[at - 1, at - 3] if at % 40 > 3 and at % 5 == 0 else [at - 1] if at % 40 and at % 3 == 0 else [] for at in range(count)]
    return TraceGraph(
        rank_start=np.arange(ranks + 1) * 40, name=name.astype(np.int32), kind=kind, on_host=np.zeros(count, np.bool_),
        lane=np.where(kind == TaskKind.COMPUTE, 0, 1 if lanes else -1).astype(np.int32), seconds=seconds,
        flops=np.where(kind == TaskKind.COMPUTE, np.tile(same.uniform(1e8, 1e11, 40), ranks), np.nan),
        bytes=np.tile(same.integers(2**12, 2**24, 40), ranks).astype(np.float64),
        comm=np.where(kind == TaskKind.COLLECTIVE, int(Comm.ALL_REDUCE), 0).astype(np.uint8),
        group=np.where(kind == TaskKind.COLLECTIVE, 0, -1).astype(np.int32),
        peer=np.where(message, around if stuck else rank ^ 1, -1).astype(np.int32),
        tag=np.zeros(count, np.int64), dep_start=np.append(0, np.cumsum([len(one) for one in dep])),
        deps=np.array([other for one in dep for other in one], np.int64), names=names, groups=(tuple(range(ranks)),),
        products=products, attentions=np.array(attentions, np.int64).reshape(-1, 13),
    )  # fmt: skip


def _replayed(seed: int, cluster: str, lanes: bool = True, stuck: bool = False, **options: Any) -> Any:
    from windtunnel.replay import ReplayOptions, replay
    from windtunnel.spec.loading.load import load_gpu

    source = options.pop("source", None)
    chosen = ReplayOptions(**options, source=None if source is None else load_gpu(source))
    found = replay(_graph(seed, lanes, stuck), wt.load_cluster(cluster, ["gpus=16"]), chosen)
    return {**folded(wt.as_dict(found)), "numbers": _numbers(found.assumed), "stuck": _numbers(found.stuck)}


def _numbers(lines: Any) -> list[list[str]]:
    import re

    return [re.findall(r"\d[\d.,]*", str(line)) for line in lines]


def _compared(*changes: str, blocking: bool = True, **faults: Any) -> Any:
    """A watched run beside its job and beside an earlier run, and as a page and a timeline show it."""
    from tests.helpers.fleet_expected import watched
    from windtunnel.fleet.findings.steps import step_table
    from windtunnel.runs.fleet.comparison import compare_sections
    from windtunnel.runs.fleet.trace import fleet_tracks
    from windtunnel.runs.fleet.usual import usual_sections
    from windtunnel.runs.fleet.view import flows_of, heat_layers, mesh_of

    job = wt.load("llama3-8b-8xh100", ["plan.sharding=none", "model.layers=2", *changes])
    run, table = watched(job, **faults), None
    table = step_table(run)
    usual = usual_sections(watched(job, seed=3), job, blocking)
    tracks = fleet_tracks(run)
    return [
        folded(wt.as_dict(compare_sections(run, job, blocking=blocking))),
        folded(usual),
        folded(heat_layers(table)),
        folded(flows_of(run, 5)),
        *(
            folded(mesh_of(meshes, list(range(8)), run))
            for meshes in (
                [],
                [
                    {"names": ["dp", "tp"], "shape": [2, 4], "ranks": list(range(8))},
                    {"names": ["x"], "shape": [9], "ranks": list(range(9))},
                    {"names": ["a", "b", "c"], "shape": [1, 2, 2], "ranks": list(range(4))},
                ],
            )
        ),
        len(tracks),
        folded_list([span.start for track in tracks for span in track.spans]),
        folded_list([span.end for track in tracks for span in track.spans]),
    ]


def _unexpected(*changes: str, blocking: bool = True, **faults: Any) -> Any:
    from tests.helpers.fleet_expected import watched
    from windtunnel.runs.fleet.comparison import compare_sections
    from windtunnel.runs.fleet.watching import unexpected_findings

    job = wt.load("llama3-8b-8xh100", ["plan.sharding=none", "model.layers=2", *changes])
    compared = compare_sections(watched(job, **faults), job, blocking=blocking, last=12, priced=False)
    found = unexpected_findings(compared)
    return [[len(compared.causes)]] + [[one.part, one.size, one.cost, *_numbers([one.evidence])] for one in found]


def _judged(seed: int, **faults: Any) -> Any:
    from tests.helpers.fleet_synthetic import job
    from windtunnel.fleet.findings.clocks import clocks_of
    from windtunnel.fleet.findings.judge import judge

    sections = job(seed=seed, **faults)
    found = judge(sections)
    return [
        folded([one.as_dict() for one in (*found.findings, *found.routine)]),
        folded(found.pace),
        folded(found.times),
        folded(clocks_of(sections)),
        *(folded_list(np.ravel(values)) for values in (found.table.own, found.table.late)),
    ]


def _rare(seed: int) -> Any:
    from tests.helpers.fleet_synthetic import draw_rare_fault
    from windtunnel.fleet.findings.judge import judge

    found = judge(draw_rare_fault(seed).sections)
    return [folded([one.as_dict() for one in (*found.findings, *found.routine)]), folded(found.times)]


def _kept(saves: int, step: float | None) -> Any:
    import tempfile
    from pathlib import Path

    from tests.helpers.kept_run import kept
    from windtunnel.goodput.measured import measured_conditions, twin
    from windtunnel.runs.fleet.kept import fleet_run

    with tempfile.TemporaryDirectory() as folder:
        run = fleet_run(kept(Path(folder), saves), **({} if step is None else {"step": step, "interval": 20.0}))
    return [
        folded(run.as_dict()),
        run.wall,
        run.ettr,
        folded(run.parts),
        folded(measured_conditions(run)),
        folded(wt.as_dict(twin(run))),
    ]


def _steady(seed: int) -> Any:
    """Closed forms of a run under drawn failures."""
    from tests.random_runs import setting
    from windtunnel.goodput.closed import best_interval, flat_range, pace_of, rates_of, steady, trained_seconds, wall_of

    run = setting(np.random.default_rng(seed), wide=seed % 2 == 0)
    rates, wall = rates_of(run), wall_of(run)
    best = best_interval(run, rates, 1e5, wall)
    trained = [trained_seconds(best * times, rates, run.checkpoint) for times in (0.3, 1.0, 3.0)]
    return [folded(steady(run)), best, *flat_range(run, rates, best, 1e5, wall), *trained, pace_of(run), wall(best)]


def _counts(seed: int) -> Any:
    """Numbers of GPUs that a search tries for a drawn wish, where a GPU is the slower the more there are."""
    from windtunnel.search.budget.counts import CountSearch, rank

    draw = np.random.default_rng(seed)
    fixed = bool(seed % 3)
    days = float(draw.uniform(2, 60)) if seed % 4 else None
    budget = float(draw.uniform(5e4, 5e6)) if seed % 2 or not fixed else None
    wish: Any = SimpleNamespace(
        work_is_fixed=fixed, days=days, budget=budget, tokens=1e12 if seed % 5 == 0 else None, tokens_per_parameter=20.0
    )
    work, least, price = (
        float(draw.uniform(500, 2e4)),
        int(2 ** draw.integers(2, 8 if seed < 16 else 13)),
        float(draw.uniform(1.0, 5.0)),
    )
    tried: list[list[Any]] = []

    def evaluate(count: int, again: bool) -> Any:
        if count < least // 2:
            raise wt.PlanError("plan.tp", count, "more")
        speed = (1.0 + 0.1 * again) / (1.0 + count / 4000.0)
        took = work / (count * speed) if fixed else days or 30.0
        cost, tokens = price * count * 24.0 * took, 1e9 * count * speed * took
        beyond = {}
        if fixed and days is not None and took > days:
            beyond["deadline"] = took - days
        if fixed and budget is not None and cost > budget:
            beyond["budget"] = cost - budget
        misses = (*beyond, *(("size",) if not fixed and (budget or 1e9) < cost else ()))
        fits = count >= least
        tried.append([count, again])
        return SimpleNamespace(
            machine=SimpleNamespace(cluster=SimpleNamespace(gpus=count)),
            days=took,
            price=SimpleNamespace(cost=cost),
            prediction=SimpleNamespace(
                fits=fits, job=SimpleNamespace(plan=SimpleNamespace(recompute="full" if count < 64 else "none"))
            ),
            tokens=tokens,
            parameters=7e9,
            loss=2.0 + 1e11 / tokens,
            beyond=beyond,
            misses=misses,
            good=fits and not misses,
        )

    most, node = int(draw.choice([64, 1000, 4096])), int(draw.choice([4, 8, 72]))
    search = CountSearch(wish, most, node, evaluate)
    rows = search.run(float(draw.uniform(4, 3000)))
    stated = CountSearch(wish, most, node, evaluate).run_stated([16, 32, 40])
    return [[one.machine.cluster.gpus, *rank(wish, one)] for one in (*rows, *stated)], tried


def drawn_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {
        f"events of run {seed}": partial(_report, seed, ranks, steps)
        for seed, ranks, steps in ((1, 4, 3), (2, 2, 1), (3, 3, 0), (4, 1, 4), (5, 4, 2), (6, 2, 5))
    }
    table |= {f"what if of run {seed}": partial(_changed, seed, ranks) for seed, ranks in ((1, 1), (2, 2), (3, 4))}
    table |= {f"suspects {times} {' '.join(changes)}": partial(_suspected, times, *changes) for times, changes in SUSPECTED}
    table |= {f"log {seed}": partial(_logged, seed, count) for seed, count in ((1, 40), (2, 12), (3, 90), (4, 6), (5, 25))}
    table |= {f"factors {seed}": partial(_factors, seed, *changes) for seed, changes in enumerate(FACTORS)}
    table |= {f"replay {number}": partial(_replayed, **asked) for number, asked in enumerate(REPLAYED)}
    table["operators"] = _operators
    table |= {f"watched {number}": partial(_compared, *changes, **asked) for number, (changes, asked) in enumerate(WATCHED)}
    table |= {f"unexpected {number}": partial(_unexpected, *changes, **asked) for number, (changes, asked) in enumerate(WATCHED)}
    table |= {f"judged {number}": partial(_judged, number, **asked) for number, asked in enumerate(JUDGED)}
    table |= {f"rare {seed}": partial(_rare, seed) for seed in (1, 2, 5)}
    table |= {f"kept {saves} {step}": partial(_kept, saves, step) for saves, step in ((30, None), (12, 2.0))}
    table |= {f"failures {seed}": partial(_steady, seed) for seed in range(8)}
    table |= {f"counts {seed}": partial(_counts, seed) for seed in range(32)}
    return table


SUSPECTED: tuple[tuple[float, tuple[str, ...]], ...] = (
    (1.5, ()),
    (0.9, ()),
    (1.2, ("cluster.gpus=8", "plan.dp=4", "runtime.launch=compile")),
    (1.3, ("plan.pp=2", "plan.dp=4", "runtime.framework=megatron-core")),
)
FACTORS: tuple[tuple[str, ...], ...] = ((), ("plan.pp=2", "plan.dp=4"), ("plan.sharding=zero1",))
REPLAYED: tuple[dict[str, Any], ...] = (
    {"seed": 1, "cluster": "h100-ib"},
    {"seed": 2, "cluster": "h100-ib", "compute": "kernels"},
    {"seed": 3, "cluster": "a100-ib", "compute": "roofline"},
    {"seed": 4, "cluster": "h200-ib", "source": "a100-sxm-80gb", "calls": "trace"},
    {"seed": 5, "cluster": "aws-p5", "network": "flow"},
    {"seed": 6, "cluster": "b200-ib", "compute": "kernels", "source": "h100-sxm-80gb", "lanes": False},
    {"seed": 7, "cluster": "dgx-1v", "compute": "roofline", "precision": "fp16", "network": "flow"},
    {"seed": 9, "cluster": "h100-ib", "stuck": True},
    {"seed": 8, "cluster": "mi300x-roce", "source": "a100-sxm-80gb", "lanes": False},
)
WATCHED: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    ((), {"grows": lambda rank, step, name: 1.3 if name == "forward" or rank == 2 else 1.0, "idle": 0.002}),
    ((), {"grows": lambda rank, step, name: 1.6 if name == "call" else 1.0, "data": 0.01, "blocking": False}),
    (("plan.pp=2", "model.layers=4", "plan.micro_batch=1", "plan.schedule=1f1b"),
     {"grows": lambda rank, step, name: 1.2 if rank < 4 else 1.0, "steps": 30}),
)  # fmt: skip
JUDGED: tuple[dict[str, Any], ...] = (
    {"slow": lambda rank, step: 1.1 if rank == 5 else 1.0},
    {"transfer": lambda a, b, step: 0.02 if {a, b} == {"node0", "node1"} else 0.002, "ranks": 16, "sends": True},
    {"slow": lambda rank, step: 1.0 + 0.01 * step if rank == 3 else 1.0, "steps": 60},
    {"gap": lambda rank, step: 0.03 if rank % 4 == 1 else 0.0, "hiccups": 0.1},
    {"data": lambda rank, step: 0.0005 + 0.004 * step, "steps": 50},
)
