"""Congestion control as users name it: an algorithm of the packet engine, its parameters, and the marking thresholds of switches.

    load_congestion("dcqcn")                                a preset of catalog/congestion
    load_congestion("dcqcn:rai=40Mb/s,g=0.004")             the same with other values
    load_congestion("my-nic.toml:kmin=200KB,kmax=800KB")    a file; `base` names a preset that it starts from

Parameters, with units and bounds, are those that the core's registry lists (`engine.control`); docs/congestion.md explains them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ValidationError, ValidationInfo, field_validator

from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.files import without_gz
from windtunnel.base.strict import Strict
from windtunnel.base.units import parse_bandwidth, parse_size, parse_time
from windtunnel.engine.control import Control, Parameter, controls
from windtunnel.spec.loading.catalog import ROOT
from windtunnel.spec.loading.explain import explain
from windtunnel.spec.loading.files import SUFFIXES, check_shape, read_table

FOLDER = ROOT / "congestion"
_MARKING = ("kmin", "kmax", "pmax")


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


def _parse_number(unit: str, value: object) -> float:
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


def _probability(value: object) -> float:
    number = _parse_number("", value)
    if not 0.0 <= number <= 1.0:
        raise ValueError
    return number


def _read(parse: Callable[[object], float], allowed: str) -> BeforeValidator:
    """A validator that reads a number with its unit; `allowed` is what its error says."""

    def parse_checked(value: object) -> float:
        try:
            return parse(value)
        except ValueError:
            raise ValueError(allowed) from None

    return BeforeValidator(parse_checked)


Threshold = Annotated[float, _read(parse_size, "a size such as '400KB'")]


class _MarkingRow(Strict):
    """One row of `ecn`: marking of ports of `rate`; left out: of all ports."""

    rate: Annotated[float, _read(lambda value: parse_bandwidth(value, "link"), "the port's rate, such as '400Gb/s'")] = 0.0
    kmin: Threshold
    kmax: Threshold
    pmax: Annotated[float, _read(_probability, "a probability, 0 to 1")]
    source: str = ""

    @property
    def ecn(self) -> Ecn:
        return Ecn(self.rate, self.kmin, self.kmax, self.pmax)

    @field_validator("kmax")
    @classmethod
    def _not_below_kmin(cls, kmax: float, info: ValidationInfo) -> float:
        kmin = info.data.get("kmin", 0.0)
        if kmax < kmin:
            raise ValueError(f"at least kmin, {kmin:g} B")
        return kmax


class _SourcedValue(Strict):
    value: Any
    source: str = ""


class _CongestionFile(Strict):
    """A preset or a user's file, after its chain of `base` is merged. Parameters are checked against the algorithm's."""

    id: str = ""
    algorithm: str = ""
    summary: str = ""
    source: str = ""
    parameters: dict[str, Any] = {}
    ecn: list[_MarkingRow] = []


Checked = TypeVar("Checked", bound=Strict)


def _check_table(kind: type[Checked], table: object, path: str) -> Checked:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise explain(error, kind, path) from error


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
    file = _check_table(_CongestionFile, _table(source, path, ()), path)
    if not file.algorithm:
        raise SpecError(f"{path}.algorithm", Nothing(), "the name of an algorithm: " + ", ".join(controls()))
    if file.algorithm not in controls():
        raise UnknownName(f"{path}.algorithm", file.algorithm, tuple(controls()))
    for number, row in enumerate(file.ecn):
        if "rate" not in row.model_fields_set and len(file.ecn) > 1:
            allowed = "the port's rate; only a single row may leave it out, and then holds for all"
            raise SpecError(f"{path}.ecn[{number}].rate", Nothing(), allowed)
    marking = {key: chosen.pop(key) for key in _MARKING if key in chosen}
    return _congestion(file, controls()[file.algorithm], chosen, marking, path)


def _congestion(
    file: _CongestionFile, control: Control, chosen: dict[str, object], marking: dict[str, object], path: str
) -> Congestion:
    known = {p.name: p for p in control.parameters}
    parameters = {p.name: p.default for p in control.parameters}
    sources: dict[str, str] = {}
    for name, value in {**file.parameters, **chosen}.items():
        if name not in known:
            raise UnknownName(f"{path}.{name}", name, (*known, *(_MARKING if file.ecn else ())))
        if isinstance(value, Mapping):
            stated = _check_table(_SourcedValue, value, f"{path}.parameters.{name}")
            sources[name], value = stated.source, stated.value
        if name in chosen:
            sources[name] = "given"
        parameters[name] = _value(known[name], value, f"{path}.{name}")
    rows = tuple(sorted((row.ecn for row in file.ecn), key=lambda row: row.rate))
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
        number = _parse_number(parameter.unit, value)
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
    return _check_table(_MarkingRow, {"pmax": rows[-1].pmax if rows else 1.0, **marking}, path).ecn
