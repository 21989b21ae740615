"""Measured layers and sub-modules in a job's graph: their kernels are scaled to add up to the measured time.

A row matches a block of the measured kind (`ops_of`) if all words of its `shape`, its number format and its launch mode equal the
job's. A layer has priority over its sub-modules, and both over their kernels; kernels keep their estimated shares of the time. Such
times were measured in sequence, so no training factor applies to them.

The device's busy time is scaled. If the row states `host_seconds`, its time contains gaps in which the device waited for the host:
`gap_seconds` is subtracted, and the prediction's host stream adds the waiting again. A host-bound row without `gap_seconds` says
nothing about the device and is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.compute.curves import Provenance
from windtunnel.compute.estimate import Estimate
from windtunnel.compute.measured import NOISE, UNSTATED
from windtunnel.records.schema import Value, read_shape
from windtunnel.spec.job import Job
from windtunnel.spec.mixer import MIXERS
from windtunnel.spec.model import Model
from windtunnel.workload import Block, Kind, Phase, Workload
from windtunnel.workload.identity import BlockKey, BlockKind, Module, Role

if TYPE_CHECKING:
    from windtunnel.records import Dataset

HOST_BOUND = 0.95
"""A module is host-bound if the host's share of its time is at least this."""

BACKWARD = (Phase.DGRAD, Phase.WGRAD)

WIDE = ("fp32", "fp16", "bf16")
"""Precisions whose products are as wide as those of layers that stay in 16 bits."""


NORMS = (Role.NORM1, Role.NORM2)
BESIDE = (*NORMS, Role.FINAL_NORM, Role.RESIDUAL, Role.BIAS_DROPOUT_ADD)
"""Rows of a block that belong to none of its sub-modules."""


MODULE_OF = {"attention": Module.ATTENTION, "mlp": Module.MLP}
"""A dataset's sub-modules in the graph."""


def ops_of(key: BlockKey, model: Model) -> tuple[str, ...]:
    """Modules of a block that a dataset may contain, the full layer first.

    A measured layer is a decoder layer of plain attention and a dense MLP. Layers of a vision encoder, with experts, with other
    mixers and MTP layers differ from it; only the sub-modules that they share are used.
    """
    if key.kind in (BlockKind.EMBEDDING, BlockKind.HEAD):
        return ("embedding",) if key.kind is BlockKind.EMBEDDING else ("head",)
    if key.kind not in (BlockKind.LAYER, BlockKind.MTP_LAYER) or key.layer is None:
        return ()
    mixer, dense = MIXERS[key.layer.mixer].measured, key.layer.feed == "dense"
    usual = bool(mixer) and (key.layer.local or not model.global_shared_kv)
    listed = (
        ("layer", usual and dense and key.kind is BlockKind.LAYER),
        (mixer, usual),
        ("mlp", dense),
        ("norm", True),
    )
    return tuple(op for op, there in listed if there)


def shape_of(job: Job, op: str, local: bool = True) -> dict[str, Value]:
    """The words of one GPU's share of `op` (one of `records.MODULES`) in `job`: widths are the whole model's. `local`: attention
    has the model's window, if there is one."""
    model, plan = job.model.seen_by(local), job.plan
    base: dict[str, Value] = {"hidden": model.hidden, "seq": plan.seq, "micro_batch": plan.micro_batch, "tp": plan.tp}
    fused = "flash" if job.runtime.attention == "flash" else "unfused"
    core: dict[str, Value] = {"heads": model.heads, "kv_heads": model.groups, "head_dim": model.dim_per_head, "attention": fused}
    if model.window is not None and local:
        core["window"] = model.window
    mlp: dict[str, Value] = {"ffn": model.ffn, "gated": "yes" if model.gated else "no"}
    norm: dict[str, Value] = {"norm": model.norm}
    vocab: dict[str, Value] = {"vocab": job.padded_vocab}
    layer = {**core, **mlp, **norm, "recompute": plan.recompute}
    own = {"attention": core, "mlp": mlp, "norm": norm, "embedding": vocab, "head": vocab, "layer": layer}
    return base | own.get(op, {})


@dataclass(frozen=True)
class ModuleTiming:
    """One module's pass: device busy seconds of one of its layers, relative error, and the level it was measured at."""

    seconds: float
    error: float
    level: str


