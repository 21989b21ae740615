"""Facts about publications beyond their rows: the files of `catalog/publications/`, with conditions.

A fact states its conditions, the values that it sets, and its source. Conditions are on columns of the row and on properties
derived for its job (`FOUND_OUT`). This module evaluates them; it contains no publication.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError, field_validator

from windtunnel.base.errors import FileError
from windtunnel.base.files import CATALOG, table_beside
from windtunnel.base.quantities import Strict
from windtunnel.reality.rows.table import TrainingRow

FOLDER = CATALOG / "publications"

Value = StrictBool | StrictInt | StrictFloat | StrictStr
Context = Mapping[str, Any]

FOUND_OUT: dict[str, str] = table_beside(__file__)["found_out"]
NAMES = frozenset((*(field.name for field in fields(TrainingRow)), *FOUND_OUT))
"""Names that a condition may use: columns of a row, and derived properties of its job."""


class Test(Strict):
    """A condition on one value. Words are compared as text without case, dates ("2022-02") and versions ("25.07") in text order."""

    __test__ = False  # not one of pytest's

    known: bool | None = None
    has: str | None = None
    has_not: str | None = None
    any_of: tuple[Value, ...] | None = None
    none_of: tuple[Value, ...] | None = None
    lacks: tuple[str, ...] | None = None
    """At least one of these words is not in a list of words."""
    min: Value | None = None
    max: Value | None = None
    below: Value | None = None

    def holds(self, value: Any) -> bool:
        """Whether `value` meets every part; a missing value meets only `known = false` and `none_of`."""
        text = str(value or "").casefold()
        missing = value is None
        checks: tuple[tuple[bool, Callable[[], bool]], ...] = (
            (self.known is not None, lambda: self.known is not bool(missing or value == 0)),
            (self.has is not None, lambda: str(self.has).casefold() in text),
            (self.has_not is not None, lambda: str(self.has_not).casefold() not in text),
            (self.any_of is not None, lambda: value in (self.any_of or ())),
            (self.none_of is not None, lambda: value not in (self.none_of or ())),
            (self.lacks is not None, lambda: bool(set(self.lacks or ()) - set(text.split(";")))),
            (self.min is not None, lambda: not missing and value >= self.min),
            (self.max is not None, lambda: not missing and value <= self.max),
            (self.below is not None, lambda: not missing and value < self.below),
        )
        return all(check() for applies, check in checks if applies)


class When(Strict):
    """Conditions that all hold, by name."""

    conditions: dict[str, Value | Test] = {}

    @field_validator("conditions")
    @classmethod
    def _names(cls, conditions: dict[str, Value | Test]) -> dict[str, Value | Test]:
        if unknown := sorted(set(conditions) - NAMES):
            raise ValueError(f"unknown condition {', '.join(unknown)}; known: {', '.join(sorted(NAMES))}")
        return conditions

    def holds(self, context: Context) -> bool:
        """Whether every condition holds for the values known so far; a condition on an unknown value does not hold."""
        for name, wanted in self.conditions.items():
            if name not in context:
                return False
            value = context[name]
            if not (wanted.holds(value) if isinstance(wanted, Test) else value == wanted):
                return False
        return True


def _as_when(table: Any) -> Any:
    return {"conditions": table} if isinstance(table, dict) and "conditions" not in table else table


class Software(Strict):
    """A framework of the catalogue, and a version of it; None: that of the date."""

    framework: str
    version: str | None = None


class Adapters(Strict):
    """Low-rank adapters that a row trains: fields of `spec.model.Lora`; `all_to_all_of` names the frameworks that exchange so."""

    rank: int
    targets: tuple[str, ...]
    dropout: bool = False
    separate: bool = False
    base: Literal["none", "nf4", "int8"] = "none"
    double_quant: bool = False
    scales_sharded: bool = False
    all_to_all_of: tuple[str, ...] = ()


class FrameworkHabits(Strict):
    """Behaviour of a framework or recipe that rows do not state; None if a fact does not state it either."""

    interleaves: bool | None = None  # it has the interleaved schedule; others run 1F1B
    prints_virtual_stages: bool | None = None  # its tables print them wherever there are some
    layer_per_virtual_stage: bool | None = None  # first and last hold the embedding and the head alone
    schedule: str | None = None
    accumulates: bool | None = None  # false: one micro batch a step and rank unless asked for more
    fills_stages: bool | None = None  # uneven layers: every stage up to the largest share, the rest on the last
    shares_work: bool | None = None  # layers per stage by work, with the head's in it
    sequence_parallel: bool | None = None
    sharding: str | None = None
    shards_in_domain: bool | None = None  # fully sharded inside a scale-up domain, replicated between domains
    selective: Literal["ops"] | None = None  # "ops": selective recompute chooses by operator, not Megatron's attention core
    recompute_modules: tuple[str, ...] | None = None
    offloads: bool | None = None  # activations leave for the host before layers are recomputed
    offloads_inputs: bool | None = None  # what full recompute keeps leaves for the host
    state_on_host: Literal["moments", "all"] | None = None  # the optimizer's state, or weights and gradients too


class Fact(Strict):
    """One statement: values for rows for which `when` holds, and its source."""

    when: When = When()
    row: dict[str, Value] = {}  # columns that the row leaves blank
    corrects: dict[str, Value] = {}  # columns that the row prints otherwise
    model: dict[str, Any] = {}  # fields of Model
    window_of_seq: float | None = None  # attention window as a share of the sequence
    software: Software | None = None
    runtime: dict[str, Any] = {}  # fields of Runtime
    habits: FrameworkHabits = FrameworkHabits()
    lora: Adapters | None = None
    flops: Literal["narayanan", "palm"] | None = None  # how the source counts the FLOPs of its MFU
    assumed: str = ""  # listed as an assumption of every row that it changes
    source: Annotated[str, Field(min_length=6)]

    @field_validator("when", mode="before")
    @classmethod
    def _expand_when(cls, table: Any) -> Any:
        return _as_when(table)

    @field_validator("row", "corrects")
    @classmethod
    def _columns(cls, table: dict[str, Value]) -> dict[str, Value]:
        if unknown := sorted(set(table) - {field.name for field in fields(TrainingRow)}):
            raise ValueError(f"unknown column {', '.join(unknown)}")
        return table


class Miss(Strict):
    """Rows with larger errors than the others, and the known reason. It changes no figure."""

    family: str  # must be among the scores
    title: str
    text: str


class BarEntry(Strict):
    """Rows by any of `rows`, their quantity, and the most that mean and median |error| may be, in percent."""

    name: str
    quantity: Literal["step_time_s", "memory_gib", "mfu_pct"]
    rows: tuple[When, ...]
    mean: float | None = None
    median: float | None = None
    share: float = 0.0
    order: int = 100  # place on the accuracy page

    @field_validator("rows", mode="before")
    @classmethod
    def _expand_rows(cls, tables: Any) -> Any:
        return [_as_when(table) for table in tables] if isinstance(tables, list) else tables


class Peer(Strict):
    """Another system's error on rows that are scored here too."""

    data: str
    system: str
    error: str
    how: str


