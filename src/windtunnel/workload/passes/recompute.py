"""Recompute: rows that backward runs again, and tensors that forward therefore does not keep. Activation offloading: blocks whose
saved tensors live elsewhere, and when their copies run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.plan import Plan
from windtunnel.workload.graph import Block, BlockTensors
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.ops import DTYPES, Axis, Comm, Kind, Op, Phase
from windtunnel.workload.tape import Unit

LOG_SUM_BYTES = 4
"""Fused attention keeps one fp32 log-sum-exp per query and head."""


def rows_again(units: list[Unit], recompute: str) -> list[list[Op]]:
    """Forward rows that run again in backward, by unit.

    full and selective run every row of the given units again; ops keeps attention and every second matrix product
    (torchtitan's selective_op policy keeps odd ones), and keeps reduce-scattered outputs.
    """
    if recompute != "ops":
        return [[_as_recompute(op) for op in u.forward] for u in units if u.forward]
    rows: list[list[Op]] = []
    for unit in units:
        fused = any(op.kind is Kind.ATTENTION for op in unit.forward)  # attention is kept, with its exchange over context ranks
        again = [] if fused else [_as_recompute(op, unit.again) for op in unit.forward if _runs_again(op, unit)]
        if again:
            rows.append(again)
    return rows


def until_last_saved(units: list[Unit]) -> list[Unit]:
    """The units that bring back what backward needs: up to the last one that keeps a tensor, and of a product, which keeps what it
    reads, the rows before it.

    So does a compiler that removes dead code (XLA), and torch's checkpoint without re-entry, which stops at the last tensor
    (torch.utils.checkpoint, `early_stop`).
    """
    last = max((index for index, unit in enumerate(units) if unit.saved > 0.0), default=-1)
    if last < 0:
        return []
    before = list(takewhile(lambda op: op.kind not in (Kind.GEMM, Kind.GROUPED_GEMM), units[last].forward))
    return [*units[:last], replace(units[last], forward=before)]


def parts_again(units: list[Unit], modules: tuple[str, ...]) -> dict[int, list[list[Unit]]]:
    """Units of each of `modules` in each place that run again just before the backward pass of the last unit that needs them, by
    the index of that unit."""
    last: dict[tuple[str, Module], int] = {}
    for index, unit in enumerate(units):
        for name in unit.gives:
            last[name, unit.place] = index
    groups: dict[int, list[list[Unit]]] = {}
    for name in modules:
        for (given, place), index in last.items():
            if given == name:
                groups.setdefault(index, []).append([u for u in units if u.place == place and name in u.parts])
    return groups


def saved_bytes(units: list[Unit], recompute: str, boundary: float, modules: tuple[str, ...] = ("core_attn",)) -> float:
    """Bytes kept per micro batch from forward to backward; `boundary` is the block's input.

    Full keeps only the input. Selective keeps all but the score matrices (Korthikanti et al. 2022, section 5) and the tensors that
    other `modules` bring back. Op-level keeps the input and the tensors of torchtitan's save list: outputs of the products that do
    not run again, of fused attention and of reduce-scatters. Backward does not read the last product and the last reduce-scatter.
    """
    if recompute == "full":
        return boundary
    if recompute == "selective":
        brought = sum(min(u.saved, sum(u.gives.get(name, 0.0) for name in modules)) for u in units)
        core = _core_inputs(units) if "core_attn" in modules else sum(u.saved for u in units if u.core)
        return sum(u.saved for u in units if not u.core) + core - brought
    if recompute == "ops":
        return boundary + sum(_kept_outputs(units, boundary))
    return sum(u.saved for u in units)


def saved_tensors(units: list[Unit], recompute: str, boundary: float, modules: tuple[str, ...]) -> tuple[float, ...]:
    """`saved_bytes` by tensor: bytes of each tensor that stays, by unit in forward order."""
    if recompute == "full":
        return (boundary,)
    if recompute == "ops":
        return (boundary, *_kept_outputs(units, boundary))
    return tuple(size for u in units for size in _pieces(u, _kept_bytes(u, recompute, modules)))


def tensors_again(units: list[Unit], recompute: str, modules: tuple[str, ...], working: float) -> tuple[float, ...]:
    """Bytes that recompute brings back in a backward pass, by unit in forward order; they add up to `working`.

    A unit's share of `working` equals its share of the bytes that recompute drops.
    """
    if working <= 0.0:
        return ()
    selective = recompute == "selective"
    back = [size for u in units for size in _pieces(u, u.saved - (_kept_bytes(u, recompute, modules) if selective else 0.0))]
    return tuple(size * working / sum(back) for size in back)


def _kept_bytes(unit: Unit, recompute: str, modules: tuple[str, ...]) -> float:
    """Bytes of the unit that selective recompute of `modules` keeps; all without recompute."""
    if recompute != "selective":
        return unit.saved
    scores = _scores(unit) and "core_attn" in modules
    return max(0.0, (0.0 if scores else unit.saved) - min(unit.saved, sum(unit.gives.get(name, 0.0) for name in modules)))


def _pieces(unit: Unit, size: float) -> list[float]:
    """`size` bytes of the unit, split like its tensors."""
    return [piece * size / unit.saved for piece in unit.tensors or (unit.saved,)] if size > 0.0 else []


def _kept_outputs(units: list[Unit], boundary: float) -> list[float]:
    """Bytes of the listed operators' outputs, in forward order, without the last product and its reduce-scatter."""
    width = max((DTYPE_BYTES[DTYPES[op.dtype]] for u in units for op in u.forward if op.kind is Kind.NORM), default=2.0)
    last = max((i for i, u in enumerate(units) if any(op.kind is Kind.GEMM for op in u.forward)), default=0)
    kept: list[float] = []
    for unit in units[:last]:
        for op in unit.forward:
            if op.kind is Kind.GEMM and not unit.core:
                kept.append((1.0 - unit.again) * op.batch * op.m * op.n * width)
        fused = [op for op in unit.forward if op.kind is Kind.ATTENTION]
        if fused:  # the first block has all queries
            kept.append(fused[0].batch * fused[0].m * (fused[0].k * width + LOG_SUM_BYTES))
        if any(op.comm is Comm.REDUCE_SCATTER and op.axis is Axis.TP for op in unit.forward):
            kept.append(boundary)
    return kept


def _core_inputs(units: list[Unit]) -> float:
    """Bytes that stay when the core runs again: query, key and value, without the score matrices."""
    return sum(u.saved for u in units if u.core and not _scores(u))


def _scores(unit: Unit) -> bool:
    return unit.role in (Role.SOFTMAX, Role.ATTENTION_DROPOUT)


def _runs_again(op: Op, unit: Unit) -> bool:
    if op.kind is Kind.GEMM:
        return unit.again > 0.0
    if op.kind is Kind.COMM:
        return op.comm is not Comm.REDUCE_SCATTER
    return op.kind is not Kind.ATTENTION


def _as_recompute(op: Op, share: float = 1.0) -> Op:
    if op.kind is Kind.GEMM and 0.0 < share < 1.0:
        width = max(1, round(op.n * share))
        op = op._replace(n=width, flops=op.flops * width / op.n, bytes=op.bytes * share)
    return op._replace(phase=Phase.RECOMPUTE)


QKV_LINEAR = (Role.QKV, Role.Q_DOWN, Role.KV_DOWN, Role.Q_UP, Role.KV_UP)

READS: dict[str, Callable[[Unit], bool]] = {
    "attn_norm": lambda unit: unit.role is Role.NORM1,
    "qkv_linear": lambda unit: unit.role in QKV_LINEAR,
    "core_attn": lambda unit: unit.core,
    "mlp_norm": lambda unit: unit.role is Role.NORM2,
    "mlp_linear": lambda unit: unit.place is Module.MLP and unit.role is not Role.NORM2,
    "expert_fc1": lambda unit: unit.role is Role.EXPERT_UP,
    "moe_act": lambda unit: unit.place is Module.MOE and unit.role in (Role.ACTIVATION, Role.GATED_ACTIVATION),
}
"""Module of `plan.offload.modules` -> units of a layer that keep its inputs."""


def away(block: Block, plan: Plan | None = None, units: Sequence[Unit] = (), recompute: str = "none") -> Block:
    """`block` with its saved tensors offloaded; its backward pass has them on the GPU again.

    If `plan` names modules, only tensors leave that those of the block's `units` keep under `recompute`.
    """
    kept: tuple[float, ...] = ()
    offloaded = block.tensors.kept or (block.saved,)
    if plan is not None and plan.offload.modules:
        leaves = [any(READS[name](unit) for name in plan.offload.modules) for unit in units]
        offloaded, kept = (
            saved_tensors(
                [u for u, out in zip(units, leaves, strict=True) if out is leaving], recompute, 0.0, plan.recompute_modules
            )
            for leaving in (True, False)
        )
    moved = min(block.saved, sum(offloaded))
    return replace(
        block,
        key=replace(block.key, offloaded=True),
        name=f"offloaded {block.name}",
        saved=block.saved - moved,
        working=block.working + moved,
        offloaded=moved,
        tensors=BlockTensors(block.tensors.weights, block.tensors.trained, kept, (*offloaded, *block.tensors.again)),
    )


def windows(offloaded: int, layers: int) -> tuple[int, ...]:
    """For each of the first `offloaded` of `layers` layers, the layer at whose end its copy must be complete, before the next copy
    begins; in backward, the layer at whose start it is fetched.

    Copies are spread over all layers, as Transformer Engine does (`cpu_offload.py`, AsyncDoubleBufferGroupOffloadHandler:
    layer_window_map). A copy has at least the layer after its own to run in; `layers` if there is no such layer.
    """
    if offloaded == 0:
        return ()
    layers_per_copy, more = divmod(layers, offloaded)
    return tuple(max(layers_per_copy * (i + 1) - 1 + min(i + 1, more), i + 1) for i in range(offloaded))