@dataclass
class Modules:
    """Usable sub-module and layer rows of a dataset, by op, phase, dtype and mode."""

    data: Dataset
    name: str = ""

    @cached_property
    def rows(self) -> dict[tuple[str, str, str, str], list[tuple[dict[str, Value], dict[str, Any]]]]:
        """(op, phase, dtype, mode) -> shapes and rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self.data.table
        usable = pc.and_(pc.is_in(table["level"], value_set=pa.array(["submodule", "layer"])), pc.equal(table["status"], "ok"))
        table = table.filter(usable)
        shapes = {text: read_shape(text) for text in pc.unique(table["shape"]).to_pylist() if text}
        by_key: dict[tuple[str, str, str, str], list[tuple[dict[str, Value], dict[str, Any]]]] = {}
        for row in table.to_pylist():
            if row["shape"]:
                by_key.setdefault((row["op"], row["phase"], row["dtype"], row["mode"]), []).append((shapes[row["shape"]], row))
        return by_key

    def find(self, job: Job, op: str, phase: str, recompute: str | None = None, key: BlockKey | None = None) -> ModuleTiming | None:
        """The measured pass of one `op` of the block `key` (None: any of the job), if there is one. `recompute`: that of a layer,
        if it differs from the plan's."""
        if job.plan.cp > 1 or (job.plan.sequence_parallel and job.plan.tp > 1 and op in ("norm", "layer")):
            return None  # datasets have no modules of a part of a sequence
        wanted = shape_of(job, op, key is None or key.layer is None or key.layer.local)
        precision = job.runtime.precision
        if key is not None and key.wide and precision not in WIDE:
            precision = "bf16"
        if recompute is not None:
            wanted["recompute"] = recompute
        listed = []
        for shape, row in self.rows.get((op, phase, precision, job.runtime.launch), []):
            busy = busy_seconds(row)
            if busy is None or {k: v for k, v in shape.items() if k != "layers"} != wanted:
                continue
            layers = int(shape.get("layers", 0))  # 0: the time of one layer, as the slope over stacks of several
            spread = row["seconds_std"]
            error = UNSTATED if spread is None else max(NOISE, spread / row["seconds"])
            # priority: a training framework's module, a layer's own time or else the longest stack, then the median
            rank = (row["library"] == "hf", layers > 0, -layers)
            listed.append((rank, ModuleTiming(busy / max(layers, 1), error, row["level"])))
        best = min((rank for rank, _ in listed), default=None)
        same = sorted((timing for rank, timing in listed if rank == best), key=lambda timing: timing.seconds)
        return same[(len(same) - 1) // 2] if same else None


def busy_seconds(row: dict[str, Any]) -> float | None:
    """Seconds of a module's row in which the device computed; None if the host hides them."""
    seconds, host, gap = float(row["seconds"]), row["host_seconds"], row["gap_seconds"]
    if host is None:
        return seconds
    if gap is not None:
        return seconds - gap if gap < seconds else None
    return None if host >= HOST_BOUND * seconds else seconds


def parts(workload: Workload, block: Block, op: str) -> Iterator[tuple[str, Int64s]]:
    """The computing rows of one `op` of `block`, by pass: forward, again (recompute), backward."""
    ops = workload.ops
    rows = np.array([*block.forward, *block.backward], np.int64)
    rows = rows[(ops.kind[rows] != Kind.COMM) & (ops.launches[rows] > 0)]
    inside = ~np.isin(ops.role[rows], BESIDE)
    if op == "norm":
        sets = [rows[ops.role[rows] == role] for role in NORMS]
    elif op in MODULE_OF:
        sets = [rows[(ops.module[rows] == MODULE_OF[op]) & inside]]
    else:
        sets = [rows[inside] if op == "head" else rows]
    for chosen in sets:
        phase = ops.phase[chosen]
        yield "forward", chosen[phase == Phase.FORWARD]
        yield "again", chosen[phase == Phase.RECOMPUTE]
        yield "backward", chosen[np.isin(phase, BACKWARD)]


def in_modules(workload: Workload, estimate: Estimate, modules: Modules) -> Estimate:
    """`estimate` with the rows of measured layers and sub-modules scaled to what was measured."""
    job = workload.job
    seconds, code = estimate.seconds.copy(), estimate.provenance.copy()
    error, source = estimate.relative_error.copy(), estimate.source.copy()
    sources = list(estimate.sources)
    done = np.zeros(len(seconds), bool)

    def scale(rows: Int64s, timing: ModuleTiming | None, op: str, same: bool = True) -> float | None:
        """Scales `rows` to add up to the timing; returns the factor."""
        before = float(estimate.seconds[rows].sum())
        if timing is None or before <= 0.0 or done[rows].any():
            return None
        apply(rows, timing.seconds / before, timing, op, same)
        return timing.seconds / before

    def apply(rows: Int64s, factor: float, timing: ModuleTiming, op: str, same: bool) -> None:
        words = f"{modules.name}: level {timing.level}, {op}" + ("" if same else ", scaled")
        if words not in sources:
            sources.append(words)
        seconds[rows] = estimate.seconds[rows] * factor
        code[rows] = Provenance.MEASURED if same else Provenance.INTERPOLATED
        error[rows], source[rows], done[rows] = timing.error, sources.index(words), True

    for block in workload.blocks:
        key = block.key
        for op in ops_of(key, job.model):
            own = key.recompute if op == "layer" else None
            again: Int64s = np.zeros(0, np.int64)
            forward: tuple[float, ModuleTiming] | None = None
            for way, rows in parts(workload, block, op):
                if way == "forward":
                    timing = modules.find(job, op, "forward", own, key) or modules.find(job, op, "forward", own and "none", key)
                    factor = scale(rows, timing, op)
                    forward = (factor, timing) if factor is not None and timing is not None else None
                elif way == "again":
                    again = rows
                else:
                    whole = modules.find(job, op, "backward", own, key) if own else None
                    if whole is not None and scale(np.concatenate([again, rows]), whole, op) is not None:
                        continue
                    scale(rows, modules.find(job, op, "backward", own and "none", key), op)
                    if forward is not None and len(again) and not done[again].any():
                        apply(again, forward[0], forward[1], op, same=False)
    return replace(estimate, seconds=seconds, provenance=code, relative_error=error, source=source, sources=tuple(sources))
