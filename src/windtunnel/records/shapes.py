"""The `shape` of a sub-module, layer or step: one line of `key=value` pairs in the alphabet's order.

Keys are words of `spec.Model` and `spec.Plan`: hidden, ffn, heads, kv_heads, head_dim, layers, experts, top_k, expert_ffn, vocab,
seq, micro_batch, tp (integers); gated, norm, attention (flash, unfused), recompute and others (words).
"""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.base.errors import SpecError

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
