"""Nodes of an execution trace, in the layouts of schemas 1.0.1 (flat) and 1.0.2 and later (`ctrl_deps`, `attrs`)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from windtunnel.base.comm import Comm
from windtunnel.formats.kineto.batches import Layout
from windtunnel.formats.kineto.calls import element_bytes, total_bytes
from windtunnel.records.comm_kernels import comm_of

COMMS = "record_param_comms"


class Tensors(msgspec.Struct, gc=False):
    """`inputs` or `outputs` of schema 1.0.2 and later."""

    values: list[Any] = []
    shapes: list[Any] = []
    types: list[Any] = []


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
    return next((one.value for one in node.attrs if one.name == name), value)


def parent_of(node: TracedNode) -> int:
    """The node that this one is inside of; -1 none."""
    value = node.ctrl_deps if node.ctrl_deps is not None else node.parent
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else -1


def side(node: TracedNode, which: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Values, shapes and types of `inputs` or `outputs`."""
    value = getattr(node, which)
    if isinstance(value, dict):
        return tuple(value.get(key) if isinstance(value.get(key), list) else [] for key in ("values", "shapes", "types"))  # type: ignore[return-value]
    single = which[:-1]
    parts = (value, getattr(node, f"{single}_shapes"), getattr(node, f"{single}_types"))
    return tuple(part if isinstance(part, list) else [] for part in parts)  # type: ignore[return-value]


def call_of_node(node: TracedNode) -> tuple[str, Comm, float, str, int]:
    """Of a `record_param_comms`: the call's name, its code, its bytes, the group's name and size (0 unknown).

    The inputs are positional (torch/csrc/distributed/c10d/ParamCommsUtils.cpp): tensors, number, group (a name with its
    description, or an address), rank, name, splits, and in newer traces start, stride and size of the group.
    """
    values, _, kinds = side(node, "inputs")
    texts = [value for value in values if isinstance(value, str) and "Tensor" not in value]
    name = next((text for text in texts if comm_of(text) is not Comm.NONE or text in ("wait", "init")), texts[0] if texts else "")
    comm = Comm.NONE if name in ("wait", "init", "") else comm_of(name)
    group = next((str(v[0]) for v, k in zip(values, kinds, strict=False) if str(k).startswith("Tuple[String") and v), "")
    size = values[-1] if len(values) >= 10 and isinstance(values[-1], int) else 0
    if not size and (splits := [v for v in values if isinstance(v, list) and v and all(isinstance(x, int) for x in v)]):
        size = len(splits[-1])
    sent, received = tensor_bytes(*side(node, "inputs")), tensor_bytes(*side(node, "outputs"))
    return name, comm, total_bytes(comm, sent, received, size), group, size


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
    kinds = re.findall(r"Tensor\(([^()]*)\)", str(kind))
    if not kinds:
        return float("nan")
    if str(kind).startswith("GenericList") and isinstance(shape, list):
        return float(sum(_elements(one) * element_bytes(k) for one, k in zip(shape, kinds, strict=False)))
    return _elements(shape) * element_bytes(kinds[0])


def _elements(shape: Any) -> int:
    if not isinstance(shape, list):
        return 0
    if shape and all(isinstance(one, list) for one in shape):
        return sum(map(_elements, shape))
    count = 1
    for extent in shape:
        count *= extent if isinstance(extent, int) and 0 <= extent < 2**40 else 0
        count = min(count, 2**62)
    return count
