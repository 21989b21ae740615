"""Shapes of fused attention from the inputs of PyTorch's and FlashAttention's operators, as traces record them.

Places of inputs: aten/src/ATen/native/native_functions.yaml of PyTorch, flash_attn_interface.py of FlashAttention 2.7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from windtunnel.records.attention import CAUSAL_NOT_RECORDED, LIBRARIES, AttentionShape

_FLASH, _CUDNN = LIBRARIES.index("fa2"), LIBRARIES.index("cudnn")


class _Operator(NamedTuple):
    """Places among an operator's inputs; -1 none. Key and value follow `query`, the second sums of lengths the first."""

    query: int
    causal: int
    heads_first: bool  # (sequences, heads, tokens, width), else (sequences, tokens, heads, width) or (tokens, heads, width)
    library: int = _FLASH
    lengths: int = -1  # running sums of the lengths of packed sequences
    longest: int = -1  # the most queries, and after it the most keys of a sequence
    window: int = -1  # keys before a query that it sees, and after it those behind it
    typed: bool = False  # `causal` is xformers' type of a mask: 0 none, 1 from the top left, 2 from the bottom right


ATTENTIONS = {
    "aten::_scaled_dot_product_flash_attention": _Operator(0, 4, True),
    "aten::_scaled_dot_product_flash_attention_backward": _Operator(1, 11, True, lengths=6, longest=8),
    "aten::_scaled_dot_product_efficient_attention": _Operator(0, 6, True),
    "aten::_scaled_dot_product_efficient_attention_backward": _Operator(1, 11, True),
    "aten::_scaled_dot_product_cudnn_attention": _Operator(0, 6, True, _CUDNN),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Operator(1, 14, True, _CUDNN, lengths=9, longest=11),
    "aten::_flash_attention_forward": _Operator(0, 8, False, lengths=3, longest=5, window=11),
    "aten::_flash_attention_backward": _Operator(1, 11, False, lengths=6, longest=8, window=15),
    "aten::_efficient_attention_forward": _Operator(0, 9, False, lengths=4, longest=6, typed=True),
    "aten::_efficient_attention_backward": _Operator(1, 14, False, lengths=6, longest=8, typed=True),
    "aten::_cudnn_attention_forward": _Operator(0, 10, True, _CUDNN, lengths=4, longest=6),
    "aten::_cudnn_attention_backward": _Operator(1, 14, True, _CUDNN, lengths=9, longest=11),
    "flash_attn::_flash_attn_forward": _Operator(0, 5, False, window=6),
    "flash_attn::_flash_attn_backward": _Operator(1, 11, False, window=12),
    "flash_attn::_flash_attn_varlen_forward": _Operator(0, 9, False, lengths=3, longest=5, window=10),
    "flash_attn::_flash_attn_varlen_backward": _Operator(1, 15, False, lengths=9, longest=11, window=16),
}
"""Operators that are one fused attention, forward or backward."""


def attention_of(name: str, shapes: list[Any], element: int, values: list[Any]) -> AttentionShape | None:
    """The shape of an attention operator whose elements have so many bytes; None where its inputs do not tell.

    `values`: its scalar inputs in their places, as numbers or as text. Packed sequences tell only if they are of one length.
    """
    at = ATTENTIONS.get(name)
    if at is None or len(shapes) < at.query + 3:
        return None
    sides = [_extents(shape, at.heads_first) for shape in shapes[at.query : at.query + 3]]
    query, key, value = sides
    if query is None or key is None or value is None or key[:3] != value[:3] or query[3] != key[3]:
        return None
    sequences, queries, heads, width = query
    keys, groups = key[1], key[2]
    if at.lengths >= 0 and (packed := _at(shapes, at.lengths)):
        found = _equal_lengths(packed, _numbers(values, at.longest), sequences * queries, key[0] * keys)
        if found is None:
            return None
        sequences, queries, keys = found
    elif key[0] != sequences:
        return None
    mask = _mask(at, values)
    window = _window(at, values, mask)
    uneven = queries != keys and mask != 0 and (window > 0 or queries > keys or not _aligned_to_the_end(name, at, values))
    if window < 0 or uneven or heads % groups:
        return None
    backward = name.endswith("backward")
    return AttentionShape(
        sequences, heads, groups, queries, keys, (width + value[3]) // 2, mask, window, int(backward), element, at.library
    )


def _extents(shape: Any, heads_first: bool) -> tuple[int, int, int, int] | None:
    """Sequences, tokens, heads and width of a tensor; one sequence for a tensor of packed tokens."""
    if not isinstance(shape, list) or not all(isinstance(extent, int) and 0 < extent < 2**31 for extent in shape):
        return None
    if len(shape) == 3:
        return 1, shape[0], shape[1], shape[2]
    if len(shape) != 4:
        return None
    return (shape[0], shape[2], shape[1], shape[3]) if heads_first else (shape[0], shape[1], shape[2], shape[3])


def _equal_lengths(packed: Any, most: tuple[int | None, int | None], queries: int, keys: int) -> tuple[int, int, int] | None:
    """Sequences, queries and keys of each, of packed tokens: one sequence, or several that are all as long as the longest."""
    count = packed[0] - 1 if isinstance(packed, list) and len(packed) == 1 and isinstance(packed[0], int) else 0
    if count == 1:
        return 1, queries, keys
    if count < 1 or most[0] is None or most[1] is None or (queries, keys) != (count * most[0], count * most[1]):
        return None
    return count, most[0], most[1]


def _mask(at: _Operator, values: list[Any]) -> int:
    """0 without a mask, 1 causal, 2 where nothing is recorded."""
    value = _at(values, at.causal)
    if at.typed:
        kind = _number(value)
        return CAUSAL_NOT_RECORDED if kind not in (0, 1, 2) else min(kind, 1)
    return {"true": 1, "false": 0}.get(str(value).lower(), CAUSAL_NOT_RECORDED)


def _window(at: _Operator, values: list[Any], mask: int) -> int:
    """Keys that a query sees at most; 0 all, -1 for a window that is open on one side."""
    before, after = _numbers(values, at.window)
    before, after = -1 if before is None else before, -1 if after is None else after
    if before < 0 and (after < 0 or mask):
        return 0
    if mask:
        return before + 1
    return before + after + 1 if before >= 0 and after >= 0 else -1


def _aligned_to_the_end(name: str, at: _Operator, values: list[Any]) -> bool:
    """Whether a causal mask lets the last query see all keys: FlashAttention's does, and the second one of xformers."""
    return _number(_at(values, at.causal)) == 2 if at.typed else "_flash_att" in name


def _numbers(values: list[Any], place: int) -> tuple[int | None, int | None]:
    """Two whole numbers from `place` on."""
    return (None, None) if place < 0 else (_number(_at(values, place)), _number(_at(values, place + 1)))


def _at(values: list[Any], place: int) -> Any:
    return values[place] if 0 <= place < len(values) else None


def _number(value: Any) -> int | None:
    """A whole number, also as text."""
    try:
        found = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    except ValueError:
        return None
    return found if found is not None and abs(found) < 2**31 else None
