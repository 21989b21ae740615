"""Finds bad nodes by tests of disjoint pairs that run at the same time, while a job is halted.

Round one pairs every node with a neighbour. A pair that passes has two good nodes. Every node of a failed pair is paired with a
known good node in the next round, and is bad if it fails again. If a pair failed but both nodes pass with others, the link between
them is bad. If fewer than half of an even number of nodes are bad, some pair of round one passes: `n` nodes form `n / 2` pairs, and
each bad node spoils one. If all pairs fail, other pairings follow, by the circle method of tournaments, until one passes: two good
nodes meet in some round. Nothing is found if fewer than two nodes are good.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError

Pair = tuple[str, str]
Round = list[Pair]


@dataclass(frozen=True)
class Bisection:
    """Result of a search."""

    bad: tuple[str, ...]
    """Bad nodes."""
    links: tuple[Pair, ...]
    """Bad links."""
    unknown: tuple[str, ...]
    """Nodes without a result, if no pair passed at all."""
    rounds: int
    """Number of rounds."""
    tests: int
    """Number of tested pairs."""


def search(nodes: Sequence[str], confirm: int = 1) -> Generator[Round, Sequence[bool], Bisection]:
    """Generator of rounds: yields disjoint pairs and is sent whether each passed. Returns the result.

    `confirm`: number of consecutive tests that a suspicious node has to fail, each with a different good node if possible.
    SpecError for fewer than two nodes, or repeated ones.
    """
    if len(nodes) < 2 or len(set(nodes)) != len(nodes):
        raise SpecError("nodes", len(nodes), "two different nodes or more")
    if confirm < 1:
        raise SpecError("confirm", confirm, "1 or more")
    good: list[str] = []
    failed: Round = []
    rounds = tests = 0
    for pairs in _pairings(nodes):
        passed = yield pairs
        rounds, tests = rounds + 1, tests + len(pairs)
        good = [node for pair, well in zip(pairs, passed, strict=True) if well for node in pair]
        failed = [pair for pair, well in zip(pairs, passed, strict=True) if not well]
        if good:
            break
    if not good:
        return Bisection((), (), tuple(nodes), rounds, tests)
    known = set(good)
    met: dict[str, list[str]] = {node: [] for node in nodes if node not in known}
    bad: list[str] = []
    while met:
        pairs = _partners(met, good)
        passed = yield pairs
        rounds, tests = rounds + 1, tests + len(pairs)
        for (node, partner), well in zip(pairs, passed, strict=True):
            met[node].append(partner)
            if well:
                good.append(node)
            elif len(met[node]) >= confirm:
                bad.append(node)
            else:
                continue
            del met[node]
    links = tuple(pair for pair in failed if not set(pair) & set(bad))
    return Bisection(tuple(node for node in nodes if node in set(bad)), links, (), rounds, tests)


def _partners(met: dict[str, list[str]], good: Sequence[str]) -> Round:
    """Pairs suspicious nodes with good ones that are free in this round, preferably new partners."""
    free = dict.fromkeys(good)
    pairs: Round = []
    for node, before in met.items():
        if not free:
            break
        partner = next((one for one in free if one not in before), next(iter(free)))
        del free[partner]
        pairs.append((node, partner))
    return pairs


def bisect(nodes: Sequence[str], test: Callable[[Round], Sequence[bool]], confirm: int = 1) -> Bisection:
    """`search` with a function that runs a round and returns whether each of its pairs passed."""
    asking = search(nodes, confirm)
    pairs = next(asking)
    while True:
        try:
            pairs = asking.send(test(pairs))
        except StopIteration as over:
            found: Bisection = over.value
            return found


def _pairings(nodes: Sequence[str]) -> Generator[Round, None, None]:
    """All pairings of a tournament, neighbours first: every two nodes meet once. With an odd number of nodes, one rests in each
    round.
    """
    every: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    count = len(every)
    neighbours = [every[at] for pair in range(count // 2) for at in (2 * pair, 2 * pair + 1)]
    ring = [*neighbours[0::2], *reversed(neighbours[1::2])]  # so that the first round pairs neighbours
    for _ in range(count - 1):
        met = zip(ring[: count // 2], reversed(ring[count // 2 :]), strict=True)
        yield [(first, second) for first, second in met if first is not None and second is not None]
        ring = [ring[0], ring[-1], *ring[1:-1]]
