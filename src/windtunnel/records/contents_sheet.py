"""What a dataset of measured kernels shows: what it was measured on, and what it has."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.records.kernel_dataset import KEYS, Dataset, contents_of
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote


def dataset_sheet(data: Dataset) -> Sheet:
    """What `profile show` shows."""
    headline = Sentence("{gpu}: {count} rows", gpu=data.about.gpu, count=f"{len(data):,}")
    about = tuple(quote(f"{name} {value}") for name, value in _describe_about(data).items())
    table = contents_table(data)
    usable = sum(int(row[len(KEYS) + 1].value or 0) for row in table.rows)
    return Sheet(
        Sentence("Measured kernels of {gpu}", gpu=data.about.gpu), headline,
        (
            Figure("rows", "rows", len(data), "", None, f"{len(data):,}"),
            Figure("contents.usable", "usable", usable, "", None, f"{usable:,}"),
        ),
        (
            Section("", (Lines(about, mood="soft", brief=True),) if about else ()),
            Section("", (replace(table, brief=True),)),
            Section("What it was measured on", (Lines(about, detail=True),) if about else ()),
            Section("What it has", (replace(table, filtered=True, detail=True),)),
        ),
        titled=True,
    )  # fmt: skip


def contents_table(data: Dataset) -> Table:
    """What it has, by level, op, phase, dtype and mode."""
    rows = []
    for row in contents_of(data)["contents"]:
        times = (Cell("") if row[name] is None else Cell(say.seconds(row[name]), row[name]) for name in ("shortest_s", "longest_s"))
        counts = (Cell(f"{row[name]:,}", float(row[name])) for name in ("rows", "usable"))
        rows.append((*(Cell(str(row[name])) for name in KEYS), *counts, *times))
    columns = (*map(Column, KEYS), *(Column(head, True) for head in ("rows", "usable", "shortest", "longest")))
    return Table("contents", columns, tuple(rows))


def _describe_about(data: Dataset) -> dict[str, str]:
    """The non-empty fields of `about`, in words."""
    about = data.about
    pairs = {
        name: " ".join(f"{key}={value}" for key, value in sorted(getattr(about, name).items()))
        for name in ("libraries", "settings", "datasheet")
    }
    words = {name: getattr(about, name) for name in ("device", "architecture", "driver", "source", "licence", "notes")}
    return {name: text for name, text in {**words, **pairs}.items() if text}
