"""Pairs of events on two machines of which the first came before the second; used to compare clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.records.sections import Section, Sections

MEETINGS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL)
"""Calls that no rank leaves before the last has entered: each rank's result needs every rank's part."""
_MOST_NODES = 16
"""Nodes of one call; beyond this each node is compared only with its neighbours in the list of nodes and with the first node."""


@dataclass(frozen=True)
class EventPairs:
    """Events on machine `source` that came before events on machine `target`: unix seconds minus `zero`, each on its own clock."""

    source: str
    target: str
    early: Floats
    late: Floats


def end_times(sections: Sections) -> Floats:
    """When the host or the device finished each section, whichever is later; NaN if unknown."""
    known = np.fmax(sections.seconds, sections.host_seconds)
    return np.where(np.isnan(sections.seconds), np.nan, sections.begin + known)


def message_pairs(sections: Sections) -> list[EventPairs]:
    """Pairs from sends and receives, and from collectives, between different machines of `sections.hosts`.

    A receive ends after its send began. No rank leaves a collective (MEETINGS) before the last one has entered it. A send and a
    receive match by their number between the two ranks. If calls are not numbered, the k-th send of a step matches the k-th receive
    of that step; a step with different numbers of them is left out.
    """
    hosts = np.array(_host_numbers(sections), np.int64)
    calls = np.flatnonzero((sections.section == Section.CALL) & (sections.rank >= 0))
    names = sorted(set(sections.hosts.values()))
    found: dict[tuple[int, int], list[tuple[Floats, Floats]]] = {}
    for part in (_messages(sections, calls, hosts), _meetings(sections, calls, hosts)):
        for source, target, early, late in part:
            found.setdefault((source, target), []).append((early, late))
    return [
        EventPairs(names[source], names[target], np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts]))
        for (source, target), parts in sorted(found.items())
    ]  # fmt: skip


def exchange_pairs(
    exchanges: Mapping[str, Sequence[Sequence[int]]], zero: float, collector: str = "(collector)"
) -> list[EventPairs]:
    """Pairs from the shippers' timestamps: (sent, received, answered, back) in ns, by node."""
    found = []
    for node, stamps in sorted(exchanges.items()):
        table = (np.asarray([list(one) for one in stamps], np.int64).reshape(-1, 4) - int(zero * 1e9)) / 1e9
        found.append(EventPairs(node, collector, table[:, 0], table[:, 1]))
        found.append(EventPairs(collector, node, table[:, 2], table[:, 3]))
    return found


def _host_numbers(sections: Sections) -> list[int]:
    """Rank → index of its machine in the sorted names; -1 for ranks without one."""
    names = {name: at for at, name in enumerate(sorted(set(sections.hosts.values())))}
    most = int(sections.rank.max()) if len(sections) else -1
    return [names[sections.hosts[rank]] if rank in sections.hosts else -1 for rank in range(max(most, *sections.hosts, -1) + 1)]


Piece = tuple[int, int, Floats, Floats]


def _messages(sections: Sections, calls: Int64s, hosts: Int64s) -> Iterator[Piece]:
    with_peer = calls[(sections.peer[calls] >= 0) & (sections.peer[calls] < len(hosts))]
    sends, receives = with_peer[sections.sends[with_peer]], with_peer[~sections.sends[with_peer]]
    done = end_times(sections)
    sent = _group_by_key(sections, sends, sections.rank, sections.peer)
    got = _group_by_key(sections, receives, sections.peer, sections.rank)
    both = [(sent[key], got[key]) for key in sent.keys() & got.keys() if len(sent[key]) == len(got[key])]
    if not both:
        return
    first, second = (np.concatenate(part) for part in zip(*both, strict=True))
    source, target = hosts[sections.rank[first]], hosts[sections.rank[second]]
    yield from _by_hosts(source, target, sections.begin[first], done[second])


def _group_by_key(sections: Sections, chosen: Int64s, source: Any, target: Any) -> dict[tuple[int, ...], Int64s]:
    """(source, target, group, number or step) → calls ordered by begin."""
    if not len(chosen):
        return {}
    order = chosen[
        np.lexsort((sections.begin[chosen], sections.step[chosen], sections.group[chosen], target[chosen], source[chosen]))
    ]
    keys = np.stack([source[order], target[order], sections.group[order], sections.step[order]], axis=1).astype(np.int64)
    cuts = np.flatnonzero((np.diff(keys, axis=0) != 0).any(axis=1)) + 1
    return {tuple(keys[part[0]]): order[part] for part in np.split(np.arange(len(order)), cuts)}


def _meetings(sections: Sections, calls: Int64s, hosts: Int64s) -> Iterator[Piece]:
    """For each collective and machine the last begin and the first end of its ranks: the tightest pair."""
    calls = calls[np.isin(sections.comm[calls], MEETINGS) & (sections.call[calls] >= 0) & (sections.group[calls] >= 0)]
    if not len(calls):
        return
    done = end_times(sections)
    node = hosts[sections.rank[calls]]
    calls, node = calls[node >= 0], node[node >= 0]
    order = np.lexsort((node, sections.call[calls], sections.group[calls]))
    calls, node = calls[order], node[order]
    key = np.stack([sections.group[calls], sections.call[calls], node], axis=1)
    starts = np.concatenate([[0], np.flatnonzero((np.diff(key, axis=0) != 0).any(axis=1)) + 1])
    begin = np.maximum.reduceat(sections.begin[calls], starts)
    end = np.minimum.reduceat(done[calls], starts)
    entry, node = key[starts, :2], node[starts]
    meeting = np.concatenate([[0], np.flatnonzero((np.diff(entry, axis=0) != 0).any(axis=1)) + 1, [len(starts)]])
    sizes = np.diff(meeting)
    for size in np.unique(sizes[sizes > 1]):
        at = meeting[:-1][sizes == size]
        pairs: Any = permutations(range(size), 2)
        if size > _MOST_NODES:
            pairs = {
                (a, b)
                for one in range(size)
                for a, b in ((one, (one + 1) % size), ((one + 1) % size, one), (0, one), (one, 0))
                if a != b
            }
        for a, b in pairs:
            yield from _by_hosts(node[at + a], node[at + b], begin[at + a], end[at + b])


def _by_hosts(source: Int64s, target: Int64s, early: Floats, late: Floats) -> Iterator[Piece]:
    keep = (source >= 0) & (target >= 0) & (source != target) & np.isfinite(early) & np.isfinite(late)
    source, target, early, late = source[keep], target[keep], early[keep], late[keep]
    if not len(source):
        return
    order = np.lexsort((target, source))
    cuts = np.flatnonzero((np.diff(source[order]) != 0) | (np.diff(target[order]) != 0)) + 1
    for part in np.split(order, cuts):
        yield int(source[part[0]]), int(target[part[0]]), early[part], late[part]
