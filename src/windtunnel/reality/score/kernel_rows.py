"""Rows of a kernel dataset, predicted against measured: families by GPU, operator and pass, quantity `time_us`.

A row becomes a row of the operator graph, priced by `compute.estimate` without training factors, because these are
kernels in a loop. Rows of sub-modules and layers are assembled from kernels (`module_rows.py`). Rows without a model are listed
with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from windtunnel.compute import estimate
from windtunnel.compute.bench import gpu_of, gpu_under
from windtunnel.compute.memory_classes import key_of
from windtunnel.compute.row_names import KINDS, PHASES
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.score.module_rows import module_score
from windtunnel.reality.score.scores import Score
from windtunnel.records import Dataset, describe
from windtunnel.records.work import BACKWARD, with_work
from windtunnel.spec import GPU, load_runtime
from windtunnel.spec.runtime import Runtime
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable

Row = Mapping[str, Any]

LIBRARIES = ("fa1", "fa2", "fa3", "cudnn")


def score_rows(data: Dataset, fitted: Fitted, assumed: tuple[str, ...] = (), kernels: str | None = None) -> list[Score]:
    """A score for every row of `data`, in its order; `kernels` is a file of curves in place of the catalogue's.

    Raises SpecError for a GPU that neither catalogue nor dataset describes.
    """
    gpu = gpu_of(data.about) if kernels is None else gpu_under(data.about, kernels)
    rows = data.rows()
    scores: list[Score | None] = [None] * len(rows)
    groups: dict[Runtime, list[tuple[int, Op]]] = {}
    for number, row in enumerate(rows):
        if row["level"] != "kernel":
            module_result = module_score(number, row, gpu, fitted)
            scores[number] = replace(module_result, assumptions=(*assumed, *module_result.assumptions))
            continue
        row_op = _op(row)
        if isinstance(row_op, str):
            scores[number] = _score(number, row, gpu, fitted, assumed, skipped=row_op)
        else:
            groups.setdefault(_runtime(row), []).append((number, row_op))
    for runtime, listed in groups.items():
        estimated = estimate(OpTable.of([op for _, op in listed]), gpu, runtime, factors={})
        for place, (number, _) in enumerate(listed):
            scores[number] = _score(
                number,
                rows[number],
                gpu,
                fitted,
                assumed,
                1e6 * float(estimated.seconds[place]),
                100.0 * float(estimated.relative_error[place]),
            )
    return [score for score in scores if score is not None]


def _op(row: Row) -> Op | str:
    """The row of the graph, or the reason why there is none."""
    if row["status"] != "ok":
        return f"status {row['status']}" + (f": {row['note']}" if row["note"] else "")
    if row["mode"] == "compile":
        return "mode compile: fused kernels have no model of their own"
    if row["op"] not in KINDS:
        return f"op {row['op']}: host time, not a kernel's"
    full = with_work(row)
    kind = KINDS[row["op"]]
    if kind in (Kind.GEMM, Kind.GROUPED_GEMM, Kind.ATTENTION):
        if full["flops"] is None:
            return f"{row['op']} without m, n and k"
    elif full["bytes"] is None:
        return f"{row['op']} without bytes, or a shape from which they follow"
    width = row["k"] or 0
    if kind is Kind.ATTENTION:
        kind = Kind.ATTENTION_BACKWARD if row["phase"] in BACKWARD else kind
        width = (width + (row["v"] or width)) // 2
    return Op(
        _name(row),
        kind,
        PHASES[row["phase"]],
        dtype=DTYPES.index(row["dtype"]),
        batch=row["batch"] or 1,
        m=row["m"] or 0,
        n=row["n"] or 0,
        k=width,
        extra=row["heads_per_kv"] or 1,
        flops=full["flops"] or 0.0,
        bytes=full["bytes"] or 0.0,
        launches=row["launches"] or 1,
    )


def _name(row: Row) -> str:
    """The name of one library's kernel for `estimate`, if it has a fitted curve."""
    return key_of(row["name"], row["library"] or "")


def _runtime(row: Row) -> Runtime:
    """The runtime for the estimator: the attention library that ran, and the softmax kernel."""
    if row["op"] == "attention" and row["library"] in LIBRARIES:
        return _megatron(attention_library=row["library"])
    if row["op"] == "softmax":
        return _megatron(attention="unfused" if row["library"] == "aten" else "fused_softmax")
    return _megatron()


@cache
def _megatron(**fields: str) -> Runtime:
    """Megatron-Core's defaults with `fields` changed."""
    return load_runtime("megatron-core", **fields)


def _score(
    number: int,
    row: Row,
    gpu: GPU,
    fitted: Fitted,
    assumed: tuple[str, ...],
    predicted: float | None = None,
    claimed: float | None = None,
    skipped: str | None = None,
) -> Score:
    family = f"{gpu.id} {row['op']} {row['phase']}"
    origin = str(row["source"]).split(" ")[0]
    measured = None if row["seconds"] is None else 1e6 * row["seconds"]
    return Score(
        f"{number}:{row['name']}",
        family,
        "time_us",
        measured,
        predicted,
        skipped,
        assumed,
        fitted=(f"{family}, {origin}", "time_us") in fitted,
        complete=skipped is None,
        claimed_pct=claimed,
        job=describe(row),
        precision=row["dtype"],
    )
