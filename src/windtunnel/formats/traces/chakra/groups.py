"""Communicator groups of a trace: the comm_group JSON of ASTRA-sim, or what PyTorch wrote into metadata nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import MIB, read_text

WORLD = "0"
"""The name under which all ranks are a group; a node without `pg_name` means it too."""

LARGEST_RANK = 2**24


def read_groups(path: Path) -> dict[str, tuple[int, ...]]:
    """Ranks of each group by name, in the file's order, which is the order of the ring. FileError, SpecError for a wrong file."""
    return groups_of(read_text(path, 64 * MIB, "a comm_group JSON"), str(path))


def groups_of(text: str, name: str) -> dict[str, tuple[int, ...]]:
    """As `read_groups`, of its text."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(name, "text that is no JSON", 'a comm_group JSON: {"1": [0, 1]}', f"{error}.") from None
    if not is_groups(table):
        raise SpecError(name, type(table).__name__, 'an object of groups, each a list of ranks: {"1": [0, 1], "2": [2, 3]}')
    if WORLD in table:
        raise SpecError(name, "a group 0", "groups from 1 on", "ASTRA-sim keeps 0 for all ranks.")
    return {key: tuple(ranks) for key, ranks in table.items()}


def is_groups(table: object) -> bool:
    """Whether a JSON value is a table of groups."""
    return isinstance(table, dict) and all(
        isinstance(ranks, list)
        and ranks
        and all(isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < LARGEST_RANK for rank in ranks)
        and len(set(ranks)) == len(ranks)
        for ranks in table.values()
    )


def groups_of_metadata(values: str) -> dict[str, tuple[int, ...]]:
    """Groups that PyTorch's `process_group:init` wrote: `['[{"pg_name": "1", "ranks": [0, 1]}, …]']`. Empty where there are
    none."""
    begin, end = values.find("[{"), values.rfind("}]")
    if begin < 0 or end < begin:
        return {}
    try:
        listed = json.loads(values[begin : end + 2].replace('\\"', '"'))
    except (ValueError, RecursionError):
        return {}
    out: dict[str, tuple[int, ...]] = {}
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and is_groups({"ranks": one.get("ranks")}):
            out[str(one.get("pg_name", ""))] = tuple(one["ranks"])
    return out
