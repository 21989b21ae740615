"""Published goodput of whole runs against ours: catalog/measurements/goodput.toml.

Sources print few of their inputs. What they print is taken as printed; an input that they leave out has an assumed value and a
range, stated in the row, and nothing is fitted. A row says where our figure lies with the assumed values, and between which
figures it lies over all corners of the ranges.
"""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.quantities import Seconds, Strict
from windtunnel.base.units import parse_time
from windtunnel.goodput.closed import rates_of, steady
from windtunnel.goodput.conditions import DAY, Conditions
from windtunnel.goodput.run import stated_conditions
from windtunnel.goodput.simulate import simulate
from windtunnel.reality.rows.measurements import FOLDER
from windtunnel.spec.loading.resolve import merge, resolve
from windtunnel.spec.reliability import Reliability

FILE = FOLDER / "goodput.toml"
REPLICAS, SEED = 400, 1
NAMES = {"ettr_pct": "ETTR, %", "mtbf_h": "hours between failures", "wall_min": "minutes of the run", "failures": "failures"}
Verdict = Literal["inside", "possible", "outside"]


class Unstated(Strict):
    """An input that the source does not print: a dotted field of `Reliability`, or `step`, and its range."""

    field: str
    low: float | str
    high: float | str
    why: str = ""


class GoodputRow(Strict):
    """A published figure with its own uncertainty, and what is known of its run. `by_construction`: the inputs are the figure
    itself."""

    id: str
    run: str
    quantity: Literal["ettr_pct", "mtbf_h", "wall_min", "failures"]
    published: tuple[float, float]
    nodes: int = Field(ge=1)
    step: Seconds
    facts: str | dict[str, Any]
    steps: int = Field(default=0, ge=0)
    days: float = Field(default=0.0, ge=0)
    by_construction: bool = False
    unstated: tuple[Unstated, ...] = ()
    source: Annotated[str, Field(min_length=6)]


class _File(Strict):
    rows: tuple[GoodputRow, ...]


@dataclass(frozen=True)
class GoodputScore:
    """A row and our figure: `predicted` with the assumed inputs, and its `range` over those that the source does not print.

    `verdict`: inside: our figure lies in the published one's own uncertainty; possible: only some of its range does; outside:
    none.
    """

    id: str
    run: str
    quantity: str
    published: tuple[float, float]
    predicted: float
    range: tuple[float, float]
    verdict: Verdict
    unstated: tuple[str, ...]
    by_construction: bool
    source: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the fields' names."""
        return asdict(self)


def goodput_rows(path: Path = FILE) -> tuple[GoodputRow, ...]:
    """The rows of a file; FileError where it is not such a file."""
    try:
        return _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).rows
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(str(path), str(error), "a readable TOML file") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise FileError(f"{path}: {'.'.join(map(str, first['loc']))}", first["msg"], "published runs with their inputs") from None


def goodput_scores(path: Path = FILE) -> tuple[GoodputScore, ...]:
    """Every row of the file with our figure."""
    return tuple(score(row) for row in goodput_rows(path))


def score(row: GoodputRow) -> GoodputScore:
    """Our figure for a row, at the assumed inputs and at every corner of the ranges of those that the source leaves out."""
    predicted = figure(row, {})
    corners = [predicted]
    for ends in itertools.product(*((one.low, one.high) for one in row.unstated)):
        corners.append(figure(row, {one.field: end for one, end in zip(row.unstated, ends, strict=True)}))
    low, high = row.published
    least, most = min(corners), max(corners)
    verdict: Verdict = "inside" if low <= predicted <= high else "possible" if least <= high and most >= low else "outside"
    told = tuple(f"{one.field} {one.low} to {one.high}{f' ({one.why})' if one.why else ''}" for one in row.unstated)
    return GoodputScore(
        row.id, row.run, row.quantity, row.published, predicted, (least, most), verdict, told, row.by_construction, row.source
    )


def figure(row: GoodputRow, changed: dict[str, float | str]) -> float:
    """The row's quantity with some inputs changed."""
    run, step = _conditions(row, changed)
    if row.quantity == "mtbf_h":
        return 1.0 / rates_of(run).loses / 3600.0
    answer = steady(run)
    if row.quantity == "ettr_pct":
        return 100.0 * answer.ettr
    if row.quantity == "failures":
        return sum(answer.failures.values()) * row.days * DAY
    work = row.steps * step
    return simulate(run, answer.interval, work, 100.0 * work, REPLICAS, SEED).days.p50 * DAY / 60.0


def _conditions(row: GoodputRow, changed: dict[str, float | str]) -> tuple[Conditions, float]:
    table = {"base": row.facts} if isinstance(row.facts, str) else row.facts
    for field, value in changed.items():
        nested: Any = value
        for part in reversed(field.split(".")):
            nested = {part: nested}
        if field != "step":
            table = merge(table, nested)
    step = parse_time(changed["step"]) if "step" in changed else float(row.step)
    resolved = resolve("reliability", table, row.id)
    try:
        return stated_conditions(Reliability.model_validate(resolved), row.nodes, step), step
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(f"{row.id}: {'.'.join(map(str, first['loc']))}", first["input"], first["msg"]) from None
