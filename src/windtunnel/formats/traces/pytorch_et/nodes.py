"""Nodes of an execution trace, in the layouts of schemas 1.0.1 (flat) and 1.0.2 and later (`ctrl_deps`, `attrs`).

Shapes of fused attention from the inputs of PyTorch's and FlashAttention's operators, as traces record them.

Places of inputs: aten/src/ATen/native/native_functions.yaml of PyTorch, flash_attn_interface.py of FlashAttention 2.7.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.formats.traces.kineto.batches import Layout
from windtunnel.formats.traces.kineto.calls import MOST_RANKS, element_bytes, total_bytes
from windtunnel.records.kernel_classes import comm_of
from windtunnel.records.trace_graph import CAUSAL_NOT_RECORDED, LIBRARIES, AttentionShape

COMMS = "record_param_comms"
GROUPS = "## process_group:init ##"


class Attribute(msgspec.Struct, gc=False):
    """One of `attrs`."""

    name: str = ""
    value: Any = None


class TracedNode(msgspec.Struct, gc=False):
    """An operator, a range or a thread. `inputs` is a list in schema 1.0.1."""

    id: Any = -1
    name: Any = ""
    ctrl_deps: Any = None
    parent: Any = None
    tid: Any = None
    rf_id: Any = None
    seq_id: Any = None
    op_schema: Any = ""
    inputs: Any = None
    input_shapes: Any = None
    input_types: Any = None
    outputs: Any = None
    output_shapes: Any = None
    output_types: Any = None
    attrs: list[Attribute] = []


NODES = Layout(
    re.compile(rb'"nodes"\s*:\s*\['),
    re.compile(rb'\}\s*,\s*(?=\{\s*"(?:id"\s*:|name"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"id"\s*:))'),
    TracedNode,
    "an execution trace of PyTorch: an object with `schema` and `nodes`",
)


def attribute(node: TracedNode, name: str) -> Any:
    """A field of a node, wherever the schema puts it."""
    value = getattr(node, name, None)
    if value not in (None, ""):
        return value
    for one in node.attrs:
        if one.name == name:
            return one.value
    return value


def parent_of(node: TracedNode) -> int:
    """The node that this one is inside of; -1 none."""
    value = node.ctrl_deps if node.ctrl_deps is not None else node.parent
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else -1


def side(node: TracedNode, which: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Values, shapes and types of `inputs` or `outputs`."""
    value = getattr(node, which)
    if isinstance(value, dict):
        return _list(value.get("values")), _list(value.get("shapes")), _list(value.get("types"))
    if which == "inputs":
        return _list(value), _list(node.input_shapes), _list(node.input_types)
    return _list(value), _list(node.output_shapes), _list(node.output_types)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


Product = tuple[int, int, int, int, int]
"""Batch, m, n, k, and bytes of an element (0 unknown) of a matrix product."""


@dataclass(frozen=True)
class NodeCall:
    """What a `record_param_comms` says: the call's name and code, its bytes (NaN unknown), and its process group.

    `group`: the group's name, its description, or its address as text; `size`, `start`, `stride`: how many ranks it has and which
    (0, -1, 0 unknown); `rank`: the own rank in the group (-1 unknown); `peer`: the other one's of a send or receive.
    """

    name: str
    comm: Comm
    bytes: float
    group: str = ""
    text: str = ""
    size: int = 0
    start: int = -1
    stride: int = 0
    rank: int = -1
    peer: int = -1

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the group, where the call states them itself."""
        if self.size == 1 and self.start >= 0:
            return (self.start,)
        if self.start < 0 or self.stride <= 0 or not 0 < self.size <= MOST_RANKS:
            return ()
        return tuple(range(self.start, self.start + self.size * self.stride, self.stride))


_ROOTED = (Comm.BROADCAST, Comm.REDUCE, Comm.GATHER, Comm.SCATTER)
"""Calls whose rank is that of the root."""


def call_of_node(node: TracedNode) -> NodeCall:
    """Of a `record_param_comms`.

    The inputs are positional (torch/csrc/distributed/c10d/ParamCommsUtils.cpp and ProcessGroupNCCL.cpp): tensors, number, group (a
    name with its description, or an address), own rank (or the root, or the other end of a transfer), name, splits in and out, and
    in newer traces start, stride and size of the group.
    """
    values, _, kinds = side(node, "inputs")
    at = next((i for i, one in enumerate(values) if isinstance(one, str) and "Tensor" not in one and _is_call(one)), -1)
    if at < 0:
        at = next((i for i, one in enumerate(values) if isinstance(one, str) and "Tensor" not in one), -1)
    name = str(values[at]) if at >= 0 else ""
    comm = Comm.NONE if name in ("wait", "init", "") else comm_of(name)
    group, text = _group(values, kinds, at)
    rest = [one for one in values[at + 1 :] if not isinstance(one, list)] if at >= 0 else []
    start, stride, size = (_whole_number(one) for one in rest[:3]) if len(rest) >= 3 else (-1, -1, 0)
    if size <= 0 and (splits := [v for v in values if isinstance(v, list) and v and all(isinstance(x, int) for x in v)]):
        size = len(splits[-1])
    sent, received = tensor_bytes(*side(node, "inputs")), tensor_bytes(*side(node, "outputs"))
    own = _whole_number(values[at - 1]) if at > 0 else -1
    transfer = comm is Comm.SEND_RECV
    return NodeCall(
        name, comm, total_bytes(comm, sent, received, max(size, 0)), group, text, max(size, 0), start, max(stride, 0),
        -1 if transfer or comm in _ROOTED else own, own if transfer else -1,
    )  # fmt: skip


def _is_call(text: str) -> bool:
    return text in ("wait", "init") or comm_of(text) is not Comm.NONE


def _group(values: list[Any], kinds: list[Any], at: int) -> tuple[str, str]:
    """Name and description of a call's group; an address, as old traces have it, as text."""
    for value, kind in zip(values, kinds, strict=False):
        if str(kind).startswith("Tuple[String") and isinstance(value, list) and value:
            return str(value[0]), str(value[1]) if len(value) > 1 else ""
    address = _whole_number(values[at - 2]) if at > 1 else -1
    return (f"0x{address:x}", "") if address > 0 else ("", "")


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else -1


