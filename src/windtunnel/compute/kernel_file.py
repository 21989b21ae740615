"""The JSON file of one GPU's kernel constants: strict reading, and writing.

    {"format": 1, "id": ..., "architecture": ..., "reference": {peak, achievable, sms, l2, power, narrow, bandwidth},
     "gemm": CLASS, "grouped_gemm": CLASS or absent, "memory": {name: CLASS}, "attention": {library: CLASS}, "about": {...},
     "datasheet": {...} or absent}

A CLASS is {error, provenance, source, constants, held_out, trained}. The last two are error statistics of the fit, absent where the
class was not fitted on this GPU. Attention's constants and statistics are given forward and backward.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from windtunnel.base.errors import FileError
from windtunnel.base.files import CATALOG, MIB, read_text
from windtunnel.base.quantities import Strict
from windtunnel.compute.curves import (
    AttentionCurve,
    Basis,
    ErrorStatistics,
    GemmCurve,
    KernelCurves,
    MemoryCurve,
    Number,
    Positive,
    Provenance,
    provenance_of,
)

FOLDER = CATALOG / "kernels"
FORMAT = 1
LARGEST_FILE = 16 * MIB
WANTED = "a file that `windtunnel fit kernels` wrote"


class _Class(Strict):
    """One kernel class without its constants."""

    error: Number
    provenance: Annotated[Provenance, BeforeValidator(provenance_of)]
    source: str
    held_out: dict[str, ErrorStatistics] = {}
    trained: dict[str, ErrorStatistics] = {}

    @property
    def basis(self) -> Basis:
        return Basis(self.error, self.provenance, self.source, self.held_out, self.trained)


class _GemmClass(_Class):
    constants: GemmCurve


class _MemoryClass(_Class):
    constants: MemoryCurve


class _Directions(Strict):
    forward: AttentionCurve
    backward: AttentionCurve


class _AttentionClass(_Class):
    constants: _Directions

    @property
    def curves(self) -> dict[str, AttentionCurve]:
        return {"forward": self.constants.forward, "backward": self.constants.backward}


class _Reference(Strict):
    """The GPU that the constants were fitted on: fields of `KernelCurves`."""

    peak: Positive
    achievable: Positive
    sms: Positive
    l2: Positive
    power: Number
    narrow: Positive
    bandwidth: Positive


class _KernelFile(Strict):
    format: Literal[1]
    id: Annotated[str, Field(min_length=1)]
    architecture: str
    reference: _Reference
    gemm: _GemmClass
    grouped_gemm: _GemmClass | None = None
    memory: dict[str, _MemoryClass]
    attention: Annotated[dict[str, _AttentionClass], Field(min_length=1)]
    about: dict[str, Any] = {}
    datasheet: dict[str, Any] = {}


def is_path(name: str | None) -> bool:
    """Whether `kernels_from` is a user's file and not a name of the catalogue."""
    return name is not None and name.endswith(".json")


AttentionTables = dict[str, tuple[dict[str, AttentionCurve], Basis]]
"""Attention kernels by library: their curves by direction, and what those rest on."""

ATTENTION = FOLDER / "attention"
"""Attention kernels that were measured on GPUs without a file of their own: a file for each architecture, by GPU and library."""


@lru_cache
def measured_attention(architecture: str) -> dict[str, AttentionTables]:
    """What `ATTENTION` has of an architecture, which `windtunnel fit published` writes. FileError as `read_kernels`."""
    path = ATTENTION / f"{architecture}.json"
    if not path.is_file():
        return {}
    try:
        gpus = TypeAdapter(dict[str, dict[str, _AttentionClass]]).validate_json(read_text(path, LARGEST_FILE, WANTED))
    except ValidationError as error:
        raise FileError(str(path), first_mistake(error), WANTED) from None
    return {gpu: {library: (section.curves, section.basis) for library, section in found.items()} for gpu, found in gpus.items()}


def attention_text(fitted: Iterable[KernelCurves]) -> str:
    """The text of a file in `ATTENTION` for fits of several GPUs."""
    return _indent_value({kernels.id: document(kernels)["attention"] for kernels in fitted}, 0) + "\n"


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """Names of the catalogue's files."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@lru_cache(maxsize=32)
def load(name: str) -> KernelCurves:
    """The constants of a file, by its name in the catalogue or by its path. Raises FileError as `read_kernels` does."""
    return read_kernels(Path(name) if is_path(name) else FOLDER / f"{name}.json")


def read_kernels(path: Path) -> KernelCurves:
    """A file's constants. Raises FileError if it cannot be read, or has an unknown, missing or impossible value."""
    return parse(read_text(path, LARGEST_FILE, WANTED), str(path))


