"""Fits of made-up measurements whose numbers are watched. What was measured follows a known
law, so that a fit has something to find; each takes less than half a second."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from folding import digest, folded, folded_list
from varied import or_refused, said, unit

import windtunnel as wt
from windtunnel.base.comm import Comm


def _achieved(on: str, ranks: int, nodes: int, seed: int) -> Any:
    """Calls of a cluster that is slower than its sheet, with noise; one table is of another library."""
    from windtunnel.calibrate.achieved import fit_achieved
    from windtunnel.network import collective, flat_group
    from windtunnel.records.measured_calls import CallTable, MeasuredCall
    from windtunnel.spec.machine import Achieved

    draw, cluster = np.random.default_rng(seed), wt.load_cluster(on)
    slow = cluster.model_copy(
        update={"achieved": Achieved(launch=1.3, inside_rate=0.8, across_rate=0.6, across_hop=1.5, relative_error=None)}
    )
    group, tables = flat_group(slow, ranks, ranks // nodes), []
    for comm in (Comm.ALL_REDUCE, Comm.ALL_GATHER):
        seconds = [
            collective(slow, comm, size, group).seconds * draw.lognormal(0.0, 0.03) for size in (2.0**9, 2.0**16, 2.0**24, 2.0**30)
        ]
        calls = [MeasuredCall(2.0**n, one) for n, one in zip((9, 16, 24, 30), seconds, strict=True)]
        tables.append(CallTable(comm, ranks, nodes, (MeasuredCall(8.0, 1e-5), *calls, MeasuredCall(2.0**20, 1.0, wrong=3))))
    tables += [
        CallTable(Comm.ALL_REDUCE, 8, 1, tables[0].calls, "mpi"),
        CallTable(Comm.NONE, 9, 2, ()),
        CallTable(Comm.BROADCAST, 9, 2, ()),
    ]
    found = fit_achieved(cluster, tables)
    factors = found.cluster.achieved
    return digits(
        [
            factors.model_dump(exclude={"source"}) if factors else 0,
            found.errors,
            found.before,
            found.after,
            found.left_out,
            found.by_test,
            len(found.skipped),
            found.at_limit,
        ]
    )


def digits(value: Any, count: int = 4) -> Any:
    """Folded data whose numbers have the digits that solvers agree in."""
    value = folded(value)
    if isinstance(value, dict):
        return {key: digits(item, count) for key, item in value.items()}
    if isinstance(value, list):
        return [digits(item, count) for item in value]
    return float(f"{value:.{count}g}") * (abs(value) > 1e-9) if isinstance(value, float) else value


def _host_and_factors() -> Any:
    from windtunnel.calibrate import training as room
    from windtunnel.calibrate.record import FitRecord, compare_errors
    from windtunnel.compute.training import TrainingFactor

    draw, answers = np.random.default_rng(2), []
    jobs = {f"job {n}": draw.dirichlet((4.0, 2.0, 1.0)) for n in range(30)}
    truth = {"throttle": 0.4, "matmul": 1.12, "memory": 1.2}

    def seconds(values: dict[str, float]) -> Callable[[Any], float]:
        return lambda job: float(jobs[job] @ (values["matmul"], values["memory"], 1.0 + values["throttle"]))

    samples: Any = [(f"family {n % 3}", job, seconds(truth)(job) * draw.lognormal(0.0, 0.02), job) for n, job in enumerate(jobs)]
    shares: list[float] = []
    found = room.solve_factors(samples, seconds, shares.append)
    start = {"throttle": 1.0, "matmul": 1.0, "memory": 1.0}
    before, after = room.errors(samples, seconds(start)), room.errors(samples, seconds(found))
    record = FitRecord("x", "y", {name: (1.0, found[name]) for name in found}, compare_errors(before, after), ("a",))
    answers += [found, room.mean_error(samples, seconds(start)), shares[:3], record.as_dict(), said(record.lines())]
    answers.append(room.search({"launch": 6e-6, "step": 8e-3, "layer": 3e-4},
                               lambda v: 4e6 * abs(v["launch"] - 21e-6) + 900 * abs(v["step"] - 3e-3 - v["layer"])))  # fmt: skip
    answers += [len(grid) for grid in room.GRIDS.values()]
    text = room.written_factors("# head\nx = 1\n", {"hopper": TrainingFactor(throttle=0.51234, matmul=1.1, fitted_on=("a", "b"))})
    host = '[a]\n[host]\nlaunch = "5us"\nstep = "2ms"\n'
    answers += [said([text]), said([room.written_host(host, {"launch": 7e-6, "step": 3e-3})])]
    return digits(answers, 6)


def _columns() -> Any:
    from windtunnel.calibrate.engines import columns as room

    draw = np.random.default_rng(4)
    routed = [room.route_tokens(tokens, top_k, experts, ep, skew) for tokens, top_k, experts, ep in
              ((1, 2, 8, 1), (64, 8, 256, 8), (5, 4, 16, 4), (4096, 6, 60, 2)) for skew in (0.0, 0.6, 1.2)]  # fmt: skip
    filled = [
        room.fill_up(draw.integers(0, 9, (3, 6)).astype(float), draw.integers(1, 30, 3).astype(float)).tolist() for _ in range(4)
    ]
    held = [int(room.held_out(*draw.integers(1, 9, (2, 60)).astype(float)).sum()) for _ in range(3)]
    return folded([routed, filled, held])


def _deepep() -> Any:
    from types import SimpleNamespace

    from windtunnel.calibrate.forward import deepep as room
    from windtunnel.network.closed.cost import DispatchCurve

    truth, calls = DispatchCurve(4e-5, 2e10, 4e-7, 0.7, 2.0), []
    for way in ("dispatch", "combine"):
        for tokens in (512, 1024, 4096, 16384):
            for hidden, top_k, experts in (
                (4096, 4, 64),
                (7168, 8, 256),
                (5120, 6, 160),
                (2048, 2, 32),
                (7168, 4, 128),
                (6144, 8, 64),
            ):
                for sms, dtype in ((12, "bf16"), (24, "fp8")):
                    what = f"DeepEP normal {way} hidden={hidden} top_k={top_k} experts={experts} sms={sms}"
                    size = tokens * hidden * top_k * (1.0 if dtype == "fp8" else 2.0)
                    calls.append(SimpleNamespace(what=what, bytes=size, dtype=dtype, seconds=1.0))
    engine: Any = SimpleNamespace(gpu="h100-sxm-80gb", calls=calls, engine="sglang", release="1.0")
    link = room.link_of(engine.gpu)
    for way in ("dispatch", "combine"):
        mine = [call for call in calls if call.what.split()[2] == way]
        for call in mine:
            one = room.dispatch_rows(SimpleNamespace(gpu=engine.gpu, calls=[call]), way)  # type: ignore[arg-type]
            assert one is not None
            call.seconds = float(room.predict_dispatch(truth, one, link)[0]) if len(one.sms) else 1.0
    curves, errors = room.fit_dispatch([engine])
    rows = room.dispatch_rows(engine, "combine")
    return [folded(rows), digits({way: vars(curve) for way, curve in curves.items()}, 3), [len(one) for one in errors.values()]]


def _transfer() -> Any:
    from windtunnel.calibrate.transfer.fit import attention_curves, foreign, gemm_curve, native
    from windtunnel.calibrate.transfer.judge import METHODS, Known, Relative
    from windtunnel.compute.transfer.law import sheet

    world = unit("test_transfer_methods")
    case, other = world.world("a100-sxm-80gb"), world.world("h100-sxm-80gb")
    on = sheet(case.gpu)
    answers: list[Any] = [len(native(case)), len(foreign(case))]
    curve = gemm_curve(on, case.gemm)
    ways = attention_curves(on, case.attention)
    answers += [digits(vars(curve), 3), digits({way: vars(one) for way, one in ways.items()}, 3)]
    known = Known([Relative(on, world.CURVE, world.FUSED)], world.TRUTH)
    for kind, rows in (("gemm", other.gemm), ("attention", other.attention)):
        for name, method in METHODS.items():
            found = or_refused(lambda method=method, kind=kind, rows=rows: method(kind, rows, other.gpu, known))
            answers.append([name, folded_list(np.asarray(found.seconds).tolist()) if hasattr(found, "seconds") else found])
    return answers


def _studied(*gpus: str) -> Any:
    """Errors of GPUs left out: of the published ones, or of those whose rows follow one law."""
    from windtunnel.calibrate.transfer import published_cases
    from windtunnel.calibrate.transfer.errors import errors
    from windtunnel.calibrate.transfer.study import study_transfer

    world = unit("test_transfer_methods").world
    study = study_transfer([world(name) for name in gpus] if gpus else published_cases())
    rows = [
        digits([one.gpu, one.kind, one.method, one.n, one.median, one.p90, one.bias], 3)
        for one in (*study.results, *study.together)
    ]
    bests = [digits(list(one), 3) for one in study.bests]
    return [rows, bests, digits(dict(errors(study.results, study.bests)), 3) if len(gpus) > 1 else 0]


def _forward() -> Any:
    """Recurrences, convolutions and products in 8 bits of tables that follow a law, and products under sustained power."""
    import tempfile
    from pathlib import Path

    from windtunnel.calibrate.forward import fit as room
    from windtunnel.calibrate.forward.sustained import ProductRows, _thin, predict_products
    from windtunnel.compute.engines.seconds import engine_device

    law = unit("test_fit_forward")
    with tempfile.TemporaryDirectory() as folder:
        made = law.fit_of_laws(Path(folder))
    draw = np.random.default_rng(6)
    m, n, k = (2.0 ** draw.integers(7, 15, 700) for _ in range(3))
    rows = ProductRows(m, n, k, np.ones(700), draw.random(700) < 0.2)
    seconds = predict_products(law.choose(law.H100).kernels.gemm, engine_device(law.H100), rows)
    errors = draw.normal(0.02, 0.1, 60)
    scans = [room.published_scans(kind) for kind in ("delta", "state_space")]
    return [
        digits(vars(made.gpus["h100-sxm-80gb"]), 3),
        digits([list(line) for line in made.lines], 2),
        digits([room._sigma(errors), room._median(errors), list(room._line("g", "w", "s", errors))], 6),
        folded_list(seconds.tolist()),
        digits([[vars(one) for one in both] for both in scans if both is not None], 6),
        [len(_thin(rows).m), float(_thin(rows).m.sum())],
        digits(room._backward_over_forward(), 5),
    ]


def _kernels(gpu: str, seed: int, rows: int) -> Any:
    """Kernels of a GPU that are as slow as another's with noise: products of all layouts, attention both ways by two libraries,
    and what moves bytes; many rows or few."""
    from tests.helpers.fit_rows import COMMON
    from windtunnel.calibrate.kernels import catalogue
    from windtunnel.calibrate.kernels.fit import fit, starting_curves
    from windtunnel.compute.attention import FULL
    from windtunnel.records import About, dataset

    draw, sheet = np.random.default_rng(seed), wt.load_cluster("h100-ib" if "h100" in gpu else "a100-ib").gpu
    peak, band = sheet.peak["fp16"] if "fp16" in sheet.peak else sheet.peak["bf16"], sheet.memory_bandwidth
    made: list[dict[str, Any]] = []

    def add(seconds: float, **row: Any) -> None:
        made.append({**COMMON, "dtype": "fp16", **row, "seconds": seconds * draw.lognormal(0.0, 0.05)})

    for at in range(rows):
        m, n, k = (int(2 ** draw.integers(6, 14)) for _ in range(3))
        phase = ("forward", "dgrad", "wgrad")[at % 3]
        work = 2.0 * m * n * k
        add(4e-6 + max(work / (0.7 * peak), 2.0 * (m * n + n * k + m * k) / band) * (1.05 if phase == "wgrad" else 1.0),
            op="gemm", name="linear", batch=1, m=m, n=n, k=k, phase=phase, flops=work)  # fmt: skip
        seq, heads, head, causal = int(2 ** draw.integers(8, 14)), int(2 ** draw.integers(3, 8)), (64, 128)[at % 2], at % 4 > 1
        way = ("forward", "backward")[at // 2 % 2]
        work = FULL[way] * heads * seq * seq * head * (0.5 if causal else 1.0)
        add(8e-6 + work / (0.5 * peak), op="attention", name="attention", library=("fa2", "cudnn")[at % 3 > 1], phase=way,
            batch=heads, m=seq, n=seq, k=head, causal=causal, flops=work)  # fmt: skip
        for op, share in (("elementwise", 0.9), ("norm", 0.8), ("softmax", 0.6), ("permute", 0.5), ("optimizer", 0.85))[
            : 2 + at % 4
        ]:
            m, n = int(2 ** draw.integers(6, 14)), int(2 ** draw.integers(8, 13))
            behind, name = at % 5 == 4, "add" if op == "elementwise" else op
            seconds = 3e-6 + 4.0 * m * n / (share * band) * (1.3 if behind else 1.0)
            add(seconds, op=op, name=name, m=m, n=n, bytes=4.0 * m * n, phase="backward" if behind else "forward")
    found = fit([dataset(About(gpu=gpu, architecture=sheet.architecture, source="made up"), made)],
                starting_curves() if rows > 30 else None)  # fmt: skip
    kernels = found.kernels
    answers = [found.as_dict(), vars(kernels.gemm), {name: vars(one) for name, one in kernels.memory.items()}]
    answers += [{library: {way: vars(one) for way, one in both.items()} for library, both in kernels.attention.items()}]
    answers += [{name: [one.error, int(one.provenance)] for name, one in kernels.tables.items()}, catalogue.errors_of([found])]
    return digits([*answers, said(catalogue.error_lines([found]))], 3)


def _published_kernels() -> Any:
    from windtunnel.calibrate.kernels import catalogue
    from windtunnel.calibrate.kernels.memory_classes import MemoryClass, derive_classes
    from windtunnel.compute.curves import Basis, MemoryCurve, Provenance
    from windtunnel.compute.kernel_file import load

    table = catalogue.published_attention().table
    columns = [table.column(name).to_pylist() for name in ("batch", "m", "k", "flops", "seconds")]
    base, answers = load("h100-sxm-80gb"), [[folded_list(one) for one in columns]]
    basis = Basis(0.1, Provenance.MODELLED, "made up")
    for names in (
        (),
        ("norm",),
        ("elementwise",),
        ("elementwise", "softmax", "permute"),
        ("optimizer", "cross_entropy", "embedding"),
    ):
        for latency, backward in ((0.0, 1.0), (4e-6, 1.4)):
            known = {name: MemoryClass(MemoryCurve(0.7, latency, 1.2, backward=backward), basis) for name in names}
            derived = derive_classes(known, base)
            answers.append([[name, *vars(one.curve).values(), one.table.error, int(one.table.provenance)]
                            for name, one in derived.items()])  # fmt: skip
    for name in ("a100_pcie", "b200_bf16_ceperm"):
        answers.append([[*vars(one.curve).values(), one.table.error] for one in catalogue.stated_classes(name, base).values()])
    return digest(answers)


def fitted_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {
        f"achieved {on} {ranks}": partial(_achieved, on, ranks, nodes, seed)
        for on, ranks, nodes, seed in (("h100-ib", 16, 2, 1), ("a100-ib", 8, 1, 2))
    }
    table |= {
        "host and factors": _host_and_factors,
        "columns": _columns,
        "deepep": _deepep,
        "transfer": _transfer,
        "published kernels": _published_kernels,
        "forward": _forward,
    }
    table |= {
        f"kernels of {gpu} by {rows} rows": partial(or_refused, partial(_kernels, gpu, seed, rows))
        for gpu, seed, rows in (("h100-sxm-80gb", 1, 40), ("a100-sxm-80gb", 2, 24), ("h100-sxm-80gb", 3, 7))
    }
    table |= {f"study of {len(gpus)} GPUs": partial(_studied, *gpus) for gpus in ((), ("a100-sxm-80gb", "h100-sxm-80gb"), WORLDS)}
    return table


WORLDS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb")
