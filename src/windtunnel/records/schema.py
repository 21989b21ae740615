"""The columns of a kernel dataset: one row per measured kernel, sub-module, layer or step on one GPU.

Shapes are those of the workload's graph (`workload/ops.py`): a matrix product is batch x (m,k)@(k,n) as it was executed, so an
input gradient has n and k of its forward product exchanged and a weight gradient has the tokens as its k. Attention has batch =
sequences x query heads, m query and n key tokens, k head size of queries and keys. What is not known is null, never zero.

The `shape` of a sub-module, layer or step: one line of `key=value` pairs in the alphabet's order.

Keys are words of `spec.Model` and `spec.Plan`: hidden, ffn, heads, kv_heads, head_dim, layers, experts, top_k, expert_ffn, vocab,
seq, micro_batch, tp (integers); gated, norm, attention (flash, unfused), recompute and others (words).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from windtunnel.base.errors import SpecError

VERSION = 3
"""Schema version, written into every file; a reader refuses a later one."""

SINCE = {"checked_against": 2, "max_error": 2, "between_bytes": 3}
"""Columns that files of earlier versions lack: there they are null."""

LEVELS = ("kernel", "submodule", "layer", "step", "file")
"""From the finest to the most exact: one launch, one module of a layer, layers of a model, a step on one GPU. Beside them: files of
checkpoints and tokens on a node's file system."""

OPS = (
    "gemm",
    "grouped_gemm",
    "attention",
    "norm",
    "elementwise",
    "softmax",
    "cross_entropy",
    "embedding",
    "permute",
    "optimizer",
    "copy",
    "reduce",
    "launch",
    "scan",
)
"""Kernel classes (level kernel)."""

MODULES = ("attention", "mlp", "moe", "norm", "embedding", "head", "layer", "step", "linear")
"""Values of `op` for sub-module, layer and step rows."""

FILE_OPS = ("write", "read", "stage", "samples")
"""Values of `op` for files: checkpoints written and read, their copy into host memory, samples of tokens."""

PHASES = ("forward", "backward", "dgrad", "wgrad", "recompute", "optimizer", "cold", "warm")
"""A pass; the two halves of a matrix product's backward are rows of their own. Of files: to and from the disk, or in memory."""

MODES = ("eager", "compile", "cuda_graph")

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")

STATUSES = ("ok", "oom", "open")
"""ok: usable. oom: the shape did not fit, its time is null. open: the closure gate failed; kept, named, never used."""


class Column(NamedTuple):
    """Name, type (text, integer, number, flag), whether it may be null, and meaning with units."""

    name: str
    type: str
    null: bool
    meaning: str


COLUMNS = (
    Column("level", "text", False, "one of LEVELS"),
    Column("op", "text", False, "kernel class (OPS) of a kernel, one of FILE_OPS of a file, else one of MODULES"),
    Column("name", "text", False, "which one: mlp_up_proj, rms_norm, swiglu, adamw, LlamaDecoderLayer"),
    Column("phase", "text", False, "one of PHASES"),
    Column("dtype", "text", False, "operand format, one of DTYPES"),
    Column("out_dtype", "text", True, "result format; null = as the operands' (bf16 for 8 and 4 bits)"),
    Column("mode", "text", False, "one of MODES"),
    Column("library", "text", True, "what ran: cublas, cudnn, fa2, fa3, triton, aten, transformer_engine, hf, windtunnel"),
    Column("kernel", "text", True, "name of the launched kernel as the profiler gave it"),
    Column("model", "text", True, "model whose shape this is"),
    Column("shape", "text", True, "sub-module, layer, step: key=value pairs, see `records.schema`"),
    Column("batch", "integer", True, "products in one launch; groups of a grouped product; sequences x query heads"),
    Column("m", "integer", True, "rows; tokens; query tokens"),
    Column("n", "integer", True, "columns; key tokens; classes; parameters of an optimizer"),
    Column("k", "integer", True, "inner dimension; head size"),
    Column("v", "integer", True, "head size of values where it differs from k"),
    Column("heads_per_kv", "integer", True, "query heads per key-value head"),
    Column("causal", "flag", True, "attention masks later keys"),
    Column("window", "integer", True, "keys that a query sees at most"),
    Column("accumulate", "flag", True, "the product adds to its result"),
    Column("flops", "number", True, "FLOP of one execution, masked pairs not counted"),
    Column("bytes", "number", True, "B that must cross device memory once, both directions"),
    Column("launches", "integer", True, "kernels in one execution"),
    Column("seconds", "number", True, "median device time of one execution, s; null only where status is oom"),
    Column("seconds_min", "number", True, "s"),
    Column("seconds_max", "number", True, "s"),
    Column("seconds_mean", "number", True, "s"),
    Column("seconds_std", "number", True, "s, over repetitions"),
    Column("repeats", "integer", True, "timed executions"),
    Column("host_seconds", "number", True, "median time the host needs to enqueue one execution, s"),
    Column("gap_seconds", "number", True, "device idle between the execution's kernels, s"),
    Column("peak_bytes", "number", True, "highest allocated memory over the execution, B"),
    Column("reserved_bytes", "number", True, "highest reserved by the allocator, B"),
    Column("saved_bytes", "number", True, "allocated after a forward pass and freed by its backward, B"),
    Column("power_w", "number", True, "mean board power, W"),
    Column("energy_j", "number", True, "J of one execution"),
    Column("clock_hz", "number", True, "median SM clock while it ran, Hz"),
    Column("throttled", "text", True, "throttle reasons seen, comma separated; empty = none; null = not known"),
    Column(
        "checked_against",
        "text",
        True,
        "what it was compared with: eager, windtunnel (outputs), timed; null = nothing",
    ),
    Column("max_error", "number", True, "largest difference from that, as a share of its largest number (of its time)"),
    Column("between_bytes", "number", True, "B that other kernels move between two repetitions; null = none: a flushed cache"),
    Column("status", "text", False, "one of STATUSES"),
    Column("note", "text", True, "why a row is open, or what is special"),
    Column("source", "text", False, "where the number comes from: this tool's run, or file, commit and licence"),
)

NAMES = tuple(column.name for column in COLUMNS)


Value = int | str


def write_shape(values: Mapping[str, Value]) -> str:
    """`{"hidden": 4096, "heads": 32}` as `heads=32 hidden=4096`."""
    for key, value in values.items():
        text = str(value)
        if not key or any(c.isspace() or c == "=" for c in key + text) or not text:
            raise SpecError(f"shape.{key}", value, "words without spaces or '='")
    return " ".join(f"{key}={values[key]}" for key in sorted(values))


def read_shape(text: str) -> dict[str, Value]:
    """The reverse; numbers come back as int. Raises SpecError for a part without `=` or a key given twice."""
    shape: dict[str, Value] = {}
    for part in text.split():
        key, equals, value = part.partition("=")
        if not equals or not key or not value or key in shape:
            raise SpecError("shape", text, "key=value pairs, each key once", f"{part!r} is not one")
        shape[key] = int(value) if value.lstrip("-").isdigit() else value
    return shape
