"""How ASTRA-sim cuts a collective: chunks, and for each chunk one phase after the other over the dimensions (Sys.cc)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.astrasim.configuration import AnalyticalNetwork, System

AR, AG, RS, A2A = "ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"
_KNOWN = re.compile(r"^(?P<one>one)?(?P<name>ring|direct|halvingdoubling|doublebinarytree)(?P<window>\d{0,5})$")


@dataclass(frozen=True)
class Ring:
    """A set of peers that a phase runs over: each rank's ring in a dimension (`dim`, -1: all NPUs flat), or a group (`local`)."""

    count: int
    dim: int = -1
    local: bool = False


@dataclass(frozen=True)
class RingPhase:
    """One algorithm over one ring. `size` bytes enter; `queue` is the dimension whose queue it stands in; `back`: the ring is run
    backwards; `tree`: which of the two trees."""

    call: str
    algorithm: str
    size: int
    ring: Ring
    queue: int
    back: bool = False
    window: int = 0
    tree: int = 0

    @property
    def leaves(self) -> int:
        """Bytes that leave the phase: the size of the next."""
        return {AG: self.size * self.ring.count, RS: self.size // self.ring.count}.get(self.call, self.size)


def chunks(system: System, call: str, size: int, npus: int) -> tuple[int, int]:
    """(number, bytes of each). A chunk of fewer bytes than NPUs is made as large as their number, and the whole grows (not for an
    all-gather); the last chunk has the full size even where less is left."""
    if size < 1:
        return 0, 0
    chunk = size // system.splits
    if call != AG and npus > chunk:
        return system.splits, npus
    if chunk < 1:
        raise SpecError(
            "comm_size", size, f"at least {system.splits} bytes, the preferred-dataset-splits", "ASTRA-sim does not end."
        )
    return -(-size // chunk), chunk


def algorithm_of(name: str, call: str) -> tuple[str, bool, int]:
    """(algorithm, whether it runs flat over all NPUs, window of a direct one: 0 all). SpecError for a name it has not."""
    found = _KNOWN.match(name.lower())
    if found is None or (found["window"] and found["name"] != "direct") or (found["one"] and found["name"] == "doublebinarytree"):
        allowed = "ring, oneRing, direct[W], oneDirect[W], halvingDoubling, oneHalvingDoubling, doubleBinaryTree"
        raise SpecError(f"{call} implementation", name, allowed)
    if found["name"] == "doublebinarytree" and call != AR:
        raise SpecError(f"{call} implementation", name, "doubleBinaryTree for an all-reduce only")
    if found["name"] == "halvingdoubling" and call == A2A:
        raise SpecError(f"{call} implementation", name, "ring or direct; ASTRA-sim exits")
    return found["name"], found["one"] is not None, int(found["window"] or 0)


def rings_of(system: System, network: AnalyticalNetwork, call: str, group: int) -> list[tuple[str, Ring, int]]:
    """(algorithm, ring, window) of each dimension of a call over `group` ranks; all dimensions where they are the whole world."""
    names = system.implementations.get(call)
    if not names:
        raise SpecError(f"{call} implementation", "nothing", "an algorithm in the system json")
    if group != network.npus:
        name = names[0] if len(names) == 1 else "ring"  # a smaller group knows no dimensions
        algorithm, _, window = algorithm_of(name, call)
        return [(algorithm, Ring(group, local=True), window)]
    if len(names) > len(network.npus_count):
        raise SpecError(f"{call} implementation", list(names), f"at most {len(network.npus_count)}, one for each dimension")
    out = []
    for dim, name in enumerate(names):
        algorithm, flat, window = algorithm_of(name, call)
        out.append((algorithm, Ring(network.npus if flat else network.npus_count[dim], -1 if flat else dim), window))
        if flat:
            break
    return out


def phases_of(
    system: System, network: AnalyticalNetwork, call: str, size: int, group: int, involved: int, number: int
) -> list[RingPhase]:
    """Phases of chunk `number` of `size` bytes. An all-reduce under localBWAware reduces up the dimensions, all-reduces on the last
    one and gathers back; others visit every dimension once, a gather the outermost first. `number` counts the chunks since the
    begin: trees take turns."""
    rings = rings_of(system, network, call, group)
    dims = [dim for dim, (_, ring, _) in enumerate(rings) if ring.count > 1 and (involved < 0 or ring.local or involved >> dim & 1)]
    plan = [(call, dim, False) for dim in (reversed(dims) if call == AG else dims)]
    if call == AR and system.optimization == "localBWAware" and dims:
        plan = [(RS, dim, False) for dim in dims[:-1]] + [(AR, dims[-1], False)] + [(AG, dim, True) for dim in reversed(dims[:-1])]
    out: list[RingPhase] = []
    for each, dim, back in plan:
        algorithm, ring, window = rings[dim]
        phase = RingPhase(each, algorithm, size, ring, dim, back, window, number % 2)
        out.append(phase)
        size = phase.leaves
    return out
