"""`windtunnel profile show FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from windtunnel.base.units import show_time
from windtunnel.cli.shared.common import Json, write_json
from windtunnel.records import Dataset, read_any

if TYPE_CHECKING:
    from rich.table import Table

KEYS = ("level", "op", "phase", "dtype", "mode")


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A dataset of `windtunnel profile`, Parquet or CSV.")],
    json: Json = None,
) -> None:
    data = read_any(file)
    if json is not None:
        write_json(summary(data), json)
    if json == "-":
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"{data.about.gpu}: {len(data):,} rows", style="bold"))
    for name, value in _describe_about(data).items():
        console.print(Text(f"{name} {value}", style="dim"))
    console.print(listing(data))


def summary(data: Dataset) -> dict[str, Any]:
    """What is in a dataset: `about`, and `contents` by level, op, phase, dtype and mode."""
    from dataclasses import asdict

    groups: dict[tuple[str, ...], list[tuple[str, float | None]]] = {}
    names = (*KEYS, "status", "seconds")
    for *key, status, seconds in zip(*(data.table[name].to_pylist() for name in names), strict=True):
        groups.setdefault(tuple(key), []).append((status, seconds))
    contents = []
    for group, rows in sorted(groups.items()):
        times = [seconds for status, seconds in rows if status == "ok" and seconds is not None]
        contents.append(
            {
                **dict(zip(KEYS, group, strict=True)),
                "rows": len(rows),
                "usable": len(times),
                "shortest_s": min(times, default=None),
                "longest_s": max(times, default=None),
            }
        )
    return {"about": asdict(data.about), "rows": len(data), "contents": contents}


def listing(data: Dataset) -> Table:
    """The contents as a table for the terminal."""
    from windtunnel.report.text.table import listing as empty

    table = empty(*((name, "left") for name in KEYS), *((name, "right") for name in ("rows", "usable", "shortest", "longest")))
    for row in summary(data)["contents"]:
        times = ("" if row[name] is None else show_time(row[name]) for name in ("shortest_s", "longest_s"))
        table.add_row(*(row[name] for name in KEYS), f"{row['rows']:,}", f"{row['usable']:,}", *times)
    return table


def _describe_about(data: Dataset) -> dict[str, str]:
    """The non-empty fields of `about`, in words."""
    about = data.about
    pairs = {
        name: " ".join(f"{key}={value}" for key, value in sorted(getattr(about, name).items()))
        for name in ("libraries", "settings", "datasheet")
    }
    words = {name: getattr(about, name) for name in ("device", "architecture", "driver", "source", "licence", "notes")}
    return {name: text for name, text in {**words, **pairs}.items() if text}
