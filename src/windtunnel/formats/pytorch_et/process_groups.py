"""The ranks of the process groups that an execution trace names."""

from __future__ import annotations

import json
import re
from typing import Any

from windtunnel.formats.kineto.calls import MOST_RANKS, ranks_of

_ENTRY = re.compile(r"\{[^{}]{0,1000000}\}")


def groups_of(values: list[Any]) -> dict[str, tuple[int, ...]]:
    """Ranks by the group's name, from the inputs of `## process_group:init ##`.

    The text is JSON: a list of objects with `pg_name`, `ranks` and `group_size`, where no ranks stand for all ranks of the job
    (pg_config_info of torch/distributed/distributed_c10d.py). The observer cuts long texts off, so entries are read one by one.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in values:
        for match in _ENTRY.finditer(text) if isinstance(text, str) else ():
            try:
                entry = json.loads(match[0])
            except (ValueError, RecursionError):
                continue
            size, ranks = entry.get("group_size"), ranks_of(entry.get("ranks"))
            if not ranks and isinstance(size, int) and not isinstance(size, bool) and 0 < size <= MOST_RANKS:
                ranks = tuple(range(size))
            if ranks and "pg_name" in entry:
                found[str(entry["pg_name"])] = ranks
    return found
