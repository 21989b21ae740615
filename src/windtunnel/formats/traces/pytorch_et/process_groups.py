"""The ranks of the process groups that an execution trace names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from windtunnel.formats.traces.kineto.calls import MOST_RANKS, ranks_of
from windtunnel.formats.traces.pytorch_et.nodes import NodeCall

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


class ProcessGroups:
    """The ranks of the groups that a rank's calls name; `world`: ranks of the job, 0 unknown."""

    def __init__(self, named: Mapping[str, tuple[int, ...]], calls: Iterable[NodeCall], world: int) -> None:
        self.named, self.world = named, world
        self.sizes: dict[str, int] = {}
        for call in calls:
            self.sizes[call.group] = max(call.size, self.sizes.get(call.group, 0))

    def ranks(self, call: NodeCall) -> tuple[int, ...]:
        """As the trace names them, as start and stride say, or all where the group is as large as the job; empty unknown."""
        if call.group in self.named:
            return self.named[call.group]
        size = call.size or self.sizes.get(call.group, 0)
        return call.ranks or (tuple(range(size)) if 1 < size == self.world <= MOST_RANKS else ())

    def text(self, call: NodeCall) -> str:
        """What stands for the group on all ranks: its description, its name, or for an address its place among the addresses."""
        if call.group.startswith("0x"):
            return f"group {[name for name in self.sizes if name.startswith('0x')].index(call.group)}"
        return call.text if call.text not in ("", "undefined") else call.group

    def own_rank(self, calls: Iterable[NodeCall]) -> int:
        """The rank of the job that most calls say; -1 where none does."""
        told = Counter(ranks[call.rank] for call in calls if 0 <= call.rank < len(ranks := self.ranks(call)))
        return told.most_common(1)[0][0] if told else -1
