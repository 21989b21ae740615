"""`windtunnel fleet checkpoints ls FOLDER`: the steps in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from windtunnel.cli.shared.common import Json, writable, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.fleet.checkpoint.folder import FoundStep

EXAMPLES = """\b
Examples:
  windtunnel fleet checkpoints ls checkpoints
  windtunnel fleet checkpoints ls checkpoints --json -
  windtunnel fleet checkpoints ls s3://bucket/run
"""


def command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder or a URL that a Checkpointer saves into.")],
    json: Json = None,
) -> None:
    from windtunnel.fleet.checkpoint.stores.local_folder import storage_at

    writable(("--json", json))
    show_steps(storage_at(folder).steps(), json)


def show_steps(found: Sequence[FoundStep], json: str | None) -> None:
    """The table of steps, or the same as JSON."""
    from rich.console import Console

    if json is not None:
        write_json({"steps": [_as_dict(one) for one in found]}, json)
    if json != "-":
        _table(found, Console())


def _as_dict(one: FoundStep) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "step": one.step, "name": one.path.name, "state": one.state, "why": list(one.why), "bytes": manifest and manifest.bytes,
        "world": manifest and manifest.world, "written": manifest and manifest.written, "attempt": manifest and manifest.attempt,
    }  # fmt: skip


def _table(found: Sequence[FoundStep], console: Any) -> None:
    import time

    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("step", "age", "size", "world", "state"):
        table.add_column(name, justify="right" if name != "state" else "left")
    for one in found:
        manifest, why = one.manifest, "; ".join(one.why)
        age, size, world = ("", "", "")
        if manifest is not None:
            age, size, world = _age(time.time() - manifest.written), f"{manifest.bytes / 2**20:.1f} MiB", str(manifest.world)
        table.add_row(str(one.step), age, size, world, Text(f"{one.state}: {why}" if why else one.state))
    console.print(table if found else "No step: windtunnel.fleet.checkpoint has saved nothing to this folder.", soft_wrap=True)


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