class Aside(Strict):
    """Rows whose times say nothing of their plan, which `choices` leaves out. Conditions see the row alone."""

    when: When
    why: Annotated[str, Field(min_length=6)]

    @field_validator("when", mode="before")
    @classmethod
    def _expand_when(cls, table: Any) -> Any:
        return _as_when(table)


class Publication(Strict):
    """One file. `rows`: conditions that all of its facts share."""

    title: str
    source: Annotated[str, Field(min_length=6)]
    rows: When = When()
    facts: tuple[Fact, ...] = ()
    misses: tuple[Miss, ...] = ()
    bars: tuple[BarEntry, ...] = ()
    peers: tuple[Peer, ...] = ()
    aside: tuple[Aside, ...] = ()
    spellings: dict[str, tuple[str, ...]] = {}  # catalogue framework -> other names that tables use for it
    releases: dict[str, tuple[tuple[str, str, str], ...]] = {}  # framework -> (since date, catalogue entry, version), oldest first
    dated: dict[str, str] = {}  # frameworks whose versions are dates -> their form
    numbered: tuple[str, ...] = ()  # entries whose version numbers tables print beside the name
    prints_memory: dict[str, Literal["allocated", "reserved", "device"]] = {}  # framework -> kind of memory that its logs print
    spans: dict[str, tuple[str, str]] = {}  # name in tables -> first and last month of what it stands for
    documents: dict[str, str] = {}  # text of a citation -> month of its figures
    architectures: dict[str, dict[str, Any]] = {}  # fields of Model by a table's `arch`

    @field_validator("rows", mode="before")
    @classmethod
    def _expand_rows(cls, table: Any) -> Any:
        return _as_when(table)


