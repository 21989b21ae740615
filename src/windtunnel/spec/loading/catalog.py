"""The catalogue's directory: its names, and the plain table of each (`catalog/<kind>/<name>.toml`)."""

from __future__ import annotations

import copy
import functools
from typing import Any

from windtunnel.base.errors import UnknownName
from windtunnel.base.files import CATALOG
from windtunnel.spec.loading.files import read_table

ROOT = CATALOG
KINDS = ("gpus", "nodes", "fabrics", "clusters", "regions", "laws", "models", "frameworks", "jobs", "reliability")


@functools.cache
def names(kind: str) -> tuple[str, ...]:
    """Sorted names of a kind, one of KINDS; UnknownName otherwise."""
    if kind not in KINDS:
        raise UnknownName("catalog kind", kind, KINDS)
    return tuple(sorted(file.stem for file in (ROOT / kind).glob("*.toml")))


def entry(kind: str, name: str, path: str) -> dict[str, Any]:
    """A fresh copy of the table of catalogue entry `name`; UnknownName at `path` if the kind has no such entry."""
    if name not in names(kind):
        raise UnknownName(path, name, names(kind))
    return copy.deepcopy(_parse_entry(kind, name))


@functools.cache
def _parse_entry(kind: str, name: str) -> dict[str, Any]:
    return read_table(ROOT / kind / f"{name}.toml")
