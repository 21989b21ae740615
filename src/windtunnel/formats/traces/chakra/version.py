"""Which schema a Chakra file was written with: nothing in it says so but the shape of its first messages."""

from __future__ import annotations

from enum import IntEnum

from windtunnel.formats.traces.chakra.framing import fields, varint


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