def parse(content: str, path: str = "kernels") -> KernelCurves:
    """Constants from the JSON text of a file; `path` names it in a FileError."""
    try:
        file = _KernelFile.model_validate_json(content)
    except ValidationError as error:
        raise FileError(path, first_mistake(error), WANTED) from None
    if "elementwise" not in file.memory:
        raise FileError(path, "no memory.elementwise", WANTED)
    tables = {"gemm": file.gemm.basis, **{name: section.basis for name, section in file.memory.items()}}
    if file.grouped_gemm is not None:
        tables["grouped_gemm"] = file.grouped_gemm.basis
    tables |= {f"attention.{library}": section.basis for library, section in file.attention.items()}
    return KernelCurves(
        id=file.id,
        architecture=file.architecture,
        gemm=file.gemm.constants,
        grouped=None if file.grouped_gemm is None else file.grouped_gemm.constants,
        memory={name: section.constants for name, section in file.memory.items()},
        attention={library: section.curves for library, section in file.attention.items()},
        tables=tables,
        datasheet=file.datasheet,
        about=file.about,
        **file.reference.model_dump(),
    )


def first_mistake(error: ValidationError) -> str:
    """Place and text of the first mistake in a file."""
    first = error.errors()[0]
    where, kind = ".".join(map(str, first["loc"])), first["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where}: unknown"
    if kind in ("missing", "missing_argument"):
        return f"no {where}"
    if kind == "json_invalid":
        return str(first["msg"])
    try:
        value = repr(first["input"])
    except ValueError:  # an integer of thousands of digits
        value = "too large to print"
    what = str(first["msg"]).removeprefix("Input ").removeprefix("Value error, ")
    return f"{where} {value[:40]}: {what}"


def document(kernels: KernelCurves) -> dict[str, Any]:
    """The content of the file, numbers to four digits; `parse` reads it back."""

    def section(key: str, constants: Any) -> dict[str, Any]:
        table = kernels.tables[key]
        section_of = {
            "error": _round_figure(table.error),
            "provenance": table.provenance.name.lower(),
            "source": table.source,
            "constants": constants,
        }
        for name in ("held_out", "trained"):
            if stats := getattr(table, name):
                section_of[name] = {part: {k: _round_figure(v) for k, v in asdict(value).items()} for part, value in stats.items()}
        return section_of

    content: dict[str, Any] = {
        "format": FORMAT,
        "id": kernels.id,
        "architecture": kernels.architecture,
        "reference": {name: _round_figure(getattr(kernels, name), 9) for name in _Reference.model_fields},
        "gemm": section("gemm", _constants(kernels.gemm)),
    }
    if kernels.grouped is not None:
        content["grouped_gemm"] = section("grouped_gemm", _constants(kernels.grouped))
    content["memory"] = {name: section(name, _constants(curve)) for name, curve in kernels.memory.items()}
    content["attention"] = {
        library: section(f"attention.{library}", {way: _constants(curve) for way, curve in ways.items()})
        for library, ways in kernels.attention.items()
    }
    for name in ("datasheet", "about"):
        if value := getattr(kernels, name):
            content[name] = dict(value)
    return content


def text(kernels: KernelCurves) -> str:
    """The file's text: indented JSON in which lists of numbers and short tables stay on one line."""
    return _indent_value(document(kernels), 0) + "\n"


def _indent_value(value: Any, depth: int) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_indent_value(item, 0) for item in value) + "]"
    if not isinstance(value, dict):
        return f"{value:.9g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    if not any(isinstance(item, dict) for item in value.values()):
        flat = "{" + ", ".join(f"{json.dumps(name)}: {_indent_value(item, 0)}" for name, item in value.items()) + "}"
        if len(flat) + depth < 130:
            return flat
    inside = " " * (depth + 1)
    rows = [f"{inside}{json.dumps(name)}: {_indent_value(item, depth + 1)}" for name, item in value.items()]
    return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"


def _constants(curve: Any) -> dict[str, Any]:
    plain = {f.name: f.default for f in fields(curve)}
    return {
        name: _round_figure(value) if isinstance(value, int | float) else value
        for name, value in asdict(curve).items()
        if value != plain[name]
    }


def _round_figure(value: float, digits: int = 4) -> float:
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short
