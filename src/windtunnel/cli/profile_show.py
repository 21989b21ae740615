"""`windtunnel profile show FILE`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from windtunnel.base.units import show_time
from windtunnel.cli.common import Json, write_json
from windtunnel.records import Dataset, read


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A Parquet file of `windtunnel profile`.")],
    json: Json = None,
) -> None:
    data = read(file)
    answer = summary(data)
    if json is not None:
        write_json(answer, json)
    if json == "-":
        return
    from rich.console import Console
    from rich.table import Table

    about = data.about
    console = Console()
    console.print(f"{about.gpu}{f', {about.device}' if about.device else ''}: {len(data):,} rows · {about.source}", highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("level", "op", "phase", "dtype", "mode"):
        table.add_column(name)
    for name in ("rows", "usable", "shortest", "longest"):
        table.add_column(name, justify="right")
    for row in answer["contents"]:
        table.add_row(*(row[name] for name in ("level", "op", "phase", "dtype", "mode")), f"{row['rows']:,}", f"{row['usable']:,}",
                      *("" if row[name] is None else show_time(row[name]) for name in ("shortest_s", "longest_s")))
    console.print(table)


def summary(data: Dataset) -> dict[str, Any]:
    """What is in a dataset: `about`, and `contents` by level, op, phase, dtype and mode."""
    from dataclasses import asdict

    keys = ("level", "op", "phase", "dtype", "mode")
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in data.rows():
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    contents = []
    for key, rows in sorted(groups.items()):
        times = [row["seconds"] for row in rows if row["status"] == "ok"]
        contents.append({**dict(zip(keys, key, strict=True)), "rows": len(rows), "usable": len(times),
                         "shortest_s": min(times, default=None), "longest_s": max(times, default=None)})
    return {"about": asdict(data.about), "rows": len(data), "contents": contents}
