"""Published rows as the page shows them: scores of `validate` with what their tables state of GPU, model, framework, precision."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

from windtunnel.base.dataclasses import dataclass, fields
from windtunnel.base.errors import WindtunnelError
from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.table import TrainingRow, parse, read_text
from windtunnel.reality.score.commands import load_row

FILTERS = ("family", "gpu", "model", "framework", "precision")
"""What rows are chosen by; each is a field of `PublishedRow`."""
NEAR, FAR = 10.0, 20.0
"""Percent: the two bands around equality."""
Facts = Mapping[str, Mapping[str, str]]
"""Id of a row -> what its table states."""
_ARCHITECTURES = {"moe": "mixture", "hybrid": "hybrid"}
_LAYER_OF = re.compile(r" of a layer of (\S+)(.*)")
_MACHINE = re.compile(r"(\S+) on \d+ (\S+): tp ")
_PLAN = re.compile(r": tp (\d+) pp (\d+) vpp (\d+) dp (\d+) mbs (\d+) gbs \d+ seq \d+ (\S+)")


@dataclass(frozen=True)
class PublishedRow:
    """A measured quantity beside its prediction. `measured`, `predicted`: in the unit of the quantity; `error`: percent, signed;
    `claimed`: percent, what the prediction states of itself, where it does; `fitted`: no test of foresight."""

    id: str
    family: str
    quantity: str
    measured: float
    predicted: float
    error: float
    claimed: float | None
    fitted: bool
    job: str
    gpu: str
    model: str
    framework: str
    precision: str


def scored_rows(report: Mapping[str, Any], facts: Facts) -> list[PublishedRow]:
    """The rows of `validate --json` that have a prediction; `facts`: of the tables that were scored."""
    found = []
    for row in report.get("rows", ()):
        if row.get("predicted") is None or row.get("error_pct") is None:
            continue
        of = facts.get(row["id"], {})
        if "command" in of and (said := _MACHINE.match(row.get("job") or "")):
            of = {"model": said[1], "gpu": said[2], **of}
        found.append(PublishedRow(
            row["id"], row["family"], row["quantity"], row["measured"], row["predicted"], row["error_pct"], row.get("claimed_pct"),
            bool(row.get("fitted")), row.get("job") or "", of.get("gpu") or "", model_family(of), of.get("framework") or "",
            of.get("precision") or of.get("dtype") or "",
        ))  # fmt: skip
    return found


def model_family(facts: Mapping[str, str]) -> str:
    """The family of a row's model: the letters that its name begins with, and its architecture where that is another one."""
    name = re.sub(r"^(\w+?)[-_ ]?v?\d.*", r"\1", facts.get("model") or "").split("-")[0].split("_")[0].strip().lower()
    kind = _ARCHITECTURES.get((facts.get("arch") or "").lower(), "")
    return f"{name} ({kind})" if name and kind else name


def facts_of_text(text: str) -> dict[str, dict[str, str]]:
    """What a table in CSV states, by the id of its rows; nothing for a table without ids."""
    try:
        return {row["id"]: {key: value or "" for key, value in row.items() if key} for row in csv.DictReader(io.StringIO(text))}
    except (KeyError, csv.Error):
        return {}


@cache
def published_facts() -> Facts:
    """The same of all tables of the catalogue."""
    found: dict[str, dict[str, str]] = {}
    for path in (*measurements.tables(), *measurements.OTHERS):
        found |= facts_of_text(read_text(path))
    return found


def published_families() -> list[str]:
    """Names of the families of all tables of the catalogue."""
    return sorted({row["family"] for row in published_facts().values() if row.get("family")})


@cache
def _training_rows() -> dict[str, TrainingRow]:
    tables = (parse(read_text(path), path.name) for path in measurements.tables())
    return {row.id: row for table in tables for row in table.training}


def job_of_row(row: PublishedRow) -> tuple[str | dict[str, Any], dict[str, str]] | None:
    """The job of a published row, to be opened: a table or a name of the catalogue, and changes of it. None for a row that is none
    of a job, such as a collective."""
    if layer := _LAYER_OF.search(row.job):
        changes = (word.partition("=") for word in layer[2].split() if "=" in word)
        return layer[1], {name: value for name, _, value in changes}
    stated = published_facts().get(row.id, {})
    known = _training_rows().get(row.id)
    try:
        if "command" in stated:
            return load_row(stated).job.model_dump(mode="json", exclude_defaults=True), {}
        if known is None:
            return None
        drafted = draft(known)
    except WindtunnelError:
        return None
    if not isinstance(drafted, Draft):
        return None
    plan = _PLAN.search(row.job)
    wanted = None if plan is None else (*(int(plan[at]) for at in (1, 2, 3, 5)), plan[6])
    same = (job for job in drafted.jobs if _plan_of(job) == wanted)
    return next(same, drafted.jobs[0]).model_dump(mode="json", exclude_defaults=True), {}


def _plan_of(job: Any) -> tuple[object, ...]:
    plan = job.plan
    return (plan.tp, plan.pp, plan.vpp, plan.micro_batch, str(plan.recompute))


def chosen_rows(rows: Iterable[PublishedRow], wanted: Mapping[str, str], quantity: str) -> list[PublishedRow]:
    """Rows of a quantity whose fields have the wanted values; an empty value wants any."""
    asked = {name: value for name, value in wanted.items() if value}
    return [row for row in rows if row.quantity == quantity and all(getattr(row, name) == value for name, value in asked.items())]


def values_of(rows: Iterable[PublishedRow], name: str) -> list[str]:
    """Values of a field, those of most rows first."""
    if name not in {field.name for field in fields(PublishedRow)}:
        raise KeyError(name)
    counts: dict[str, int] = {}
    for row in rows:
        if value := str(getattr(row, name)):
            counts[value] = counts.get(value, 0) + 1
    return sorted(counts, key=lambda value: (-counts[value], value))


@dataclass(frozen=True)
class RowErrors:
    """Errors of rows. `typical`: median of |error|; `bias`: mean error; `most`: the largest |error|; all in percent. `near` and
    `far`: shares of the rows within 10 and 20 %."""

    count: int
    typical: float
    bias: float
    most: float
    near: float
    far: float


def accuracy_of(rows: Sequence[PublishedRow]) -> RowErrors | None:
    """The errors of rows together; None for no rows."""
    if not rows:
        return None
    sizes = [abs(row.error) for row in rows]
    count = len(rows)
    return RowErrors(
        count, median(sizes), sum(row.error for row in rows) / count, max(sizes), sum(size <= NEAR for size in sizes) / count,
        sum(size <= FAR for size in sizes) / count,
    )  # fmt: skip


@dataclass(frozen=True)
class SupportCell:
    """A cell of the support matrix: rows of one GPU, model family, framework and precision."""

    gpu: str
    model: str
    framework: str
    precision: str
    accuracy: RowErrors


def support_cells(rows: Iterable[PublishedRow]) -> list[SupportCell]:
    """Every combination of GPU, model family, framework and precision that has rows."""
    groups: dict[tuple[str, str, str, str], list[PublishedRow]] = {}
    for row in rows:
        if row.gpu and row.model:
            groups.setdefault((row.gpu, row.model, row.framework, row.precision), []).append(row)
    cells = []
    for key, members in sorted(groups.items()):
        found = accuracy_of(members)
        if found is not None:
            cells.append(SupportCell(*key, found))
    return cells
