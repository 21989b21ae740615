"""FLOP and bytes of a kernel row from its shape, if the row does not state them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.dtypes import DTYPE_BYTES, SCALE_BYTES

ELEMENT = {name: width + SCALE_BYTES.get(name, 0.0) for name, width in DTYPE_BYTES.items()}
"""B of an operand element; mxfp8 has one scale byte per 32 elements, nvfp4 one per 16."""

PASSES = {
    ("norm", False): 2,
    ("norm", True): 3,
    ("softmax", False): 2,
    ("softmax", True): 3,
    ("embedding", False): 2,
    ("permute", False): 2,
    ("permute", True): 2,
}
"""(op, backward) -> number of times that m x n elements cross memory: one read and one write; backward two reads and one write."""

BACKWARD = ("backward", "dgrad", "wgrad")


def with_work(row: Mapping[str, Any]) -> dict[str, Any]:
    """`row` with `flops` and `bytes` filled in where they follow from its shape; else they stay null."""
    complete = dict(row)
    for name, value in (("flops", flops_of(row)), ("bytes", bytes_of(row))):
        if complete.get(name) is None:
            complete[name] = value
    return complete


def flops_of(row: Mapping[str, Any]) -> float | None:
    """FLOP of a matrix product or of attention (5 products backward for 2 forward, masked pairs not counted); None for others."""
    batch, m, n, k = (row.get(name) for name in ("batch", "m", "n", "k"))
    if m is None or n is None or k is None:
        return None
    if row["op"] in ("gemm", "grouped_gemm"):
        return float(2 * (batch or 1) * m * n * k)
    if row["op"] == "attention":
        each = 5.0 if row["phase"] in BACKWARD else 2.0
        width = k + (row.get("v") or k)
        return float(each * width * (batch or 1)) * visible_pairs(m, n, bool(row.get("causal")), row.get("window"))
    return None


def bytes_of(row: Mapping[str, Any]) -> float | None:
    """Bytes that must cross memory once: operands read, results written (and read where they accumulate); None where unknown."""
    batch, m, n, k = (row.get(name) for name in ("batch", "m", "n", "k"))
    if m is None or n is None:
        return None
    width = ELEMENT[row["dtype"]]
    backward = row["phase"] in BACKWARD
    if row["op"] in ("gemm", "grouped_gemm") and k is not None:
        result = ELEMENT[row["out_dtype"]] if row.get("out_dtype") else max(width, 2.0)
        return float((batch or 1) * (width * (m * k + k * n) + (2.0 if row.get("accumulate") else 1.0) * result * m * n))
    if row["op"] == "attention" and k is not None:
        heads = batch or 1
        each = k + (row.get("v") or k)
        forward = width * each * (heads * m + heads / (row.get("heads_per_kv") or 1) * n)
        return float(2.5 * forward if backward else forward)
    passes = PASSES.get((row["op"], backward))
    return None if passes is None else float(passes * width * (batch or 1) * m * n)


def visible_pairs(queries: int, keys: int, causal: bool, window: int | None) -> float:
    """(query, key) pairs of one head: under a causal mask the last query sees all keys, within `window` keys at most."""
    most = min(keys, window) if window else keys
    if not causal:
        return float(queries * most)
    first = keys - queries + 1
    growing = min(max(most - first, 0), queries)
    return float(growing * first + growing * (growing - 1) / 2 + (queries - growing) * most)
