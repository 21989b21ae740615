"""The JSON file of one GPU's kernel constants: strict reading, and writing.

    {"format": 1, "id": …, "architecture": …, "reference": {peak, achievable, sms, l2, power, narrow, bandwidth},
     "gemm": CLASS, "grouped_gemm": CLASS or absent, "memory": {name: CLASS}, "attention": {library: CLASS}, "about": {…},
     "datasheet": {…} or absent}

A CLASS is {error, provenance, source, constants, held_out, trained}; the last two are error statistics of the fit, absent where
a class
was not fitted on this GPU. Attention's constants (and statistics) are given forward and backward.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.compute.kernels import AttentionCurve, GemmCurve, Kernels, MemoryCurve, Provenance, Statistics, Table
from windtunnel.compute.residual import FEATURES, Residual

FORMAT = 1
WAYS = ("forward", "backward")
TOP = {"format", "id", "architecture", "reference", "gemm", "grouped_gemm", "memory", "attention", "about", "datasheet"}
OPTIONAL = {"grouped_gemm", "about", "datasheet"}
CLASS = {"error", "provenance", "source", "constants", "held_out", "trained"}
POSITIVE = ("fraction", "efficiency", "memory", "store", "blend", "settle", "cache", "backward", "dgrad", "wgrad", "rows", "sharp")
REFERENCE = ("peak", "achievable", "sms", "l2", "power", "narrow", "bandwidth")


def read_kernels(path: Path) -> Kernels:
    """A file's constants; FileError if it is missing, is not JSON, or has an unknown, missing or impossible value."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise FileError(str(path), said or str(error), "a file that `windtunnel profile fit` wrote") from None
    try:
        return parse(data)
    except (KeyError, TypeError, ValueError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FileError(str(path), said, "a file that `windtunnel profile fit` wrote") from None


def parse(data: Any) -> Kernels:
    """Constants from a decoded file. Raises KeyError, TypeError or ValueError, named by where in the file it is wrong."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"format {data.get('format') if isinstance(data, dict) else data!r}, not {FORMAT}")
    _keys("the file", data, TOP, OPTIONAL)
    reference = _table("reference", data["reference"])
    _keys("reference", reference, set(REFERENCE), set())
    numbers = {name: _number(f"reference.{name}", reference[name]) for name in REFERENCE}
    tables: dict[str, Table] = {}

    def take(section: Any, key: str) -> dict[str, Any]:
        found = _table(key, section)
        _keys(key, found, CLASS, {"held_out", "trained"})
        provenance = str(found["provenance"]).upper()
        if provenance not in Provenance.__members__:
            raise ValueError(f"{key}.provenance {found['provenance']!r}")
        stats = {name: _statistics(f"{key}.{name}", found.get(name, {})) for name in ("held_out", "trained")}
        tables[key] = Table(_number(f"{key}.error", found["error"]), Provenance[provenance], str(found["source"]), **stats)
        return _table(f"{key}.constants", found["constants"])

    gemm = _curve("gemm", GemmCurve, take(data["gemm"], "gemm"))
    grouped = _curve("grouped_gemm", GemmCurve, take(data["grouped_gemm"], "grouped_gemm")) if "grouped_gemm" in data else None
    memory = {name: _curve(name, MemoryCurve, take(section, name)) for name, section in _table("memory", data["memory"]).items()}
    attention = {}
    for library, section in _table("attention", data["attention"]).items():
        ways = take(section, f"attention.{library}")
        _keys(f"attention.{library}.constants", ways, set(WAYS), set())
        attention[library] = {way: _curve(f"attention.{library}.{way}", AttentionCurve, _table(way, ways[way])) for way in WAYS}
    if "elementwise" not in memory or not attention:
        raise ValueError("no memory.elementwise" if attention else "no attention")
    return Kernels(
        id=str(data["id"]),
        architecture=str(data["architecture"]),
        gemm=gemm,
        grouped=grouped,
        memory=memory,
        attention=attention,
        tables=tables,
        datasheet=_table("datasheet", data.get("datasheet", {})),
        about=_table("about", data.get("about", {})),
        **numbers,
    )


def document(kernels: Kernels) -> dict[str, Any]:
    """The reverse of `parse`, numbers to four digits."""

    def section(key: str, constants: Any) -> dict[str, Any]:
        table = kernels.tables[key]
        found = {
            "error": _short(table.error),
            "provenance": table.provenance.name.lower(),
            "source": table.source,
            "constants": constants,
        }
        for name in ("held_out", "trained"):
            if stats := getattr(table, name):
                found[name] = {part: {**{k: _short(v) for k, v in asdict(value).items()}} for part, value in stats.items()}
        return found

    found: dict[str, Any] = {
        "format": FORMAT,
        "id": kernels.id,
        "architecture": kernels.architecture,
        "reference": {name: _short(getattr(kernels, name), 9) for name in REFERENCE},
        "gemm": section("gemm", _constants(kernels.gemm)),
    }
    if kernels.grouped is not None:
        found["grouped_gemm"] = section("grouped_gemm", _constants(kernels.grouped))
    found["memory"] = {name: section(name, _constants(curve)) for name, curve in kernels.memory.items()}
    found["attention"] = {
        library: section(f"attention.{library}", {way: _constants(curve) for way, curve in ways.items()})
        for library, ways in kernels.attention.items()
    }
    for name in ("datasheet", "about"):
        if value := getattr(kernels, name):
            found[name] = dict(value)
    return found


def text(kernels: Kernels) -> str:
    """The file's text: indented JSON in which lists of numbers and short tables stay on one line."""
    return _indented(document(kernels), 0) + "\n"


def _indented(value: Any, depth: int) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_indented(item, 0) for item in value) + "]"
    if not isinstance(value, dict):
        return f"{value:.9g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    if not any(isinstance(item, dict) for item in value.values()):
        flat = "{" + ", ".join(f"{json.dumps(name)}: {_indented(item, 0)}" for name, item in value.items()) + "}"
        if len(flat) + depth < 130:
            return flat
    inside = " " * (depth + 1)
    rows = [f"{inside}{json.dumps(name)}: {_indented(item, depth + 1)}" for name, item in value.items()]
    return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"


