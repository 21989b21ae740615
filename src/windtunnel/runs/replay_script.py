"""A script that times one operator of a trace as it was called: its inputs' sizes, strides, formats and other arguments."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.formats.traces.kineto.batches import EVENTS, Around, Layout, batches
from windtunnel.formats.traces.kineto.sources import sources
from windtunnel.runs.operators import operators_of
from windtunnel.runs.sources import read_run_of

TYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "long int": "int64",
    "int": "int32", "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""The profiler's names of number formats -> PyTorch's."""

SCRIPT = Path(__file__).with_name("replay_script.txt").read_text(encoding="utf-8")


def write_replay(files: Sequence[str | Path], op: str) -> str:
    """The script for the calls of `op` (such as aten::mm) with those inputs that took longest. FileError for files that are no
    traces of PyTorch's profiler, UnknownName for an operator that none of them has, SpecError where inputs were not recorded."""
    run, _ = read_run_of(files)
    traces = [trace for trace in run.ranks if trace.operators]
    if not traces:
        raise FileError(str(files[0]), "no traceEvents", "a trace that PyTorch's profiler exported")
    rows = [(row, trace.source) for trace in traces for row in operators_of([trace])]
    mine = [one for one in rows if one[0].op == op]
    if not mine or not re.fullmatch(r"\w+::\w+", op):
        raise UnknownName("--replay", op, sorted({row.op for row, _ in rows if "::" in row.op}))
    row, name = max(mine, key=lambda one: one[0].seconds)
    args = next((args for args in _calls(files, name, op) if _sizes_of(args) == row.shapes), None)
    if args is None or not row.shapes:
        raise SpecError("--replay", op, "an operator whose inputs were recorded", "Profile with record_shapes=True.")
    try:
        inputs = "\n".join(f"    {text}," for text in _inputs(args, op))
    except (IndexError, TypeError, ValueError) as error:
        raise FileError(name, str(error)[:80], "sizes and strides as the profiler writes them") from error
    micros = 1e6 * row.seconds / row.number
    source = re.sub(r"[^\w.-]", "_", Path(name).name, flags=re.ASCII)
    return SCRIPT.format(op=op, source=source, number=row.number, micros=micros, inputs=inputs, path=op.replace("::", "."))


class _Call(msgspec.Struct, gc=False):
    """A call of an operator, with all of its arguments."""

    cat: Any = None
    name: Any = None
    args: Any = None


def _calls(files: Sequence[str | Path], name: str, op: str) -> Iterator[dict[str, Any]]:
    """The arguments of each call of `op` in the trace of that name."""
    layout = Layout(EVENTS.array, EVENTS.between, _Call, EVENTS.what)
    for source in sources([Path(file) for file in files]):
        if source.name != name:
            deque(source.chunks, maxlen=0)  # each has to be read before the next
            continue
        for batch in batches(source.name, source.chunks, Around(), layout):
            for event in batch:
                if event.cat == "cpu_op" and event.name == op and isinstance(event.args, dict):
                    yield event.args


def _sizes_of(args: dict[str, Any]) -> str:
    """A call's sizes as rows of operators show them."""
    sizes = args.get("Input Dims") or []
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