def read_publication(path: Path) -> Publication:
    """One file; FileError where it is not such a file."""
    try:
        return Publication.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(str(path), str(error), "a readable TOML file") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise FileError(f"{path}: {'.'.join(map(str, first['loc']))}", first["msg"], "a file of catalog/publications") from None


@lru_cache(maxsize=1)
def publications() -> Mapping[str, Publication]:
    """Every file of the catalogue by its name, in the order of names."""
    return {path.stem: read_publication(path) for path in sorted(FOLDER.glob("*.toml"))}


def facts_for(context: Context) -> Iterator[Fact]:
    """The facts that hold, in the order of files and within them; a later one overrides an earlier one."""
    for publication in publications().values():
        if publication.rows.holds(context):
            yield from (fact for fact in publication.facts if fact.when.holds(context))


def aside(row: TrainingRow) -> str:
    """Why the row's time says nothing of its plan; empty where no publication says so."""
    context = columns_of(row)
    told = (each for publication in publications().values() if publication.rows.holds(context) for each in publication.aside)
    return next((each.why for each in told if each.when.holds(context)), "")


def habits_for(context: Context) -> dict[str, Any]:
    """The habits that hold, by name of `FrameworkHabits`."""
    habits: dict[str, Any] = {}
    for fact in facts_for(context):
        habits |= {name: value for name, value in fact.habits if value is not None}
    return habits


def spellings() -> dict[str, tuple[str, ...]]:
    """Catalogue entry, or key of `releases`: other names that tables use for it, or for what descends from it."""
    return {name: others for each in publications().values() for name, others in each.spellings.items()}


def releases() -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Frameworks whose catalogue entry changes over time: (since year-month, entry, version), oldest first."""
    return {name: rows for each in publications().values() for name, rows in each.releases.items()}


def dated_versions() -> dict[str, str]:
    """Frameworks whose versions are dates: how a year and month are written."""
    return {name: form for each in publications().values() for name, form in each.dated.items()}


def numbered_entries() -> frozenset[str]:
    """Catalogue entries whose own version numbers tables print beside the framework's name."""
    return frozenset(name for each in publications().values() for name in each.numbered)


def prints_memory() -> dict[str, str]:
    """Framework: kind of memory that its logs print; "" for any other."""
    return {name: kind for each in publications().values() for name, kind in each.prints_memory.items()}


def spans() -> dict[str, tuple[str, str]]:
    """Name of a framework as tables print it: first and last month ("2024-07") of what it stands for."""
    return {name: span for each in publications().values() for name, span in each.spans.items()}


def documents() -> dict[str, str]:
    """Text of a citation: month ("2024-07") in which the cited file's figures were committed."""
    return {text: month for each in publications().values() for text, month in each.documents.items()}


def architectures() -> dict[str, dict[str, Any]]:
    """Fields of Model that follow from a table's `arch`."""
    return {name: facts for each in publications().values() for name, facts in each.architectures.items()}


def columns_of(row: TrainingRow) -> dict[str, Any]:
    """The row's columns as the beginning of a context."""
    return dict(vars(row))
