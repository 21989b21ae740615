"""What the operators of XLA's programs compute, from what a profile says of its kernels (`flops` and `bytes_accessed`, of XLA's
cost analysis), else from the programs that it holds.

Fields as in OpenXLA's hlo.proto: HloProto{1: module}, HloModuleProto{3: computations}, HloComputationProto{2: instructions, 5: id},
HloInstructionProto{1: name, 2: opcode, 3: shape, 30: dimensions of a dot, 35: id, 36: operands, 38: called computations};
ShapeProto{2: element type, 3: dimensions, 4: shapes of a tuple}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.formats.traces.chakra.framing import fields, varint
from windtunnel.formats.traces.xplane import device_planes, operator_of

FORMATS = {10: "fp16", 11: "fp32", 16: "bf16", 20: "fp8", 19: "fp8"}
"""Element types as `workload.ops` calls them; of 8 bits e4m3 and e5m2."""

WIDTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 16: 2, 19: 1, 20: 1}
"""B of an element by its type."""

WRITTEN = {"bf16": "bf16", "f16": "fp16", "f32": "fp32"}
_WRITTEN = re.compile(r"\b(bf16|f16|f32|f8e\w+)\[")
"""Element types as XLA writes them in an instruction; others of these are of 8 bits."""


class XlaWork(NamedTuple):
    """One execution of an operator: FLOP (of its matrix products, where the profile does not say it; 0: none), B of its operands
    and results, format of the first product, else of the result ("": another)."""

    flops: float
    bytes: float
    dtype: str


def work_of(files: Sequence[Path]) -> dict[str, XlaWork]:
    """Work of the operators of all programs in profiles, by name; without those that differ between programs, and with nothing
    from files that are no profiles."""
    found: dict[str, set[XlaWork]] = {}
    for path in files:
        try:
            data = path.read_bytes()
            listed = [pair for program in _programs(data) for pair in _operators(program)]
            listed = _with_stated(listed, data)
        except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError):
            continue
        for name, work in listed:
            found.setdefault(name, set()).add(work)
    return {name: next(iter(works)) for name, works in found.items() if len(works) == 1}


def _with_stated(listed: list[tuple[str, XlaWork]], data: bytes) -> list[tuple[str, XlaWork]]:
    """Work of operators, with what the planes of devices state of them in its place."""
    stated: dict[str, XlaWork] = {}
    for plane in device_planes(data):
        for kernel, known in plane.works.items():
            form = _WRITTEN.search(str(known["long_name"]))
            flops, moved = (float(known.get(name) or 0.0) for name in ("flops", "bytes_accessed"))
            if flops or moved:
                work = XlaWork(flops, moved, WRITTEN.get(form[1], "fp8") if form else "")
                stated[operator_of(plane, kernel, known)] = work
    for place, (name, work) in enumerate(listed):
        if (said := stated.get(name)) is not None:
            listed[place] = name, XlaWork(said.flops or work.flops, said.bytes or work.bytes, work.dtype)
    named = {name for name, _ in listed}
    return listed + [pair for pair in stated.items() if pair[0] not in named]


def _programs(data: bytes) -> Iterator[bytes]:
    for number, _, plane in fields(data):
        if number != 1 or not isinstance(plane, bytes) or b"/host:metadata" not in plane[:64]:
            continue
        for entry in _all(plane, 4):
            for about in _all(entry, 2):
                for stat in _all(about, 5):
                    yield from (module for proto in _all(stat, 6) for module in _all(proto, 1))


def _operators(module: bytes) -> Iterator[tuple[str, XlaWork]]:
    computations = {}
    for computation in _all(module, 3):
        instructions = [_instruction(one) for one in _all(computation, 2)]
        computations[_number(computation, 5)] = {one["id"]: one for one in instructions}
    for known in computations.values():
        for one in known.values():
            products = list(_products(one, known, computations))
            read = sum(_bytes(known[operand]["shape"]) for operand in one["operands"] if operand in known)
            kind = products[0][1] if products else one["shape"][0][0] if one["shape"] else 0
            yield one["name"], XlaWork(sum(flops for flops, _ in products), read + _bytes(one["shape"]), FORMATS.get(kind, ""))


def _products(
    one: dict[str, Any], beside: dict[int, Any], computations: dict[int, Any], depth: int = 0
) -> Iterator[tuple[float, int]]:
    """(FLOP, element type of an operand) of the dots of an instruction and of what it calls."""
    if one["opcode"] == "dot" and one["dot"] is not None and one["operands"]:
        left = beside[one["operands"][0]]["shape"][0]
        contracted = prod(left[1][place] for place in _numbers(one["dot"], 1))
        yield 2.0 * prod(one["shape"][0][1]) * contracted, left[0]
    elif one["opcode"] == "fusion" and depth < 4:
        for called in one["calls"]:
            inside = computations.get(called, {})
            for inner in inside.values():
                yield from _products(inner, inside, computations, depth + 1)


def _instruction(data: bytes) -> dict[str, Any]:
    dot = next(_all(data, 30), None)
    return {
        "name": _text(data, 1), "opcode": _text(data, 2),
        "shape": [shape for one in _all(data, 3) for shape in _shapes(one)], "id": _number(data, 35), "dot": dot,
        "operands": _numbers(data, 36), "calls": _numbers(data, 38),
    }  # fmt: skip


def _shapes(data: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """(element type, sizes) of a shape, or of the shapes of a tuple."""
    parts = [shape for one in _all(data, 4) for shape in _shapes(one)]
    return parts or [(_number(data, 2), tuple(_numbers(data, 3)))]


def _bytes(shapes: Sequence[tuple[int, tuple[int, ...]]]) -> float:
    return float(sum(WIDTHS.get(kind, 0) * prod(sizes) for kind, sizes in shapes))


def _all(data: bytes, field: int) -> Iterator[bytes]:
    return (value for number, _, value in fields(data) if number == field and isinstance(value, bytes))


def _text(data: bytes, field: int) -> str:
    return next(_all(data, field), b"").decode("utf-8", "replace")


def _number(data: bytes, field: int) -> int:
    """The first number of a field; 0 where there is none."""
    return next((value for number, _, value in fields(data) if number == field and isinstance(value, int)), 0)


def _numbers(data: bytes, field: int) -> list[int]:
    """The numbers of a repeated field, packed or one by one."""
    found: list[int] = []
    for number, wire, value in fields(data):
        if number == field and isinstance(value, bytes) and wire == 2:
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                found.append(one)
        elif number == field and isinstance(value, int):
            found.append(value)
    return found
