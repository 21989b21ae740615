"""Sub-modules and layers of a dataset, predicted against measured: assembled from kernels as a job's layer is.

The row's shape becomes a job of one layer; its graph, kernel by kernel, goes through the engine with the host's launches, and
communication is left out (the row timed one GPU's slice). `from_kernels`: the dataset's kernel rows have priority over the curves;
rows of modules are never used for their own prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.errors import WindtunnelError
from windtunnel.compute import Measured, Modules, Profile
from windtunnel.compute.bench import bench, on_host
from windtunnel.compute.modules import parts, shape_of
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.isolated import run_alone
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.score.scores import Score
from windtunnel.records import Dataset, read_shape
from windtunnel.spec import GPU, Job, Model, Plan, Runtime, check, load_model, load_runtime
from windtunnel.spec.loading.files import names
from windtunnel.workload import Workload, build

Row = Mapping[str, Any]
BLOCKS = {"embedding": 0, "head": 2}
FRAMEWORKS = {"transformer_engine": "megatron-core", "megatron": "megatron-lm"}
"""Library of a row -> framework whose kernels it launches; all others are PyTorch's own modules."""

USUAL = {"layernorm": ("gelu", "learned", True), "rmsnorm": ("swiglu", "rope", False)}
"""Norm -> activation, positions and whether linear layers have a bias, where the row's model is not in the catalogue."""


def score_module_rows(data: Dataset, gpu: GPU, fitted: Fitted = frozenset(), from_kernels: bool = False) -> list[Score]:
    """A score for every sub-module, layer and step row of `data`, in its order: `time_us`, families by GPU, level, op and pass.

    `gpu` is the one that the dataset names. A row that cannot be assembled is skipped with the reason.
    """
    profile = None
    if from_kernels:
        name = f"kernels of {data.about.source or gpu.id}"
        kernels = data.where(level="kernel")
        profile = Profile(name, gpu.id, Measured(kernels, name), Modules(kernels, name))
    rows = enumerate(data.rows())
    return [module_score(number, row, gpu, fitted, profile) for number, row in rows if row["level"] != "kernel"]


def module_score(number: int, row: Row, gpu: GPU, fitted: Fitted = frozenset(), profile: Profile | None = None) -> Score:
    """The score of one such row, the `number`-th of its dataset; `profile` has priority over the curves."""
    result = predict_module(row, gpu, profile)
    family = f"{gpu.id} {row['level']} {row['op']} {row['phase']}"
    score = Score(
        f"{number}:{row['name']}",
        family,
        "time_us",
        None if row["seconds"] is None else 1e6 * row["seconds"],
        fitted=(family, "time_us") in fitted,
        precision=row["dtype"],
        job=row["shape"] or "",
    )
    if isinstance(result, Skipped):
        return replace(score, skipped=result.reason)
    seconds, error, assumed = result
    return replace(score, predicted=1e6 * seconds, claimed_pct=100.0 * error, complete=True, assumptions=assumed)


def predict_module(row: Row, gpu: GPU, profile: Profile | None = None) -> tuple[float, float, tuple[str, ...]] | Skipped:
    """Seconds that a module's pass takes, from the first launch to the last end, their stated relative error, what was assumed."""
    if row["status"] != "ok":
        return Skipped(f"status {row['status']}" + (f": {row['note']}" if row["note"] else ""))
    if row["level"] == "step" or row["phase"] not in ("forward", "backward"):
        return Skipped(f"{row['level']} {row['phase']}: its parts are rows of their own")
    if row["op"] == "moe":
        return Skipped("moe: experts have no graph yet")
    try:
        rebuilt = job_of(row, gpu)
        if isinstance(rebuilt, Skipped):
            return rebuilt
        job, assumed = rebuilt
        workload = build(check(job))
        costs = price(workload, profile=profile)
        rows = _rows(workload, row["op"], row["phase"])
        timed = run_alone(workload, costs, rows.tolist(), job.runtime.host.layer, calls=False)
    except WindtunnelError as error:
        return Skipped(str(error).splitlines()[0])
    layers = int(read_shape(row["shape"]).get("layers", 1))
    error_of = costs.estimate.relative_error[rows] * costs.seconds[rows]
    return timed.seconds * layers, float(error_of.sum() / max(timed.device, 1e-30)), assumed


