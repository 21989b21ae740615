"""Settings of a packet run: what a user may set, with checks, and the packet engine's options for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.engine.packet import Loss, LossRecovery, Marking, PacketOptions, SmallBuffer, Spread
from windtunnel.network.congestion import Congestion, load_congestion
from windtunnel.network.fabrics.faults import CableFlap

SPREADS = {"spray": Spread.ROUND, "spray-random": Spread.RANDOM, "adaptive": Spread.ADAPTIVE, "flowlet": Spread.FLOWLET}
"""Routing -> how each switch chooses the next link of a packet; any other routing keeps a flow on its path."""
LOSSES = {"pfc": Loss.PAUSE, "drop": Loss.DROP, "credits": Loss.CREDITS}
RECOVERIES = {"go-back-n": LossRecovery.GO_BACK_N, "selective": LossRecovery.SELECTIVE}


@dataclass(frozen=True)
class PacketSettings:
    """Settings of a packet run. Results are the same for any number of `threads`."""

    cc: str = "dcqcn"
    """A congestion control as `load_congestion` takes it."""
    loss: str = "pfc"
    """What a full buffer does (pfc, drop, credits)."""
    recovery: str = ""
    """go-back-n or selective; empty: selective where packets of a flow take different ways, else go-back-n."""
    buffer: float = 32e6
    """Bytes of a switch."""
    header: int = 0
    """Bytes added to every packet's payload."""
    ack_every: int = 1
    """Packets per ACK."""
    threads: int = 1
    flaps: tuple[CableFlap, ...] = ()
    """Cables that go down while traffic runs."""
    convergence: float = 1e-3
    """Seconds after which flows are rerouted around a cable that went down."""
    thresholds: tuple[float, float] | None = None
    """Bytes of an ingress at which it pauses its sender and below which it resumes; None: dynamic."""
    sample: float = 0.0
    """Above 0: seconds between two samples."""
    watched: int = 32
    """Number of links with the highest load that are sampled, and of flows, the first ones."""

    def options(self, routing: str, mtu: int, seed: int, path: str = "--cc") -> tuple[PacketOptions, Congestion]:
        """The engine's options. Raises UnknownName and SpecError; those of the congestion control are at `path`."""
        for option, value, known in (("loss", self.loss, LOSSES), ("--recovery", self.recovery or "selective", RECOVERIES)):
            if value not in known:
                raise UnknownName(option, value, list(known))
        for name, number, low, high in (("--threads", self.threads, 1, 1024), ("--ack-every", self.ack_every, 1, 1024),
                                        ("--buffer", self.buffer, 1e4, 1e12), ("--header", self.header, 0, 1024),
                                        ("--sample", self.sample or 1.0, 1e-9, 1e3),
                                        ("--watch", self.watched, 1, 4096)):  # fmt: skip
            if not low <= number <= high:
                raise SpecError(name, number, f"{low:g} to {high:g}")
        xoff, xon = self.thresholds or (0.0, 0.0)
        if self.thresholds and not 0 < xon <= xoff <= self.buffer:
            raise SpecError("--xon", xon, f"above 0 and at most --xoff ({xoff:g}), which is at most --buffer ({self.buffer:g})")
        control = load_congestion(self.cc, path=path)
        spread = SPREADS.get(routing, Spread.PATH)
        recovery = self.recovery or ("go-back-n" if spread == Spread.PATH else "selective")
        options = PacketOptions(
            mtu=mtu, header=self.header, loss=LOSSES[self.loss], buffer=self.buffer, recovery=RECOVERIES[recovery],
            ack_every=self.ack_every, xoff=xoff, xon=xon, spread=spread, seed=seed, threads=self.threads,
            algorithm=control.algorithm,
            parameters=control.parameters, ecn=[Marking(row.rate, row.kmin, row.kmax, row.pmax) for row in control.ecn],
        )  # fmt: skip
        return options, control


@contextmanager
def small_buffers_named(graph: Graph, path: str) -> Iterator[None]:
    """Raises SpecError at `path` for a switch whose buffer is smaller than the reserves and headroom of its ports."""
    try:
        yield
    except SmallBuffer as error:
        if graph.node_kind[error.node] != NodeKind.SWITCH:
            raise
        raise SpecError(
            path,
            f"{error.buffer} B",
            f"at least {error.buffer + error.lacks} B",
            f"{graph.name(error.node)} lacks {error.lacks} B: each port keeps a reserve, and headroom for what its cable holds "
            "while a pause travels.",
        ) from None
