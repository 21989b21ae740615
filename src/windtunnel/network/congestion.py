"""Congestion control as users name it: an algorithm of the packet engine, its parameters, and the marking thresholds of switches.

    load_congestion("dcqcn")                                a preset of catalog/congestion
    load_congestion("dcqcn:rai=40Mb/s,g=0.004")             the same with other values
    load_congestion("my-nic.toml:kmin=200KB,kmax=800KB")    a file; `base` names a preset that it starts from

Parameters, with units and bounds, are those that the core's registry lists (`engine.control`); docs/congestion.md explains them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.units import parse_bandwidth, parse_size, parse_time
from windtunnel.engine.control import Control, Parameter, controls
from windtunnel.spec.catalog import ROOT
from windtunnel.spec.files import SUFFIXES, check_shape, read_table

FOLDER = ROOT / "congestion"
_FIELDS = ("id", "base", "algorithm", "summary", "source", "parameters", "ecn")
_MARKING = ("kmin", "kmax", "pmax")
_ROW = ("rate", *_MARKING, "source")


@dataclass(frozen=True)
class Ecn:
    """Marking of one port: none up to `kmin` bytes waiting, rising to `pmax` at `kmax`, all above.

    `rate`: the port's B/s that the thresholds are stated for; 0: they hold for any.
    """

    rate: float
    kmin: float
    kmax: float
    pmax: float


@dataclass(frozen=True)
class Congestion:
    """`parameters`: every parameter of the algorithm, SI units. `given`: those that the preset or the user set, the others have the
    core's defaults. `sources`: where a value is from, by parameter. `ecn`: by rising rate; empty: switches do not mark."""

    id: str
    algorithm: str
    parameters: dict[str, float]
    given: frozenset[str]
    ecn: tuple[Ecn, ...]
    source: str
    sources: dict[str, str]

    @property
    def notification(self) -> tuple[str, float]:
        """How marks reach the sender: ("cnp", least seconds between two of a receiver), ("ack", 0) in ACKs, or ("none", 0)."""
        if "echo" not in self.parameters:
            return "ack" if self.ecn else "none", 0.0
        return ("ack", 0.0) if self.parameters["echo"] else ("cnp", self.parameters["cnp_interval"])

    def marking(self, rate: float) -> Ecn | None:
        """Marking of a port of `rate` B/s: the nearest row (by ratio, the slower of two), its thresholds scaled to `rate`; None
        without marking."""
        if not self.ecn:
            return None
        row = min(self.ecn, key=lambda r: abs(math.log(rate / r.rate)) if r.rate else 0.0)
        scale = rate / row.rate if row.rate else 1.0
        return Ecn(rate, row.kmin * scale, row.kmax * scale, row.pmax)


@functools.cache
def presets() -> tuple[str, ...]:
    """Names of catalog/congestion, sorted."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def load_congestion(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, object] | None = None, path: str = "cc"
) -> Congestion:
    """A preset, a file or a table, with `overrides` on top (values as in a file: "40Mb/s", 0.004, "55us").

    `source` may carry overrides after a colon, as the command line writes them. `kmin` and `kmax` (together) and `pmax` set the
    marking of all ports, whatever their rate. Errors name `path`: UnknownName for an unknown preset, field or parameter, SpecError
    for a value, FileError for a file.
    """
    chosen = dict(overrides or {})
    if isinstance(source, str):
        source, colon, rest = source.partition(":")
        if colon:
            chosen = {**_options(rest, path), **chosen}
    table = _table(source, path, ())
    algorithm = table.get("algorithm")
    if not isinstance(algorithm, str):
        raise SpecError(f"{path}.algorithm", algorithm, "the name of an algorithm: " + ", ".join(controls()))
    if algorithm not in controls():
        raise UnknownName(f"{path}.algorithm", algorithm, tuple(controls()))
    marking = {key: chosen.pop(key) for key in _MARKING if key in chosen}
    return _congestion(table, controls()[algorithm], chosen, marking, path)


def _congestion(
    table: dict[str, Any], control: Control, chosen: dict[str, object], marking: dict[str, object], path: str
) -> Congestion:
    known = {p.name: p for p in control.parameters}
    parameters = {p.name: p.default for p in control.parameters}
    sources: dict[str, str] = {}
    written = _mapping(table.get("parameters", {}), f"{path}.parameters")
    for name, value in {**written, **chosen}.items():
        if name not in known:
            raise UnknownName(f"{path}.{name}", name, (*known, *(_MARKING if table.get("ecn") else ())))
        if isinstance(value, Mapping):
            sources[name] = str(value.get("source", ""))
            value = value.get("value")
        if name in chosen:
            sources[name] = "given"
        parameters[name] = _value(known[name], value, f"{path}.{name}")
    rows = _rows(table.get("ecn", []), f"{path}.ecn")
    if marking:
        rows = (_marking(rows, marking, path),)
    return Congestion(
        id=str(table.get("id", control.name)), algorithm=control.name, parameters=parameters, given=frozenset({*written, *chosen}),
        ecn=rows, source=str(table.get("source", "")), sources=sources,
    )  # fmt: skip


def _options(text: str, path: str) -> dict[str, object]:
    """`a=1,b=2us` as a table."""
    out: dict[str, object] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            hint = "For example dcqcn:rai=40Mb/s,g=0.004"
            raise SpecError(path, part, "name=value pairs with commas between them, after the colon", hint)
        if key.strip() in out:
            raise SpecError(f"{path}.{key.strip()}", part, "each name once")
        out[key.strip()] = value.strip()
    return out


def _table(source: object, path: str, trail: tuple[str, ...]) -> dict[str, Any]:
    """The table behind a name, a file or a table, with its chain of `base` merged."""
    if isinstance(source, Mapping):
        check_shape(path, dict(source))
        table = dict(source)
    elif isinstance(source, Path) or isinstance(source, str) and source.lower().endswith(SUFFIXES):
        file = Path(source)
        table = {"id": file.stem, **read_table(file)}
    elif isinstance(source, str):
        if source not in presets():
            raise UnknownName(path, source, presets())
        if source in trail:
            raise SpecError(path, source, "a chain of bases that ends", " -> ".join((*trail, source)))
        table = {"id": source, **read_table(FOLDER / f"{source}.toml")}
        trail = (*trail, source)
    else:
        raise SpecError(path, source, "a preset, a file or a table", "Presets: " + ", ".join(presets()))
    for key in table:
        if key not in _FIELDS:
            raise UnknownName(f"{path}.{key}", key, _FIELDS)
    base = table.pop("base", None)
    if base is None:
        return table
    if base not in presets():
        raise UnknownName(f"{path}.base", str(base), presets())
    low = _table(base, f"{path}.base", trail)
    parameters = {**_mapping(low.get("parameters", {}), path), **_mapping(table.get("parameters", {}), f"{path}.parameters")}
    return {**low, **table, "parameters": parameters}


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SpecError(path, value, "a table")
    return dict(value)


def _value(parameter: Parameter, value: object, path: str) -> float:
    """`value` in SI units, within the parameter's bounds."""
    example = {"B/s": "a bandwidth such as '40Mb/s'", "s": "a time such as '55us'", "B": "a size such as '32KiB'",
              "0/1": "true or false", "": "a number"}[parameter.unit]  # fmt: skip
    try:
        number = _parsed(parameter.unit, value)
    except ValueError:
        raise SpecError(path, value, example, f"{parameter.name}: {parameter.meaning}") from None
    if not parameter.least <= number <= parameter.most:
        unit = f" {parameter.unit}" if parameter.unit else ""
        raise SpecError(path, value, f"{parameter.least:g} to {parameter.most:g}{unit}", f"{parameter.name}: {parameter.meaning}")
    return number


