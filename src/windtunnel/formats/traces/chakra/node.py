"""A node of a Chakra trace, whatever its schema: the properties that are used, and which attributes it had.

Which schema a Chakra file was written with: nothing in it says so but the shape of its first messages.

Chakra's protobuf messages, built when this module is imported: no compiler of schemas, one runtime.

Field numbers are those of mlcommons/chakra's `et_def.proto` (v0.0.4 to v1.0, which are the same on the wire) and of its predecessor
`eg_def.proto` (v0.0.1). Text fields are declared as bytes, so that a name that is no UTF-8 does not lose the node.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.formats.traces.chakra.framing import fields, varint

NODE_TYPES = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
"""Names of NodeType since v0.0.3; before, METADATA was not there and the others had one less."""
COLLECTIVES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip
"""Names of CollectiveCommType since v0.0.4."""
OLDER_COLLECTIVES = {
    1: {1: "ALL_REDUCE", 2: "ALL_TO_ALL", 3: "ALL_GATHER", 4: "REDUCE_SCATTER"},
    2: {0: "ALL_REDUCE", 1: "ALL_TO_ALL", 2: "ALL_GATHER", 3: "REDUCE_SCATTER", 4: "BROADCAST"},
}
"""Names of CollectiveCommType in v0.0.1, and in v0.0.2 and v0.0.3."""

VALUES = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64",
    "bool", "string", "bytes",
)  # fmt: skip
"""Types of an attribute's value: `<type>_val` is field 3 + 2i, `<type>_list` field 4 + 2i."""


@lru_cache(maxsize=1)
def messages() -> dict[str, Any]:
    """The message classes by name: GlobalMetadata, Node, AttributeProto (current), and OldNode (v0.0.1)."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind = descriptor_pb2.FieldDescriptorProto
    types = {name: getattr(kind, f"TYPE_{name.upper()}") for name in VALUES} | {"string": kind.TYPE_BYTES}
    file = descriptor_pb2.FileDescriptorProto(name="windtunnel_chakra.proto", package="windtunnel.chakra", syntax="proto3")

    def add(message: Any, name: str, number: int, type_: Any, repeated: bool = False, of: str = "") -> Any:
        field = message.field.add(name=name, number=number, type=kind.TYPE_MESSAGE if of else type_)
        field.label = kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL
        if of:
            field.type_name = f".windtunnel.chakra.{of}"
        return field

    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    add(attribute, "name", 1, types["bytes"])
    add(attribute, "doc_string", 2, types["bytes"])
    for at, name in enumerate(VALUES):
        listed = file.message_type.add(name=f"{name.capitalize()}List")
        add(listed, "values", 1, types[name], repeated=True)
        add(attribute, f"{name}_val", 3 + 2 * at, types[name]).oneof_index = 0
        add(attribute, f"{name}_list", 4 + 2 * at, None, of=listed.name).oneof_index = 0

    metadata = file.message_type.add(name="GlobalMetadata")
    add(metadata, "version", 1, types["bytes"])
    add(metadata, "attr", 2, None, repeated=True, of="AttributeProto")

    shapes = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), 1):
        add(shapes, name, number, types["bytes"])

    node = file.message_type.add(name="Node")
    add(node, "id", 1, types["uint64"])
    add(node, "name", 2, types["bytes"])
    add(node, "type", 3, types["uint32"])
    add(node, "ctrl_deps", 4, types["uint64"], repeated=True)
    add(node, "data_deps", 5, types["uint64"], repeated=True)
    add(node, "start_time_micros", 6, types["uint64"])
    add(node, "duration_micros", 7, types["uint64"])
    add(node, "inputs", 8, None, of="IOInfo")
    add(node, "outputs", 9, None, of="IOInfo")
    add(node, "attr", 10, None, repeated=True, of="AttributeProto")

    old = file.message_type.add(name="OldNode")
    for number, name in OLD_FIELDS.items():
        add(old, name, number, types["bytes" if name == "name" else "bool" if name == "involved_dim" else "uint64"],
            repeated=name in ("parent", "involved_dim", "input_tensor_loc", "input_tensor_size", "output_tensor_loc",
                              "output_tensor_size"))  # fmt: skip

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    wanted = ("GlobalMetadata", "Node", "AttributeProto", "OldNode")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"windtunnel.chakra.{name}")) for name in wanted}


OLD_FIELDS = {
    1: "id", 2: "name", 3: "node_type", 4: "parent", 5: "tensor_loc", 6: "tensor_size", 7: "simulated_run_time",
    8: "input_tensor_loc", 9: "input_tensor_size", 10: "output_tensor_loc", 11: "output_tensor_size", 12: "num_ops",
    13: "comm_type", 14: "involved_dim", 15: "communicator_id", 16: "comm_src", 17: "comm_dst", 18: "comm_size", 19: "comm_tag",
    20: "comm_priority",
}  # fmt: skip
"""Fields of a node of v0.0.1."""


SECONDS = "windtunnel_seconds"
"""Attribute of ours: a node's seconds as a double, since `duration_micros` is a whole number. Other tools ignore it."""

