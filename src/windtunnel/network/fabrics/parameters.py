"""Parameters of a fabric builder as data: fields with a kind, a default, a range and a one-line explanation.

A builder is a frozen dataclass whose fields are made by the functions below and whose `build()` returns the graph. The command
line, the docs and the catalogue read the same fields.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from windtunnel.base.dataclasses import dataclass, field, fields
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.units import parse_bandwidth, parse_time
from windtunnel.engine.graph import Graph

MOST_NODES = 4_000_000
"""Limit of nodes: a larger graph is probably a typing error, and its columns would take gigabytes."""


@dataclass(frozen=True)
class ParameterKind:
    """How a parameter is read, and its allowed values."""

    read: Callable[[str], Any]
    allowed: str
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Builder(ABC):
    """Base of all builders: range checks, and reading from text."""

    NAME: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for f in fields(self):
            kind: ParameterKind = f.metadata["kind"]
            value = getattr(self, f.name)
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, (int, float)) and not isinstance(one, bool) and not kind.low <= one <= kind.high:
                    raise SpecError(f"{self.NAME}.{f.name}", value, kind.allowed)

    @classmethod
    def read(cls, values: Mapping[str, str]) -> Self:
        """The builder with the given parameters as text; UnknownName and SpecError name the parameter."""
        kinds = {f.name: f.metadata["kind"] for f in fields(cls)}
        found: dict[str, Any] = {}
        for key, text in values.items():
            if key not in kinds:
                raise UnknownName(f"{cls.NAME}", key, list(kinds))
            try:
                found[key] = kinds[key].read(text.strip())
            except (ValueError, OverflowError):
                raise SpecError(f"{cls.NAME}.{key}", text, kinds[key].allowed) from None
        return cls(**found)

    @classmethod
    def of_text(cls, text: str, path: str = "--fabric") -> Self:
        """The builder of `key=value,...`; SpecError at `path` for text of another form, and as `read`."""
        values: dict[str, str] = {}
        for part in text.split(",") if text.strip() else ():
            key, equals, value = part.partition("=")
            if not equals:
                known = ", ".join(f"{name}={default}" for name, default, _ in cls.parameters())
                raise SpecError(f"{path} {cls.NAME}", part, "key=value, with commas between", f"Parameters: {known}.")
            if key.strip() in values:
                raise SpecError(f"{path} {cls.NAME}", part, "each parameter once")
            values[key.strip()] = value
        return cls.read(values)

    @classmethod
    def parameters(cls) -> list[tuple[str, str, str]]:
        """(name, default as text, explanation) of each parameter, for help and docs."""
        return [(f.name, f.metadata["shown"], f.metadata["text"]) for f in fields(cls)]

    @abstractmethod
    def build(self) -> Graph:
        """The graph; SpecError for parameters that contradict each other."""

    def wrong(self, parameter: str, allowed: str, hint: str = "") -> SpecError:
        """The error for a parameter whose value contradicts the others."""
        return SpecError(f"{self.NAME}.{parameter}", getattr(self, parameter), allowed, hint)


def _field(kind: ParameterKind, default: str, text: str) -> Any:
    return field(default=kind.read(default), metadata={"kind": kind, "shown": default, "text": text})


def count(default: int, text: str, low: int = 1, high: int = 1_000_000) -> Any:
    """A whole number."""
    return _field(ParameterKind(int, f"a whole number from {low} to {high}", low, high), str(default), text)


def ratio(default: str, text: str, low: float = 1e-3, high: float = 1e3) -> Any:
    """A plain number."""
    return _field(ParameterKind(float, f"a number from {low:g} to {high:g}", low, high), default, text)


def rate(default: str, text: str) -> Any:
    """A bandwidth each way, in B/s."""
    return _field(ParameterKind(lambda t: parse_bandwidth(t, "link"), "a bandwidth such as 400Gb/s or 50GB/s", 1.0), default, text)


def time(default: str, text: str) -> Any:
    """A time, in seconds."""
    return _field(ParameterKind(parse_time, "a time such as 1us", 0.0, 1.0), default, text)


def flag(default: str, text: str) -> Any:
    """yes or no."""
    return _field(ParameterKind(lambda t: bool(("no", "yes").index(t.lower())), "yes or no"), default, text)


def word(default: str, text: str, allowed: tuple[str, ...] = ()) -> Any:
    """A name, one of `allowed` if those are given."""

    def read(given: str) -> str:
        if allowed and given not in allowed:
            raise ValueError(given)
        return given

    return _field(ParameterKind(read, ", ".join(allowed) if allowed else "a name"), default, text)


def sizes(default: str, text: str, low: int = 1, high: int = 65_536) -> Any:
    """Whole numbers with x between them, such as 4x4x2."""
    kind = ParameterKind(
        lambda t: tuple(int(part) for part in t.split("x")), f"sizes such as 4x4x2, each from {low} to {high}", low, high
    )
    return _field(kind, default, text)


def rates(default: str, text: str) -> Any:
    """Bandwidths with + between them; one stands for all dimensions."""
    kind = ParameterKind(
        lambda t: tuple(parse_bandwidth(part, "link") for part in t.split("+")), "bandwidths such as 300GB/s+50GB/s", 1.0
    )
    return _field(kind, default, text)


def times(default: str, text: str) -> Any:
    """Times with + between them; one stands for all dimensions."""
    kind = ParameterKind(lambda t: tuple(parse_time(part) for part in t.split("+")), "times such as 500ns+1us", 0.0, 1.0)
    return _field(kind, default, text)


def words(default: str, text: str, allowed: tuple[str, ...]) -> Any:
    """Names with + between them."""

    def read(given: str) -> tuple[str, ...]:
        parts = tuple(part.strip().lower() for part in given.split("+"))
        if any(part not in allowed for part in parts):
            raise ValueError(given)
        return parts

    return _field(ParameterKind(read, f"names of {', '.join(allowed)} with + between them"), default, text)


def per_dimension(values: tuple[float, ...], dimensions: int, path: str) -> tuple[float, ...]:
    """One value for each dimension; a single value stands for all."""
    if len(values) == 1:
        return values * dimensions
    if len(values) != dimensions:
        raise SpecError(path, values, f"one value, or one for each of the {dimensions} dimensions")
    return values
