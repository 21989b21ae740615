"""Congestion control as users name it: an algorithm of the packet engine, its parameters, and the marking thresholds of switches.

    load_congestion("dcqcn")                                a preset of catalog/congestion
    load_congestion("dcqcn:rai=40Mb/s,g=0.004")             the same with other values
    load_congestion("my-nic.toml:kmin=200KB,kmax=800KB")    a file; `base` names a preset that it starts from

Parameters, with units and bounds, are those that the core's registry lists (`engine.packet`); docs/congestion.md explains them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.files import without_gz
from windtunnel.base.units import parse_bandwidth, parse_size
from windtunnel.engine.packet import Control, Parameter, controls
from windtunnel.network.marking import Ecn, parse_number, parse_probability
from windtunnel.spec.loading.files import ROOT, SUFFIXES, check_shape, read_table

FOLDER = ROOT / "congestion"
_MARKING = ("kmin", "kmax", "pmax")


@dataclass(frozen=True)
class Congestion:
    """A congestion control with all of its parameters."""

    id: str
    algorithm: str
    parameters: dict[str, float]
    """Every parameter of the algorithm, SI units."""
    given: frozenset[str]
    """Names of the parameters that the preset or the user set; the others have the core's defaults."""
    ecn: tuple[Ecn, ...]
    """Marking of switches by rising rate; empty: switches do not mark."""
    source: str
    sources: dict[str, str]
    """Where each value is from, by parameter."""

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


@dataclass(frozen=True)
class CongestionTable:
    """A preset or a user's file, after its chain of `base` is merged. Parameters are checked against the algorithm's."""

    id: str = ""
    algorithm: str = ""
    source: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    ecn: tuple[Ecn, ...] = ()
    unrated: tuple[int, ...] = ()
    """Rows of `ecn` that state no rate."""


_TEXTS = ("id", "algorithm", "summary", "source")


def _check_table(table: Mapping[str, Any], path: str) -> CongestionTable:
    """The table with its values read. What is not plainly right is left to the models, which say what is wrong."""
    plain = _read_plain(table)
    if plain is not None:
        return plain
    from windtunnel.network.congestion_models import check_table  # here: pydantic, which a preset does not need

    return CongestionTable(**check_table(table, path))