WORLD_SIZE = "windtunnel_ranks"
"""Attribute of ours in the metadata: ranks of the job, where the files are those of a part of them."""

Attributes = dict[str, Any]


@dataclass(slots=True)
class ChakraNode:
    """One node. `kind` is a name of NODE_TYPES; `micros` its duration as written; `attributes` by name (lists as lists)."""

    id: int
    name: str
    kind: str
    data_deps: list[int] = field(default_factory=list)
    ctrl_deps: list[int] = field(default_factory=list)
    start: int = 0
    micros: int = 0
    attributes: Attributes = field(default_factory=dict)
    values: str = ""  # inputs.values: process groups of a metadata node

    def number(self, name: str) -> float | None:
        """A numeric attribute, None where it is missing or no number."""
        value = self.attributes.get(name)
        return value if isinstance(value, (int, float)) else None

    def whole_number(self, name: str) -> int | None:
        """An attribute as a whole number, None where it is none; a string of digits counts."""
        value = self.attributes.get(name)
        if isinstance(value, str):
            return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
        return int(value) if isinstance(value, (int, float)) and abs(value) < 2**63 else None

    @property
    def on_host(self) -> bool:
        """Whether it runs on the CPU; like ASTRA-sim, a node that does not say is the device's."""
        return bool(self.attributes.get("is_cpu_op", False))


def reader(schema: Schema) -> Callable[[bytes], ChakraNode]:
    """What turns a message of a schema into a node. The function raises ValueError for a message that is none."""
    return {Schema.CURRENT: _current(), Schema.ATTRIBUTES: _attributes, Schema.EG: _eg()}[schema]


def metadata_of(data: bytes) -> dict[str, Any]:
    """What a GlobalMetadata message says. ValueError for another message."""
    found = _parse_message(messages()["GlobalMetadata"], data)
    said = {_text(one.name): _value(one) for one in found.attr}
    return ({"version": _text(found.version)} if found.version else {}) | said


