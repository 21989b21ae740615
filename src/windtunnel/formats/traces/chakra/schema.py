"""Chakra's protobuf messages, built when this module is imported: no compiler of schemas, one runtime.

Field numbers are those of mlcommons/chakra's `et_def.proto` (v0.0.4 to v1.0, which are the same on the wire) and of its predecessor
`eg_def.proto` (v0.0.1). Text fields are declared as bytes, so that a name that is no UTF-8 does not lose the node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

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
