"""ASTRA-sim 1's networks of the Garnet backend: lines of `num-npus: 8`, `topology: NV_Switch`, `package-link-width: 256`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading

_LINE = re.compile(r"([a-z][a-z-]{1,60})\s*:\s*(\S{1,60})")


def recognises(head: Head) -> bool:
    """The keys that every one of these files has."""
    return {"num-npus", "num-packages", "topology"} <= set(_settings(head.text))


def read(files: Sequence[Path], context: Context) -> Reading:
    """The settings of the first file; Garnet's routers and flits are not modelled."""
    path, *more = files
    table = _settings(read_text(path, MIB, "a Garnet network of ASTRA-sim 1"))
    if "num-npus" not in table:
        raise FileError(str(path), "no num-npus", "a Garnet network of ASTRA-sim 1")
    facts = {key.replace("-", "_"): value for key, value in table.items()}
    ignored = (*(f"{other}: another network" for other in more), "routers, flits and virtual channels: links are modelled as rates")
    hint = "a cluster: write its rates as a network yml of ASTRA-sim, or take one of the catalogue"
    built = (f"settings of {table['num-npus']} NPUs as {table.get('topology', '?')}; {hint}",)
    return Reading("ASTRA-sim 1 Garnet network", Content.SETTINGS, facts, facts, built, ignored)


def _settings(text: str) -> dict[str, str]:
    lines = [match for line in text.splitlines()[:200] if (match := _LINE.fullmatch(line.strip()))]
    return {match[1]: match[2] for match in lines}