def _read_plain(table: Mapping[str, Any]) -> CongestionTable | None:
    texts = {name: table[name] for name in _TEXTS if name in table}
    parameters, rows = table.get("parameters", {}), table.get("ecn", [])
    known = len(texts) + ("parameters" in table) + ("ecn" in table) == len(table)
    if not known or any(type(text) is not str for text in texts.values()) or type(parameters) is not dict or type(rows) is not list:
        return None
    texts.pop("summary", None)
    try:
        ecn = tuple(_read_plain_row(row) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return CongestionTable(
        **texts, parameters=parameters, ecn=ecn, unrated=tuple(i for i, row in enumerate(rows) if "rate" not in row)
    )


def _read_plain_row(row: Mapping[str, Any]) -> Ecn:
    """A row of marking; an error of any kind if it is not plainly right."""
    if row.keys() - {"rate", "kmin", "kmax", "pmax", "source"} or type(row.get("source", "")) is not str:
        raise ValueError
    rate = parse_bandwidth(row["rate"], "link") if "rate" in row else 0.0
    kmin, kmax, pmax = parse_size(row["kmin"]), parse_size(row["kmax"]), parse_probability(row["pmax"])
    if kmax < kmin:
        raise ValueError
    return Ecn(rate, kmin, kmax, pmax)


@functools.cache
def presets() -> tuple[str, ...]:
    """Names of catalog/congestion, sorted."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def load_congestion(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, object] | None = None, path: str = "cc"
) -> Congestion:
    """A preset, a file or a table, with `overrides` on top (values as in a file: "40Mb/s", 0.004, "55us").

    `source` may carry overrides after a colon, as the command line writes them. `kmin` and `kmax` (together) and `pmax` set the
    marking of all ports, whatever their rate. Errors name `path`: UnknownName for an unknown preset, algorithm or parameter,
    SpecError for another field or a value, FileError for a file.
    """
    chosen = dict(overrides or {})
    if isinstance(source, str):
        source, colon, rest = source.partition(":")
        if colon:
            chosen = {**_options(rest, path), **chosen}
    file = _check_table(_table(source, path, ()), path)
    if not file.algorithm:
        raise SpecError(f"{path}.algorithm", Nothing(), "the name of an algorithm: " + ", ".join(controls()))
    if file.algorithm not in controls():
        raise UnknownName(f"{path}.algorithm", file.algorithm, tuple(controls()))
    if file.unrated and len(file.ecn) > 1:
        allowed = "the port's rate; only a single row may leave it out, and then holds for all"
        raise SpecError(f"{path}.ecn[{file.unrated[0]}].rate", Nothing(), allowed)
    marking = {key: chosen.pop(key) for key in _MARKING if key in chosen}
    return _congestion(file, controls()[file.algorithm], chosen, marking, path)


def _congestion(
    file: CongestionTable, control: Control, chosen: dict[str, object], marking: dict[str, object], path: str
) -> Congestion:
    known = {p.name: p for p in control.parameters}
    parameters = {p.name: p.default for p in control.parameters}
    sources: dict[str, str] = {}
    for name, value in {**file.parameters, **chosen}.items():
        if name not in known:
            raise UnknownName(f"{path}.{name}", name, (*known, *(_MARKING if file.ecn else ())))
        if isinstance(value, Mapping):
            value, sources[name] = _read_stated(value, f"{path}.parameters.{name}")
        if name in chosen:
            sources[name] = "given"
        parameters[name] = _value(known[name], value, f"{path}.{name}")
    rows = tuple(sorted(file.ecn, key=lambda row: row.rate))
    if marking:
        rows = (_marking(rows, marking, path),)
    return Congestion(
        id=file.id or control.name, algorithm=control.name, parameters=parameters, given=frozenset({*file.parameters, *chosen}),
        ecn=rows, source=file.source, sources=sources,
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
    elif isinstance(source, Path) or isinstance(source, str) and source.lower().removesuffix(".gz").endswith(SUFFIXES):
        file = Path(source)
        table = {"id": without_gz(file).stem, **read_table(file)}
    elif isinstance(source, str):
        if source not in presets():
            raise UnknownName(path, source, presets())
        if source in trail:
            raise SpecError(path, source, "a chain of bases that ends", " -> ".join((*trail, source)))
        table = {"id": source, **read_table(FOLDER / f"{source}.toml")}
        trail = (*trail, source)
    else:
        raise SpecError(path, source, "a preset, a file or a table", "Presets: " + ", ".join(presets()))
    base = table.pop("base", None)
    if base is None:
        return table
    if base not in presets():
        raise UnknownName(f"{path}.base", str(base), presets())
    low = _table(base, f"{path}.base", trail)
    over = table.get("parameters", {})
    if not isinstance(over, Mapping):
        return {**low, **table}
    return {**low, **table, "parameters": {**low.get("parameters", {}), **over}}


def _value(parameter: Parameter, value: object, path: str) -> float:
    """`value` in SI units, within the parameter's bounds."""
    example = {"B/s": "a bandwidth such as '40Mb/s'", "s": "a time such as '55us'", "B": "a size such as '32KiB'",
              "0/1": "true or false", "": "a number"}[parameter.unit]  # fmt: skip
    try:
        number = parse_number(parameter.unit, value)
    except ValueError:
        raise SpecError(path, value, example, f"{parameter.name}: {parameter.meaning}") from None
    if not parameter.least <= number <= parameter.most:
        unit = f" {parameter.unit}" if parameter.unit else ""
        raise SpecError(path, value, f"{parameter.least:g} to {parameter.most:g}{unit}", f"{parameter.name}: {parameter.meaning}")
    return number


def _marking(rows: tuple[Ecn, ...], marking: dict[str, object], path: str) -> Ecn:
    """One marking for all ports from the given thresholds; they come in pairs, since those of the preset depend on the rate."""
    if "kmin" not in marking or "kmax" not in marking:
        raise SpecError(path, ", ".join(marking), "kmin and kmax together, with or without pmax")
    from windtunnel.network.congestion_models import check_row  # here: pydantic, which a preset does not need

    return check_row({"pmax": rows[-1].pmax if rows else 1.0, **marking}, path)


def _read_stated(table: Mapping[str, Any], path: str) -> tuple[Any, str]:
    """A value and where it is from."""
    if "value" in table and table.keys() <= {"value", "source"} and type(table.get("source", "")) is str:
        return table["value"], table.get("source", "")
    from windtunnel.network.congestion_models import check_value  # here: pydantic, which a preset does not need

    return check_value(table, path)
