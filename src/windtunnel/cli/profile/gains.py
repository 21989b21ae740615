"""`windtunnel profile gains FILE`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.base.units import show_time
from windtunnel.cli.shared.common import Json, notes, write_json
from windtunnel.profile.gains import Gain, gains
from windtunnel.records import read


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A Parquet file of `windtunnel profile`.")],
    json: Json = None,
) -> None:
    data = read(file)
    pairs = gains(data)
    if json is not None:
        write_json({"gpu": data.about.gpu, "gains": [one.as_dict() for one in pairs]}, json)
    if json == "-":
        return
    if not pairs:
        notes().print(f"{file} holds no shape measured both in eager mode and in another one.", markup=False, soft_wrap=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("model", "what", "phase", "dtype", "mode"):
        table.add_column(name)
    for name in ("eager", "this mode", "gain"):
        table.add_column(name, justify="right")
    for one in pairs:
        table.add_row(
            one.what.get("model", ""),
            _what(one),
            one.what["phase"],
            one.what["dtype"],
            one.mode,
            show_time(one.eager),
            show_time(one.seconds),
            f"{one.gain:.2f}",
        )
    console = Console()
    console.print(f"{data.about.gpu}: eager time over the mode's", highlight=False)
    console.print(table)


def _what(one: Gain) -> str:
    """`layer x4 by hf`, or a kernel with its sizes."""
    words = dict(word.split("=") for word in str(one.what.get("shape", "")).split())
    layers = f" x{words['layers']}" if "layers" in words else " (each)" if one.what["op"] == "layer" else ""
    sizes = " x ".join(str(one.what[name]) for name in ("m", "n", "k") if name in one.what)
    library = one.what.get("library")
    name = one.what["op"] if one.what["level"] != "kernel" else one.what["name"]
    return f"{name}{layers}{f' {sizes}' if sizes else ''}{f' by {library}' if library else ''}"
