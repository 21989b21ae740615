"""What backward runs again, and what forward may therefore throw away."""

from __future__ import annotations

from windtunnel.workload.ops import Comm, Kind, Op, Phase
from windtunnel.workload.tape import Unit


def rows_again(units: list[Unit], recompute: str) -> list[list[Op]]:
    """Forward rows that run again in backward, by unit.

    full and selective run every row of the given units again; ops keeps attention and every second matrix product
    (torchtitan's selective_op policy keeps odd ones), and keeps reduce-scattered outputs.
    """
    if recompute != "ops":
        return [[_again(op) for op in u.forward] for u in units if u.forward]
    rows: list[list[Op]] = []
    for unit in units:
        again = [_again(op, unit.again) for op in unit.forward if _runs_again(op, unit)]
        if again:
            rows.append(again)
    return rows


def saved_bytes(units: list[Unit], recompute: str, boundary: float) -> float:
    """Bytes kept per micro batch from forward to backward; `boundary` is the block's input."""
    if recompute == "full":
        return boundary
    if recompute == "selective":
        return sum(u.saved for u in units if not u.core) + _core_inputs(units)
    if recompute == "ops":
        # matrix products keep their outputs, which are about as large as the inputs they save anyway; cheap results go
        return boundary + sum(u.saved * (1.0 - u.again) for u in units if u.again or u.core or u.name == "mlp down")
    return sum(u.saved for u in units)


def _core_inputs(units: list[Unit]) -> float:
    """Query, key and value stay when the core runs again: the products' inputs without the score matrices."""
    return sum(u.saved for u in units if u.core and not u.name.startswith(("softmax", "attention dropout")))


def _runs_again(op: Op, unit: Unit) -> bool:
    if op.kind in (Kind.GEMM,):
        return unit.again > 0.0
    if op.kind is Kind.COMM:
        return op.comm is not Comm.REDUCE_SCATTER
    return op.kind is not Kind.ATTENTION


def _again(op: Op, share: float = 1.0) -> Op:
    if op.kind is Kind.GEMM and 0.0 < share < 1.0:
        width = max(1, round(op.n * share))
        op = op._replace(n=width, flops=op.flops * width / op.n, bytes=op.bytes * share)
    return op._replace(phase=Phase.RECOMPUTE)