def _constants(curve: Any) -> dict[str, Any]:
    plain = {f.name: f.default for f in fields(curve)}
    return {
        name: _short(value) if isinstance(value, int | float) else value
        for name, value in asdict(curve).items()
        if value != plain[name]
    }


def _short(value: float, digits: int = 4) -> float:
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _curve(where: str, kind: Any, values: Mapping[str, Any]) -> Any:
    """A curve from its constants: every one known and given (unless it has a default), positive or zero."""
    known = {f.name: f.default for f in fields(kind)}
    _keys(where, values, set(known), {name for name, default in known.items() if default is not MISSING})
    given: dict[str, Any] = {
        name: _number(f"{where}.{name}", value) for name, value in values.items() if name not in ("tiles", "residual")
    }
    if "tiles" in values:
        given["tiles"] = tuple((int(a), int(b)) for a, b in values["tiles"])
        if not given["tiles"] or min(min(tile) for tile in given["tiles"]) < 1:
            raise ValueError(f"{where}.tiles {values['tiles']}")
    if "residual" in values:
        given["residual"] = _residual(f"{where}.residual", values["residual"])
    for name in POSITIVE:
        if given.get(name, 1.0) <= 0.0:
            raise ValueError(f"{where}.{name} {given[name]}, not above 0")
    return kind(**given)


def _residual(where: str, value: Any) -> Residual:
    found = _table(where, value)
    _keys(where, found, {"feature", "above", "value"}, set())
    feature, above, leaves = (
        tuple(tuple(_number(where, x, signed=True) for x in tree) for tree in found[name]) for name in ("feature", "above", "value")
    )
    fit = all(len(a) == len(b) and len(c) == 2 ** len(a) and len(a) < 8 for a, b, c in zip(feature, above, leaves, strict=True))
    if not fit or any(not 0 <= f < len(FEATURES) or f != int(f) for tree in feature for f in tree):
        raise ValueError(f"{where}: trees whose questions and values do not match")
    return Residual(tuple(tuple(int(f) for f in tree) for tree in feature), above, leaves)


def _statistics(where: str, parts: Any) -> dict[str, Statistics]:
    names = {f.name for f in fields(Statistics)}
    found = {}
    for part, values in _table(where, parts).items():
        _keys(f"{where}.{part}", values, names, set())
        found[part] = Statistics(**{name: _number(f"{where}.{part}.{name}", value, signed=True) for name, value in values.items()})
    return found


def _keys(where: str, found: Mapping[str, Any], known: set[str], optional: set[str]) -> None:
    if unknown := sorted(set(found) - known):
        raise ValueError(f"{where}: unknown {', '.join(unknown)}")
    if missing := sorted(known - optional - set(found)):
        raise ValueError(f"{where}: no {', '.join(missing)}")


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{where} is {type(value).__name__}, not a table")
    return value


def _number(where: str, value: Any, signed: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or (value < 0 and not signed):
        raise ValueError(f"{where} {value!r}, not a number{'' if signed else ' of 0 or more'}")
    return value
