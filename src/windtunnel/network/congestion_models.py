"""The models of tables of congestion control: what may stand in them, and what is said where it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ValidationError, ValidationInfo, field_validator

from windtunnel.base.quantities import Strict
from windtunnel.base.units import parse_bandwidth, parse_size
from windtunnel.network.marking import Ecn, parse_probability
from windtunnel.spec.loading.explain import explain


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
    pmax: Annotated[float, _read(parse_probability, "a probability, 0 to 1")]
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


def check_table(table: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The fields of a `CongestionTable`. SpecError at `path` for what is wrong with the table."""
    file = _check(_CongestionFile, table, path)
    unrated = tuple(number for number, row in enumerate(file.ecn) if "rate" not in row.model_fields_set)
    ecn = tuple(row.ecn for row in file.ecn)
    texts = {"id": file.id, "algorithm": file.algorithm, "source": file.source}
    return {**texts, "parameters": file.parameters, "ecn": ecn, "unrated": unrated}


def check_row(table: Mapping[str, Any], path: str) -> Ecn:
    """A row of marking. SpecError at `path` for what is wrong with it."""
    return _check(_MarkingRow, table, path).ecn


def check_value(table: Mapping[str, Any], path: str) -> tuple[Any, str]:
    """A value and where it is from. SpecError at `path` for what is wrong with the table."""
    stated = _check(_SourcedValue, table, path)
    return stated.value, stated.source


def _check(kind: type[Checked], table: Mapping[str, Any], path: str) -> Checked:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise explain(error, kind, path) from error
