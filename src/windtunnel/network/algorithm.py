"""Algorithms of collectives: what the rest of the room asks of one, and the list of algorithms.

An algorithm is one file of `algorithms/` and one line here: of those among which NCCL's tuner chooses, or of those that run only if
named. One of a package runs only if named: by `--algorithm`, or, if it is `tuned`, in `NCCL_ALGO`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.base.registry import Registry

if TYPE_CHECKING:
    from windtunnel.network.groups.bandwidth import GroupLinks
    from windtunnel.network.groups.shape import Group


class ClosedCall(NamedTuple):
    """A call of `size` bytes in total on links without other traffic, and the constants that its seconds are made of."""

    comm: Comm
    size: float
    group: Group
    links: GroupLinks
    graph: Any
    protocol: str
    node: Any
    net: Any
    sends: Any


class CollectiveAlgorithm(ABC):
    """An algorithm. Its class variables say what others have to know of it; its methods are asked only where these say so.

    `graph` is a `nccl.channels.ChannelSearch`, `settings` a `nccl.settings.Settings`, `node`, `net` and `sends` constants of
    `closed.fitted`, `call` an `algorithms.pattern.CollectiveCall`.
    """

    tuned: ClassVar[bool] = False
    """Whether NCCL's tuner may choose it, so that it has a latency and a bandwidth there."""
    number: ClassVar[int] = 1 << 16
    """NCCL's NCCL_ALGO_*: the order in which its tuner asks."""
    spellings: ClassVar[tuple[str, ...]] = ()
    """Further ones in `NCCL_ALGO`, beside its name without underscores."""
    protocols: ClassVar[tuple[str, ...]] = ("Simple",)
    """What NCCL has it in."""
    closed_form: ClassVar[bool] = False
    """Whether `parts` has its seconds; else its lanes take what they take at the speed of a ring."""
    messages: ClassVar[bool] = False
    """Whether its bytes are single messages between two ranks, each over connections of its own."""
    adds_in_switches: ClassVar[bool] = False
    """Whether a switch of a node or of the fabric adds or copies."""
    walks_rings: ClassVar[bool] = False
    """Whether a channel passes a node's GPUs in a cycle."""
    walks_trees: ClassVar[bool] = False
    """Whether it runs on the tree of a dump of NCCL's search, not on its ring."""

    # What NCCL's tuner sees: microseconds and GB/s.

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: Any, settings: Any) -> bool:
        """Whether NCCL takes it for an all-reduce, all-gather or reduce-scatter."""
        return False

    def suits_other_libraries(self, comm: Comm, group: Group) -> bool:
        """The same of a library that has no tables here, such as RCCL."""
        return False

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        """Microseconds; `protocol`: its place in `PROTOCOLS`."""
        return 0.0

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: Any) -> float:
        """GB/s of the whole buffer; 0: never chosen."""
        return 0.0

    def corrected_from(self, comm: Comm, group: Group, graph: Any) -> Iterable[float]:
        """Sizes at which `correct` changes."""
        return ()

    def correct(
        self, latency: float, bandwidth: float, protocol: str, size: float, comm: Comm, group: Group, links: GroupLinks, graph: Any
    ) -> tuple[float, float]:
        """Latency and bandwidth with the tuner's corrections for calls of `size` bytes, up to the next of `corrected_from`."""
        return latency, bandwidth

    # Seconds of a call on links without other traffic.

    def parts(self, call: ClosedCall) -> Any:
        """The `closed.cost.CallParts` of a call. SpecError if it has no closed form."""
        raise SpecError("algorithm", type(self).__name__, "an algorithm with a closed form")

    def breaks(self, group: Group, graph: Any) -> Iterable[float]:
        """Sizes at which `parts` has a step, rising."""
        return ()

    def running(self, graph: Any) -> int:
        """Channels that run."""
        return int(graph.running)

    # The call as lanes.

    @abstractmethod
    def lower(self, call: Any) -> Any:
        """The `algorithms.pattern.Pattern` of a call: which rank sends what to which. SpecError for one that it does not do."""

    def channels(self, graph: Any) -> int | None:
        """Channels of a call, whatever its size; None: fewer where a thread would have too few bytes."""
        return None if self.tuned else 1

    def launch(self, comm: Comm, group: Group, node: Any, net: Any, parts: Any) -> float:
        """Seconds before the first slice, of a call with these `parts`."""
        return float(node.launch + (net.launch if group.nodes > 1 else 0.0))

    def hops(self, protocol: int, node: Any, net: Any) -> tuple[float, float]:
        """Seconds of a hop inside a node and between nodes."""
        return node.hop[protocol], net.hop[protocol]

    def adds_in_fabric(self, group: Group) -> bool:
        """Whether switches between nodes add."""
        return False


_TUNED = {
    "ring": "network.algorithms.ring:RING",
    "tree": "network.algorithms.tree:TREE",
    "collnet_direct": "network.algorithms.collnet_direct:COLLNET_DIRECT",
    "collnet_chain": "network.algorithms.collnet_chain:COLLNET_CHAIN",
    "nvls": "network.algorithms.nvls:NVLS",
    "nvls_tree": "network.algorithms.nvls_tree:NVLS_TREE",
    "pat": "network.algorithms.pat:PAT",
}
_NAMED = {
    "p2p": "network.algorithms.p2p:P2P",
    "direct": "network.algorithms.direct:DIRECT",
    "halving_doubling": "network.algorithms.halving_doubling:HALVING_DOUBLING",
    "hierarchical": "network.algorithms.hierarchical:HIERARCHICAL",
    "bruck": "network.algorithms.bruck:BRUCK",
}
ALGORITHMS: Registry[CollectiveAlgorithm] = Registry("algorithms", "algorithm", _TUNED | _NAMED)
"""The first does every call, and is what is left where nothing else is allowed."""

CHOSEN = frozenset(_TUNED)
"""Those among which NCCL's tuner chooses unless `NCCL_ALGO` says otherwise."""

MESSAGES = next(iter(_NAMED))
"""What sends, receives and calls made of them run as."""


def in_order_of_nccl(names: Iterable[str]) -> list[str]:
    """Names in the order in which NCCL's tuner asks."""
    return sorted(names, key=lambda name: (ALGORITHMS[name].number, name))


def spellings() -> dict[str, str]:
    """What `NCCL_ALGO` may say, without underscores -> the algorithm's name."""
    tuned = {name: algorithm for name, algorithm in ALGORITHMS.items() if algorithm.tuned}
    return {word: name for name, algorithm in tuned.items() for word in (name.replace("_", ""), *algorithm.spellings)}
