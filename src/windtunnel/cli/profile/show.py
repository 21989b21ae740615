"""`windtunnel profile show FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.units import show_time
from windtunnel.cli.shared.common import Json, write_json
from windtunnel.records import Dataset, read_any
from windtunnel.records.contents import KEYS, contents_of

if TYPE_CHECKING:
    from rich.table import Table


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A dataset of `windtunnel profile`, Parquet or CSV.")],
    json: Json = None,
) -> None:
    data = read_any(file)
    if json is not None:
        write_json(contents_of(data), json)
    if json == "-":
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"{data.about.gpu}: {len(data):,} rows", style="bold"))
    for name, value in _describe_about(data).items():
        console.print(Text(f"{name} {value}", style="dim"))
    console.print(listing(data))


def listing(data: Dataset) -> Table:
    """The contents as a table for the terminal."""
    from windtunnel.draw.listing import listing as empty

    table = empty(*((name, "left") for name in KEYS), *((name, "right") for name in ("rows", "usable", "shortest", "longest")))
    for row in contents_of(data)["contents"]:
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
