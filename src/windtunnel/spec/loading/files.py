"""Reads a TOML, YAML or JSON file, plain or gzip, into a table of plain values; every failure is a FileError with its reason.
Tables of plain values as TOML text: what `tomllib` reads back equal. The standard library has no writer. The catalogue's
directory: its names, and the plain table of each (`catalog/<kind>/<name>.toml`).
"""

from __future__ import annotations

import copy
import functools
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.base.files import CATALOG, read_unpacked, without_gz

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 50
MAX_VALUES = 1_000_000
SUFFIXES = (".toml", ".yaml", ".yml", ".json")
_WANTED = "a TOML, YAML or JSON file (.toml, .yaml, .yml, .json, or one of these in .gz) of at most 16 MiB"


def read_table(path: Path) -> dict[str, Any]:
    """The table in the file at `path`; FileError if it cannot be read, decoded or parsed, or is not a table."""
    return parse_table(read_text(path, MAX_BYTES, _WANTED), without_gz(path).suffix, str(path))


def parse_table(text: str, suffix: str, where: str) -> dict[str, Any]:
    """The table in `text`, whose format is that of files with this suffix; FileError at `where` if it is none."""
    parser = _PARSERS.get(suffix.lower())
    if parser is None:
        raise FileError(where, suffix or "no suffix", _WANTED)
    try:
        table = parser(text)
    except FileError:
        raise
    except RecursionError:
        raise FileError(where, "tables or lists in each other without end", f"at most {MAX_DEPTH} levels") from None
    except (ValueError, TypeError, OverflowError, _YamlTrouble) as error:
        reason = " ".join(str(error).split())[:200]
        raise FileError(where, reason, f"a complete {suffix[1:].upper()} document") from None
    if not isinstance(table, dict):
        raise FileError(where, type(table).__name__, "a table of fields at the top")
    trouble = shape_trouble(table)
    if trouble:
        raise FileError(where, *trouble)
    return table


def check_shape(path: str, value: object) -> None:
    """SpecError if `value`, nested tables from Python, is too deep, cyclic, too large or has keys that are not text."""
    trouble = shape_trouble(value)
    if trouble:
        raise SpecError(path, *trouble)


def shape_trouble(value: object) -> tuple[str, str] | None:
    """(mistake, allowed) for the nesting of `value`, or None. Iterative, so that depth cannot overflow the stack."""
    todo: list[tuple[object, int]] = [(value, 1)]
    seen = 0
    while todo:
        item, depth = todo.pop()
        seen += 1
        if depth > MAX_DEPTH:
            return f"more than {MAX_DEPTH} levels of tables and lists", f"at most {MAX_DEPTH} levels"
        if seen > MAX_VALUES:
            return f"more than {MAX_VALUES} values", f"at most {MAX_VALUES} values"
        if isinstance(item, dict):
            bad = next((key for key in item if not isinstance(key, str)), None)
            if bad is not None:
                return f"a key that is a {type(bad).__name__}", "keys that are text"
            todo.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend((child, depth + 1) for child in item)
    return None


def read_text(path: Path, largest: int, wanted: str) -> str:
    """UTF-8 text of a file, plain or gzip; FileError, with what is `wanted`, if it is missing, empty, binary, a broken gzip stream,
    or over `largest` bytes, packed or unpacked."""
    shown = str(path)[:200]
    data, _ = read_unpacked(path, largest + 1, wanted)
    if len(data) > largest:
        raise FileError(shown, f"more than {largest >> 20} MiB", wanted)
    if not data.strip():
        raise FileError(shown, "an empty file", wanted)
    if b"\0" in data:
        raise FileError(shown, "a binary file", wanted)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(shown, "bytes that are not UTF-8 text", wanted) from None


def parse_json(text: str, constant: Callable[[str], object] | None = None) -> object:
    """The document in `text`; ValueError if it is cut off, repeats a key or holds NaN, RecursionError if it nests without end.
    `constant`: what NaN, Infinity and -Infinity are instead."""
    return json.loads(text, parse_constant=constant or refuse_constant, object_pairs_hook=_refuse_duplicates)


def refuse_constant(name: str) -> object:
    """ValueError: JSON has no NaN and no Infinity."""
    raise ValueError(f"{name} is not a number that can be used")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in names if names.count(key) > 1)!r} is written twice")
    return table


class _YamlTrouble(Exception):
    """A YAML error, renamed so that callers need not import yaml."""


def _yaml(text: str) -> object:
    from windtunnel.spec.loading.yaml_loader import loader, yaml_package

    try:
        yaml = yaml_package()
    except ImportError:
        raise _YamlTrouble("reading YAML needs the package PyYAML; TOML and JSON need nothing") from None
    try:
        return yaml.load(text, Loader=loader())
    except yaml.YAMLError as error:
        raise _YamlTrouble(str(error)) from None


_PARSERS: dict[str, Callable[[str], object]] = {".toml": tomllib.loads, ".json": parse_json, ".yaml": _yaml, ".yml": _yaml}


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_lines(table: dict[str, Any], head: str = "") -> Iterator[str]:
    """Lines of `table`: its own values first, then its inner tables under their dotted names."""
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            name = f"{head}.{_key(key)}" if head else _key(key)
            yield ""
            yield f"[{name}]"
            yield from toml_lines(value, name)


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _value(text)


def _value(value: object) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(item, (list, tuple)) for item in value):
        return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):  # in a list: an inline table
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if hasattr(value, "isoformat"):  # a date or a time
        return str(value.isoformat())
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # inf, -inf and nan
    return json.dumps(value)


ROOT = CATALOG
KINDS = ("gpus", "nodes", "fabrics", "clusters", "regions", "laws", "models", "frameworks", "jobs", "reliability")


@functools.cache
def names(kind: str) -> tuple[str, ...]:
    """Sorted names of a kind, one of KINDS; UnknownName otherwise."""
    if kind not in KINDS:
        raise UnknownName("catalog kind", kind, KINDS)
    return tuple(sorted(file.stem for file in (ROOT / kind).glob("*.toml")))


def entry(kind: str, name: str, path: str) -> dict[str, Any]:
    """A fresh copy of the table of catalogue entry `name`; UnknownName at `path` if the kind has no such entry."""
    if name not in names(kind):
        raise UnknownName(path, name, names(kind))
    return copy.deepcopy(_parse_entry(kind, name))


@functools.cache
def _parse_entry(kind: str, name: str) -> dict[str, Any]:
    return read_table(ROOT / kind / f"{name}.toml")
