"""A script that times one operator of a trace as it was called: its inputs' sizes, strides, formats and other arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.runs.operators import chrome_of, operators_of

TYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "long int": "int64",
    "int": "int32", "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""The profiler's names of number formats -> PyTorch's."""

SCRIPT = '''"""{op} as {source} has it: {number} calls of {micros:.1f} us in the mean."""

import time
from statistics import median

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tensor(sizes, strides, dtype):
    """Random numbers of these sizes and strides; whole numbers are zeros and ones."""
    if dtype.is_floating_point:
        made = torch.randn(sizes, device=DEVICE).to(dtype)
    else:
        made = torch.randint(0, 2, sizes, device=DEVICE).to(dtype)
    return made if strides is None else torch.empty_strided(sizes, strides, dtype=dtype, device=DEVICE).copy_(made)


INPUTS = [
{inputs}
]


def find_overload():
    """The overload that takes these inputs, and its arguments by place and by name."""
    for overload in (getattr(torch.ops.{path}, name) for name in torch.ops.{path}.overloads()):
        pairs = list(zip(overload._schema.arguments, INPUTS))
        given = [value for argument, value in pairs if not argument.kwarg_only]
        named = {{argument.name: value for argument, value in pairs if argument.kwarg_only and value is not None}}
        try:
            overload(*given, **named)
        except (RuntimeError, TypeError):
            continue
        if len(overload._schema.arguments) >= len(INPUTS):
            return lambda: overload(*given, **named)
    raise SystemExit("{op} takes no such inputs here")


RUN = find_overload()


def seconds():
    """One call, by the device's own clock."""
    if DEVICE == "cpu":
        began = time.perf_counter()
        RUN()
        return time.perf_counter() - began
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    RUN()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3


for _ in range(10):
    seconds()
print(f"{op}: {{1e6 * median(seconds() for _ in range(20)):.1f}} us; the trace has {micros:.1f} us")
'''


def write_replay(files: Sequence[str | Path], op: str) -> str:
    """The script for the calls of `op` (such as aten::mm) with those inputs that took longest. FileError for files that are no
    traces of PyTorch's profiler, UnknownName for an operator that none of them has, SpecError where inputs were not recorded."""
    traces = [(Path(file), chrome) for file in files if (chrome := chrome_of(Path(file))) is not None]
    if not traces:
        raise FileError(str(files[0]), "no traceEvents", "a trace that PyTorch's profiler exported")
    rows = [(row, path, chrome) for path, chrome in traces for row in operators_of(chrome) if row.number]
    mine = [one for one in rows if one[0].op == op]
    if not mine or not re.fullmatch(r"\w+::\w+", op):
        raise UnknownName("--replay", op, sorted({row.op for row, _, _ in rows if "::" in row.op}))
    row, path, chrome = max(mine, key=lambda one: one[0].seconds)
    event = next((event for event in _events(chrome, op) if _sizes_of(event) == row.shapes), None)
    if event is None or not row.shapes:
        raise SpecError("--replay", op, "an operator whose inputs were recorded", "Profile with record_shapes=True.")
    try:
        inputs = "\n".join(f"    {text}," for text in _inputs(event["args"], op))
    except (IndexError, TypeError, ValueError) as error:
        raise FileError(str(path), str(error)[:80], "sizes and strides as the profiler writes them") from error
    micros = 1e6 * row.seconds / row.number
    source = re.sub(r"[^\w.-]", "_", path.name, flags=re.ASCII)
    return SCRIPT.format(op=op, source=source, number=row.number, micros=micros, inputs=inputs, path=op.replace("::", "."))


def _events(chrome: dict[str, Any], op: str) -> Iterator[dict[str, Any]]:
    for event in chrome["traceEvents"]:
        is_call = isinstance(event, dict) and event.get("cat") == "cpu_op" and event.get("name") == op
        if is_call and isinstance(event.get("args"), dict):
            yield event


def _sizes_of(event: dict[str, Any]) -> str:
    """An event's sizes as rows of operators show them."""
    sizes = event["args"].get("Input Dims") or []
    return " ".join("x".join(map(str, one)) for one in sizes if one and not isinstance(one[0], list))


def _inputs(args: dict[str, Any], op: str) -> Iterator[str]:
    sizes, types = args.get("Input Dims") or [], args.get("Input type") or []
    concrete, strides = args.get("Concrete Inputs") or [], args.get("Input Strides") or []
    for place, kind in enumerate(types):
        value = str(concrete[place]) if place < len(concrete) else ""
        if kind in TYPES:
            size = [int(one) for one in sizes[place]]
            steps = [int(one) for one in strides[place]] if place < len(strides) else []
            yield f"tensor({size}, {steps if size and len(steps) == len(size) else None}, torch.{TYPES[kind]})"
        elif kind == "TensorList":
            raise SpecError("--replay", op, "an operator of single tensors; this one takes a list")
        elif kind in ("Scalar", "ScalarList") and value:
            yield _literal(value, op)
        else:
            yield "None"


def _literal(value: str, op: str) -> str:
    """A scalar or a list of them, as the trace writes it. SpecError for anything else: it would be run."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not all(isinstance(one, (int, float)) for one in (found if isinstance(found, list) else [found])):
        raise SpecError("--replay", f"{op} with {value[:40]!r}", "numbers and lists of numbers as arguments")
    return repr(found)
