"""A sheet as plain data and back: what a service keeps beside an answer, so that its page draws it without the answer's objects."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.sheet import blocks
from windtunnel.sheet.blocks import Sheet
from windtunnel.sheet.sentence import Sentence

_KINDS: dict[str, Any] = {
    name: kind for name, kind in vars(blocks).items() if isinstance(kind, type) and kind.__module__ == blocks.__name__
}


def sheet_table(sheet: Sheet) -> dict[str, Any]:
    """Plain data of a sheet, for JSON."""
    return {"schema": Sheet.SCHEMA, **_as_data(sheet)}


def sheet_of(table: Any) -> Sheet:
    """The sheet of such data. SpecError for other data, or a schema of another release."""
    if not isinstance(table, dict) or table.get("schema") != Sheet.SCHEMA:
        raise SpecError(
            "sheet", str(table)[:60], f"a sheet of schema {Sheet.SCHEMA}", "Ask again: the answer is of another release."
        )
    try:
        made = _object({name: value for name, value in table.items() if name != "schema"})
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError("sheet", str(error)[:60], "what `windtunnel` wrote as a sheet") from error
    assert isinstance(made, Sheet)
    return made


def _as_data(value: Any) -> Any:
    if isinstance(value, Sentence):
        return {"say": value.template, "facts": {name: _as_data(fact) for name, fact in value.facts.items()}}
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **{one.name: _as_data(getattr(value, one.name)) for one in fields(value)}}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [type(value).__name__, *(_as_data(one) for one in value)]
    if isinstance(value, (tuple, list)):
        return {"list": [_as_data(one) for one in value]}
    if isinstance(value, dict):
        return {"table": {name: _as_data(one) for name, one in value.items()}}
    return float(value) if hasattr(value, "dtype") else value


def _object(data: Any) -> Any:
    if isinstance(data, list):
        return _KINDS[data[0]](*(_object(one) for one in data[1:]))
    if not isinstance(data, dict):
        return data
    if "say" in data:
        return Sentence(data["say"], **{name: _object(fact) for name, fact in data["facts"].items()})
    if "list" in data:
        return tuple(_object(one) for one in data["list"])
    if "table" in data:
        return {name: _object(one) for name, one in data["table"].items()}
    return _KINDS[data["is"]](**{name: _object(one) for name, one in data.items() if name != "is"})


_NAMES = (
    "key",
    "unit",
    "colour",
    "mood",
    "basis",
    "painter",
    "group",
    "dash",
    "left_out",
    "command",
    "value",
    "subtitle",
    "data",
    "letter",
    "shape",
)


def texts_of(part: Any) -> list[str]:
    """The words of a sheet, or of a part of it, that a language has to have: labels, titles, heads and sentences; of cells only
    sentences."""
    if isinstance(part, str):
        return [part] if not part.startswith(("#", "var(", "hsl(")) else []  # a colour
    if isinstance(part, blocks.Cell):
        return [part.text] if isinstance(part.text, Sentence) else []
    if is_dataclass(part) and not isinstance(part, type):
        named = {one.name: getattr(part, one.name) for one in fields(part)}
    elif isinstance(part, tuple) and (names := getattr(part, "_fields", ())):
        named = dict(zip(names, part, strict=True))
    else:
        return [text for one in part for text in texts_of(one)] if isinstance(part, (tuple, list)) else []
    return [text for name, value in named.items() if name not in _NAMES for text in texts_of(value)]
