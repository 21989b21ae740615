"""`windtunnel catalog`: what comes with windtunnel, and entries of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli.shared.common import writable, write
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.jobs.options import CatalogAddCommandOptions, CatalogOptions
from windtunnel.spec import names
from windtunnel.spec.loading.files import KINDS, entry


def show(asked: CatalogOptions, outputs: Outputs) -> None:
    from windtunnel.jobs import catalog_sheet as shown

    kind, name = asked.kind, asked.name
    if kind is None:
        listed = {known: list(names(known)) for known in KINDS}
        return outputs.show(shown.kinds_sheet(listed), listed)
    if kind in ("format", "formats"):
        from windtunnel.formats.importers import describe_importers

        readers = describe_importers(name)
        return outputs.show(shown.formats_sheet(readers), {"formats": readers})
    kind = kind if kind in KINDS else f"{kind}s"
    if kind not in KINDS:
        raise UnknownName("catalog kind", kind.removesuffix("s"), KINDS)
    if name is None:
        return outputs.show(lambda: shown.entries_sheet(kind, names(kind)), {"names": list(names(kind))})
    full = _full_name(kind, name)
    table = entry(kind, full, kind)
    outputs.show(shown.entry_sheet(full, table), table)


def _full_name(kind: str, name: str) -> str:
    """The name of an entry from its beginning, if only one begins so; SpecError with the close ones if several do."""
    known = names(kind)
    squashed = {other: other.lower().replace("-", "").replace("_", "") for other in known}
    typed = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    if name in known or not typed:
        return name
    begin = [other for other, text in squashed.items() if text == typed] or [
        o for o, text in squashed.items() if text.startswith(typed)
    ]
    begin = begin or [other for other, text in squashed.items() if typed in text]
    if len(begin) > 1:
        raise SpecError(kind, name, "one entry", f"Did you mean {', '.join(map(repr, begin[:8]))}?")
    return begin[0] if begin else name


def add(asked: CatalogAddCommandOptions) -> None:
    from windtunnel.jobs.entries import make_entry

    entry = make_entry(asked, sys.stdin.read)
    target = asked.out or entry.file
    writable(("--out", target))
    write(entry.text, target, "--out")
    if target == "-":
        return
    lines = [f"{entry.kind} {entry.name} -> {Path(target)}", *(f"assumed: {line}" for line in entry.assumed)]
    sys.stdout.write("\n".join([*lines, f"next: {entry.next_command(target)}"]) + "\n")