def job_of(row: Row, gpu: GPU) -> tuple[Job, tuple[str, ...]] | Skipped:
    """A job whose layer on one GPU is the row's module, and what the row does not say."""
    shape = read_shape(row["shape"] or "")
    missing = [key for key in ("hidden", "seq", "micro_batch") if key not in shape]
    if missing:
        return Skipped(f"shape without {', '.join(missing)}")
    assumed: list[str] = []
    model = _model(row, shape, assumed)
    tp = int(shape.get("tp", 1))
    runtime = _runtime(
        str(FRAMEWORKS.get(row["library"] or "", "torchtitan")),
        row["dtype"],
        row["mode"],
        shape.get("attention") == "unfused",
        row["host_seconds"] is None,
    )
    plan = Plan.model_validate(
        {
            "tp": tp,
            "pp": 1,
            "dp": 1,
            "micro_batch": int(shape["micro_batch"]),
            "sharding": "none",
            "global_batch": int(shape["micro_batch"]),
            "seq": int(shape["seq"]),
            "sequence_parallel": False,
            "recompute": str(shape.get("recompute", "none")),
        }
    )
    job = Job(name="module", model=model, plan=plan, runtime=runtime, cluster=bench(gpu, tp))
    expected = shape_of(job, row["op"])
    differ = [f"{key}={shape[key]}" for key in shape if key != "layers" and expected.get(key) != shape[key]]
    if differ:
        return Skipped(f"no layer of this shape: {', '.join(differ)}")
    return job, tuple(assumed)


def _model(row: Row, shape: Mapping[str, int | str], assumed: list[str]) -> Model:
    """The row's model of the catalogue where it has the row's sizes, else one made of them."""
    words = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "window")
    sizes: dict[str, Any] = {key: shape[key] for key in words if key in shape}
    if row["model"] in names("models"):
        model = load_model(row["model"])
        have = {
            "hidden": model.hidden,
            "heads": model.heads,
            "kv_heads": model.groups,
            "head_dim": model.dim_per_head,
            "ffn": model.ffn,
            "vocab": shape.get("vocab"),
            "window": model.window,
        }
        if all(have[key] == value for key, value in sizes.items()):
            return model.model_copy(update={"layers": 1, "dropout": False, "vocab": shape.get("vocab", model.vocab)})
    gated = shape.get("gated")
    norm = str(shape.get("norm", "layernorm" if gated == "no" else "rmsnorm"))
    activation, position, bias = USUAL[norm]
    if gated is not None:
        activation = "swiglu" if gated == "yes" else "gelu"
    if row["op"] not in ("norm", "embedding"):
        assumed.append(f"{activation} and {position} positions, {'with' if bias else 'without'} biases, as is usual with {norm}")
    tp = int(shape.get("tp", 1))
    filler: dict[str, Any] = {"heads": tp, "ffn": 4 * int(shape["hidden"]), "vocab": 128 * tp}
    return Model.model_validate(
        {
            "name": "module",
            "layers": 1,
            "activation": activation,
            "norm": norm,
            "position": position,
            "linear_bias": bias,
            "max_seq": shape["seq"],
            "tied_embeddings": False,
        }
        | filler
        | sizes
    )


@lru_cache(maxsize=256)
def _runtime(framework: str, dtype: str, mode: str, unfused: bool, one: bool) -> Runtime:
    """The framework of a module, whose gradients are new tensors of the operands' format, not added to others.

    `one`: host and device are one.
    """
    fields: dict[str, Any] = {"precision": dtype, "launch": mode, "pad_vocab": 1, "overlap_tp": False, "fused_wgrad": True}
    if dtype in ("fp32", "fp16", "bf16"):
        fields["gradient_dtype"] = dtype
    if unfused:
        fields["attention"] = "unfused"
    runtime = load_runtime(framework, **fields)
    return on_host(runtime) if one else runtime


def _rows(workload: Workload, op: str, phase: str) -> npt.NDArray[np.int64]:
    """The rows of the first module `op`, in launch order."""
    rows_of_way: dict[str, npt.NDArray[np.int64]] = {}
    for way, rows in parts(workload, workload.blocks[BLOCKS.get(op, 1)], op):
        rows_of_way.setdefault(way, rows)
    chosen = [rows_of_way["forward"]] if phase == "forward" else [rows_of_way["again"], rows_of_way["backward"]]
    return np.sort(np.concatenate(chosen))