def storages(values: list[Any], kinds: list[Any]) -> list[int]:
    """Numbers of the storages on a device that the tensors among the values lie in."""
    found: list[int] = []
    for value, kind in zip(values, kinds, strict=False):
        if not isinstance(value, list) or "Tensor" not in str(kind):
            continue
        for one in value if value and isinstance(value[0], list) else [value]:
            # (tensor, storage, offset, elements, bytes of one, device)
            if isinstance(one, list) and len(one) >= 6 and _whole_number(one[1]) > 0 and not str(one[5]).startswith("cpu"):
                found.append(one[1])
    return found


PRODUCTS = {
    "aten::mm": 0, "aten::bmm": 0, "aten::_scaled_mm": 0, "aten::addmm": 1, "aten::baddbmm": 1,
    "fused_weight_gradient::wgrad_gemm_accum": 0,
}  # fmt: skip
"""Operators that are one matrix product, and which input is its left side."""


def product_of(name: str, shapes: list[Any], kinds: list[Any]) -> Product | None:
    """Batch, m, n, k and bytes of an element of a matrix product; None for another operator."""
    first = PRODUCTS.get(name)
    if first is None or len(shapes) < first + 2:
        return None
    left, right = shapes[first], shapes[first + 1]
    if not (isinstance(left, list) and isinstance(right, list) and len(left) == len(right) and len(left) in (2, 3)):
        return None
    if not all(isinstance(extent, int) and 0 < extent < 2**31 for extent in (*left, *right)) or left[-1] != right[-2]:
        return None
    return (left[0] if len(left) == 3 else 1, left[-2], right[-1], left[-1], element_of(kinds, first))


def element_of(kinds: list[Any], place: int) -> int:
    """Bytes of an element of the tensor at a place; 0 unknown."""
    sizes = _element_sizes(str(kinds[place])) if place < len(kinds) else ()
    return int(sizes[0]) if sizes and sizes[0] == sizes[0] else 0


def moves_nothing(name: str, node: TracedNode) -> bool:
    """Whether an operator starts no kernel on a device: its result is not there, has no values, or lies in its inputs' storages."""
    inputs, outputs = side(node, "inputs"), side(node, "outputs")
    made = set(storages(outputs[0], outputs[2]))
    read = set(storages(inputs[0], inputs[2]))
    return (
        not made
        or name.startswith(("aten::empty", "aten::new_empty", "aten::resize_", "aten::set_"))
        or (made <= read and not name.endswith("_"))
    )


def tensor_bytes(values: list[Any], shapes: list[Any], kinds: list[Any]) -> float:
    """Bytes of the tensors among the values; NaN without one."""
    counted = [one for parts in zip(shapes, kinds, strict=False) if (one := _bytes(*parts)) == one]
    return float(sum(counted)) if counted else float("nan")


def first_tensor(node: TracedNode) -> tuple[int, float]:
    """Elements and bytes of the first input, where that is a tensor or a list of them."""
    _, shapes, kinds = side(node, "inputs")
    if not shapes or not kinds or "Tensor" not in str(kinds[0]):
        return 0, 0.0
    size = _bytes(shapes[0], kinds[0])
    elements = _elements(shapes[0])
    return elements, size if size == size else 0.0


def _bytes(shape: Any, kind: Any) -> float:
    text = str(kind)
    sizes = _element_sizes(text) if "Tensor(" in text else ()
    if not sizes:
        return float("nan")
    if text.startswith("GenericList") and isinstance(shape, list):
        return float(sum(_elements(one) * size for one, size in zip(shape, sizes, strict=False)))
    return _elements(shape) * sizes[0]


@lru_cache(maxsize=4096)
def _element_sizes(kind: str) -> tuple[float, ...]:
    """Bytes of an element of each tensor in a type such as `GenericList[Tensor(float),Tensor(int)]`."""
    return tuple(element_bytes(one) for one in re.findall(r"Tensor\(([^()]*)\)", kind))


def _elements(shape: Any) -> int:
    if not isinstance(shape, list):
        return 0
    if shape and isinstance(shape[0], list) and all(isinstance(one, list) for one in shape):
        return sum(map(_elements, shape))
    count = 1
    for extent in shape:
        count *= extent if isinstance(extent, int) and 0 <= extent < 2**40 else 0
        count = min(count, 2**62)
    return count


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