def _parsed(unit: str, value: object) -> float:
    if unit == "B/s":
        return 0.0 if value in (0, "0") and not isinstance(value, bool) else parse_bandwidth(value, "link")
    if unit == "s":
        return parse_time(value)
    if unit == "B":
        return parse_size(value)
    if unit == "0/1":
        switches = {True: 1.0, False: 0.0, "true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "on": 1.0, "off": 0.0}
        key = value.lower() if isinstance(value, str) else value
        if not isinstance(key, (str, bool, int)) or key not in switches:
            raise ValueError
        return switches[key]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _rows(value: object, path: str) -> tuple[Ecn, ...]:
    if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
        raise SpecError(path, value, "a list of tables with rate, kmin, kmax and pmax")
    rows = []
    for number, row in enumerate(value):
        at = f"{path}[{number}]"
        for key in row:
            if key not in _ROW:
                raise UnknownName(f"{at}.{key}", str(key), _ROW)
        if "rate" not in row and len(value) > 1:
            raise SpecError(f"{at}.rate", None, "the port's rate; only a single row may leave it out, and then holds for all")
        try:
            rate = parse_bandwidth(row["rate"], "link") if "rate" in row else 0.0
        except ValueError:
            raise SpecError(f"{at}.rate", row["rate"], "the port's rate, such as '400Gb/s'") from None
        rows.append(_row(rate, row, at))
    return tuple(sorted(rows, key=lambda row: row.rate))


def _marking(rows: tuple[Ecn, ...], marking: dict[str, object], path: str) -> Ecn:
    """One marking for all ports from the given thresholds; they come in pairs, since those of the preset depend on the rate."""
    if "kmin" not in marking or "kmax" not in marking:
        raise SpecError(path, ", ".join(marking), "kmin and kmax together, with or without pmax")
    return _row(0.0, {"pmax": rows[-1].pmax if rows else 1.0, **marking}, path)


def _row(rate: float, row: Mapping[str, object], path: str) -> Ecn:
    sizes = []
    for key in ("kmin", "kmax"):
        try:
            sizes.append(parse_size(row[key]))
        except (KeyError, ValueError):
            raise SpecError(f"{path}.{key}", row.get(key), "a size such as '400KB'") from None
    try:
        pmax = _parsed("", row["pmax"])
    except (KeyError, ValueError):
        raise SpecError(f"{path}.pmax", row.get("pmax"), "a probability, 0 to 1") from None
    if not 0.0 <= pmax <= 1.0:
        raise SpecError(f"{path}.pmax", row["pmax"], "a probability, 0 to 1")
    if sizes[1] < sizes[0]:
        raise SpecError(f"{path}.kmax", row["kmax"], f"at least kmin, {sizes[0]:g} B")
    return Ecn(rate, sizes[0], sizes[1], pmax)