def _parse_message(message: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return message.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from None


def _current() -> Callable[[bytes], ChakraNode]:
    message = messages()["Node"]

    def read(data: bytes) -> ChakraNode:
        raw = _parse_message(message, data)
        kind = raw.type
        return ChakraNode(
            raw.id, _text(raw.name), NODE_TYPES[kind] if kind < len(NODE_TYPES) else f"TYPE_{kind}", list(raw.data_deps),
            list(raw.ctrl_deps), raw.start_time_micros, raw.duration_micros, {_text(one.name): _value(one) for one in raw.attr},
            _text(raw.inputs.values) if kind == 1 else "",
        )  # fmt: skip

    return read


def _value(attribute: Any) -> Any:
    """A scalar or a list; None for an attribute without a value, as STG writes some."""
    which = attribute.WhichOneof("value")
    if which is None:
        return None
    value = getattr(attribute, which)
    if which.endswith("_list"):
        return [_text(one) if isinstance(one, bytes) else one for one in value.values]
    return _text(value) if isinstance(value, bytes) else value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _eg() -> Callable[[bytes], ChakraNode]:
    message = messages()["OldNode"]
    wanted = ("tensor_size", "num_ops", "comm_src", "comm_dst", "comm_size", "comm_tag", "comm_priority", "tensor_loc")

    def read(data: bytes) -> ChakraNode:
        raw = _parse_message(message, data)
        said: Attributes = {name: getattr(raw, name) for name in wanted if getattr(raw, name)}
        if raw.node_type == 6:
            said |= {"comm_size": raw.comm_size, "comm_type": _code(OLDER_COLLECTIVES[1], raw.comm_type)}
        if raw.communicator_id:
            said["pg_name"] = str(raw.communicator_id)
        if len(raw.involved_dim):
            said["involved_dim"] = list(raw.involved_dim)
        return ChakraNode(raw.id, _text(raw.name), _old_kind(raw.node_type), list(raw.parent), [], 0, raw.simulated_run_time, said)

    return read


def _old_kind(number: int) -> str:
    """A type before METADATA was put in between."""
    at = number + 1 if number else 0
    return NODE_TYPES[at] if at < len(NODE_TYPES) else f"TYPE_{number}"


def _code(names: dict[int, str], number: int) -> int | None:
    """Today's number of a collective."""
    name = names.get(number)
    return None if name is None else COLLECTIVES.index(name)


def _attributes(data: bytes) -> ChakraNode:
    """A node of v0.0.2 or v0.0.3; the two tell apart by where an attribute's value stands."""
    node = ChakraNode(0, "", "INVALID")
    kind, newer = 0, False
    for number, wire, value in fields(data):
        if number == 1 and isinstance(value, int):
            node.id = value
        elif number == 2 and isinstance(value, bytes):
            node.name = _text(value)
        elif number == 3 and isinstance(value, int):
            kind = value
        elif number == 4:
            node.data_deps += [value] if isinstance(value, int) else _varints(value)
        elif number == 11 and isinstance(value, bytes):
            name, said, third = _old_attribute(value)
            node.attributes[name] = said
            newer = newer or third
        elif wire not in (0, 2):
            raise ValueError(f"field {number} with wire type {wire}")
    newer = newer or kind == 7
    node.kind = (NODE_TYPES[kind] if kind < len(NODE_TYPES) else f"TYPE_{kind}") if newer else _old_kind(kind)
    for name in ("comm_type", "collective_type"):
        if isinstance(node.attributes.get(name), int):
            node.attributes["comm_type"] = _code(OLDER_COLLECTIVES[2], node.attributes[name])
    for name in ("runtime", "simulated_run_time", "duration"):
        if isinstance(node.attributes.get(name), (int, float)):
            node.micros = int(node.attributes[name])
    return node


def _old_attribute(data: bytes) -> tuple[str, Any, bool]:
    """Name, value, and whether only v0.0.3 writes it so."""
    name = ""
    value: Any = None
    newer = False
    for number, wire, raw in fields(data):
        if number == 1 and isinstance(raw, bytes):
            name = _text(raw)
        elif number >= 4 and wire == 0:
            value = raw if not (isinstance(raw, int) and raw >= 2**63) else int(raw) - 2**64
            newer = newer or number in (4, 6)
        elif number >= 4 and wire == 5 and isinstance(raw, bytes):
            value = float(struct.unpack("<f", raw)[0])
            newer = newer or number == 5
        elif number >= 4 and isinstance(raw, bytes):
            value = _text(raw)
    return name, value, newer


def _varints(data: int | bytes) -> list[int]:
    out: list[int] = []
    at = 0
    while isinstance(data, bytes) and at < len(data):
        value, at = varint(data, at)
        out.append(value)
    return out


class Schema(IntEnum):
    """Families of schemas that differ on the wire."""

    EG = 1  # v0.0.1: every property is a field of the node
    ATTRIBUTES = 2  # v0.0.2 and v0.0.3: properties are attributes, no metadata message
    CURRENT = 4  # v0.0.4 to v1.0: a metadata message first


_METADATA = {1: {2}, 2: {2}}
_NODE = {1: {0}, 2: {2}, 3: {0}, 4: {0, 2}, 5: {0, 2}, 6: {0}, 7: {0}, 8: {2}, 9: {2}, 10: {2}, 11: {2}}
_OLD = {number: {0} for number in range(1, 21)} | {2: {2}, 4: {0, 2}, 8: {0, 2}, 9: {0, 2}, 10: {0, 2}, 11: {0, 2}, 14: {0, 2}}
_ATTRIBUTES = {1: {0}, 2: {2}, 3: {0}, 4: {0, 2}, **{number: {2} for number in range(5, 12)}}


def schema_of(data: bytes, whole: bool = True) -> Schema | None:
    """The schema of a file that begins with these bytes, None where they are no Chakra trace; `whole`: they are all of the file."""
    try:
        first, at = _message(data, 0)
        second = _message(data, at)[0] if at < len(data) else None
    except ValueError:
        return None
    if second is None and not whole:
        return None
    metadata = first is not None and _fits(first, _METADATA)
    if metadata and (second is None or _is_node(second, _NODE)):
        return Schema.CURRENT if second is not None or first else None
    if first is None or (second is not None and not second):
        return None
    for shape, schema in ((_ATTRIBUTES, Schema.ATTRIBUTES), (_OLD, Schema.EG)):
        if _is_node(first, shape) and (second is None or _is_node(second, shape)):
            if schema is Schema.ATTRIBUTES and not any(number == 11 for number, _, _ in fields(first)):
                continue
            return schema
    return None


def _message(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = varint(data, at)
    if at + size > len(data):
        raise ValueError("a message that is cut off")
    return data[at : at + size], at + size


def _fits(message: bytes, shape: dict[int, set[int]]) -> bool:
    try:
        return all(number in shape and wire in shape[number] for number, wire, _ in fields(message))
    except ValueError:
        return False


def _is_node(message: bytes, shape: dict[int, set[int]]) -> bool:
    """Whether a message has the fields of a node, and a small type."""
    if not message or not _fits(message, shape):
        return False
    numbers = {number: value for number, _, value in fields(message)}
    kind = numbers.get(3, 0)
    return isinstance(kind, int) and kind <= 10 and (2 in numbers or 1 in numbers or 3 in numbers)
