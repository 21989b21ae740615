"""What an operator of PyTorch computes, from its name and the shapes of its inputs: its class, its sizes, its bytes."""

from __future__ import annotations

import re
from math import prod

from windtunnel.profile.kernels.case import WIDTH

CLASSES = (
    ("attention", r"scaled_dot_product|flash|efficient_attention"),
    ("gemm", r"::(mm|addmm|bmm|baddbmm)$"),
    ("grouped_gemm", r"grouped_mm"),
    ("cross_entropy", r"log_softmax|nll_loss"),
    ("norm", r"norm"),
    ("softmax", r"softmax"),
    ("embedding", r"embedding|index_select"),
    ("optimizer", r"_fused_adam|_foreach"),
    ("permute", r"index|gather|scatter|sort|topk"),
    ("copy", r"copy|::cat$|fill_|zero_|clone|contiguous"),
    ("reduce", r"::(sum|mean)$"),
)
"""Kernel class by the operator that launched it, the first that matches; all others are elementwise."""

NO_WORK = re.compile(
    r"::(_unsafe_view|_reshape_alias|view\w*|reshape|transpose|t|expand\w*|empty\w*|as_strided|detach\w*|slice|"
    r"select|unsqueeze|squeeze|permute|narrow|chunk|split\w*|linear|matmul|unbind|alias|resolve_\w+|is_\w+|to|item|lift_fresh|"
    r"_?(fused_)?rms_norm|layer_norm|scaled_dot_product_attention|cross_entropy\w*|embedding|result_type|type_as)$"
)
"""Operators of a CPU that only describe a tensor or call another operator."""

WRITES_ALONE = re.compile(r"::(fill_|zero_)$")
"""Operators that read nothing of the tensor that they are given."""

FORMATS = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "c10::Float8_e4m3fn": "fp8"}
"""The profiler's names of number formats."""


def class_of(op: str) -> str:
    """One of records.OPS."""
    return next((name for name, pattern in CLASSES if re.search(pattern, op)), "elementwise")


def sizes(op: str, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int | float]:
    """batch, m, n, k and flops of a matrix product; batch, m, n, k, v and heads_per_kv of attention, from its inputs of four sizes
    (sequences, heads, tokens, size); m and n of anything else: rows, and columns of its first input."""
    if class_of(op) == "attention":
        q, k, v = attention_inputs(op, shapes)
        if not q:
            return {}
        grouped = {"batch": q[0] * q[1], "m": q[2], "n": k[2], "k": q[3], "heads_per_kv": max(1, q[1] // max(1, k[1]))}
        return {**grouped, **({"v": v[3]} if v[3] != q[3] else {})}
    matrices = [shape for shape in shapes if len(shape) >= 2]
    if class_of(op) == "gemm" and len(matrices) >= 2:
        a, b = matrices[-2:]
        batch = a[0] if len(a) == 3 else 1
        return {"batch": batch, "m": a[-2], "n": b[-1], "k": a[-1], "flops": 2.0 * batch * a[-2] * b[-1] * a[-1]}
    first = next((shape for shape in shapes if shape), ())
    if not first:
        return {}
    rows = 1
    for size in first[:-1]:
        rows *= size
    return {"m": rows, "n": first[-1]}


def attention_inputs(op: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Shapes of queries, keys and values of a fused attention, whose backward has the output's gradient before them; three empty
    ones for an operator without them."""
    wide = [shape for shape in shapes if len(shape) == 4]
    first = 1 if "backward" in op else 0
    return tuple(wide[first : first + 3]) if len(wide) >= first + 3 else ((), (), ())


def moved_bytes(op: str, shapes: tuple[tuple[int, ...], ...], dtype: str) -> float | None:
    """B that an operator must read and write once, where its inputs say it: a result is as large as its largest input."""
    counts = [prod(shape) for shape in shapes if shape]
    if (
        not counts
        or dtype not in WIDTH
        or class_of(op) not in ("elementwise", "norm", "softmax", "copy", "reduce", "cross_entropy")
    ):
        return None
    if WRITES_ALONE.search(op):
        return float(WIDTH[dtype] * max(counts))
    return float(WIDTH[dtype] * (sum(counts) + (0 if class_of(op) == "reduce" else max(counts))))
