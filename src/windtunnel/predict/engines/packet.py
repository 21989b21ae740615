"""A step packet by packet: calls that leave a scale-up domain are lanes, whose packets share the cluster's switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools
from windtunnel.base.arrays import Int64s as Longs
from windtunnel.base.errors import SpecError
from windtunnel.engine._core import PacketNetwork, ReplayNetwork
from windtunnel.engine.graph import Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.loads import LinkLoads, Sent
from windtunnel.engine.packet import packet_network
from windtunnel.network.simulate.axis_calls import AxisCall, Machine, connections_of
from windtunnel.network.simulate.fabric_faults import packet_faults
from windtunnel.network.simulate.packet_settings import small_buffers_named
from windtunnel.network.simulate.packets import packet_size, settle_delays
from windtunnel.network.simulate.traffic import Traffic, traffic
from windtunnel.predict.engines.traffic import Executions, collision_ratios, demands_of, names_of, plans, sent_by, slowed_calls
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall

Progress = Callable[[float], object]
SKIP = 0.01
"""With `skip`: two patterns count as the same if their starts differ by no more than this share of a transfer's time."""
MOST_HOPS = 2e10
"""Limit of packet-hops in a step: about an hour."""
SPEED = 6e6
"""Packet-hops a second, roughly, for the estimate in messages."""


class PacketStep:
    """The calls of a step as plans of a packet network."""

    engine = "packet"

    def __init__(
        self, on: Machine, book: CallBook, calls: Sequence[NetworkCall], skip: bool = False, loads: bool = False, threads: int = 1
    ) -> None:
        self.loads, self.threads = loads, threads
        self.on, self.calls, self.skip = on, list(calls), SKIP if skip else 0.0
        self.plans = [connections_of(on, plan) for plan in plans(on, book, self.calls)]

    @classmethod
    def of_plans(
        cls, on: Machine, calls: Sequence[NetworkCall], traffic: Sequence[AxisCall], skip: bool = False, threads: int = 1
    ) -> PacketStep:
        """Calls whose traffic is known already."""
        step = cls.__new__(cls)
        step.loads, step.threads = False, threads
        step.on, step.calls, step.skip = on, list(calls), SKIP if skip else 0.0
        step.plans = [connections_of(on, plan) for plan in traffic]
        return step

    @property
    def stays_inside(self) -> Bools:
        """[calls] whether a call stays inside servers, where the same one usually finds its links as it left them and is simulated
        once."""
        graph = self.on.graph
        if self.on.grid is not None:  # calls along a dimension, which meet few others
            return np.ones(len(self.plans), np.bool_)
        leaves = (graph.node_site[graph.link_from] != graph.node_site[graph.link_to]) | (graph.node_site[graph.link_from] < 0)
        return np.array([not leaves[p.paths.links].any() for p in self.plans], np.bool_)

    def hops(self, launches: Longs, mtu: int) -> float:
        """Packet-hops, ACKs included, of that many launches of each call."""
        each = [float((p.lanes.bytes * np.diff(p.paths.start)).sum()) for p in self.plans]
        return 2.0 * float(np.dot(launches, each)) / mtu if each else 0.0

    def network(
        self, key: Longs, plan: Longs, progress: Progress | None = None, launches: Longs | None = None
    ) -> PacketNetwork | ReplayNetwork | None:
        """A network for one run of a program in which transfers `key` are runs of the calls `plan`; None if nothing is sent.

        `progress` is called now and then with the share of transfers that have ended. `launches`: how often each call runs, where
        a key runs many times.

        SpecError for a step of more than MOST_HOPS packet-hops, and for `threads` where a call sends as soon as it is launched.
        """
        if not self.plans:  # no call leaves a scale-up domain
            return None
        launches = np.bincount(plan, minlength=len(self.plans)) if launches is None else launches
        simulated = np.where(self.stays_inside, np.minimum(launches, 1), launches)
        mtu = packet_size(float(np.dot(simulated, [float(p.lanes.bytes.sum()) for p in self.plans])))
        hops = self.hops(simulated, mtu)
        if hops > MOST_HOPS and not self.skip:
            raise SpecError(
                "--network",
                "packet",
                f"at most {MOST_HOPS:.0e} packet-hops a step",
                f"This step has {hops:.1e}, {hops / SPEED / 3600:.0f} hours: write --network flow. --skip may take long too.",
            )
        lanes = _join_lanes(
            [settle_delays(self.on.graph, p.paths, p.lanes, mtu, p.spine) for p in self.plans], [call.extra for call in self.calls]
        )
        starts = np.concatenate([[0], np.cumsum([len(p.lanes) for p in self.plans])]).astype(np.int64)
        paths, faults = packet_faults(
            self.on.graph,
            _joined_paths([p.paths for p in self.plans]),
            lanes,
            self.on.faults,
            self.plans[0].options,
            self.on.sprays,
        )
        total = int(launches.sum())
        told = None if progress is None else lambda share: progress(min(1.0, share * len(key) / total))
        options, plans = replace(self.on.packets(mtu), loads=self.loads, threads=self.threads), plan.astype(np.int32)
        with small_buffers_named(self.on.graph, "cluster.fabric.buffer"):
            network = packet_network(
                self.on.graph, paths, lanes, starts, key, plans, options, faults, skip=self.skip, progress=told
            )  # fmt: skip
        if self.threads > 1 and network.ahead == 0.0:
            raise SpecError(
                "--threads",
                self.threads,
                "1 for traffic that starts at once",
                "Threads simulate ahead by the time from a launch to its first packet, and some of this traffic has none.",
            )
        return network

    def read_executions(self, ran: PacketNetwork | ReplayNetwork) -> Executions:
        """Number of runs and mean seconds of each call."""
        raw = ran.report()
        return [(int(n), float(t) / n if n else 0.0) for n, t in zip(raw["starts"].tolist(), raw["total"].tolist(), strict=True)]

    def traffic(self, ran: PacketNetwork | ReplayNetwork, seconds: float, seen: Executions) -> Traffic:
        """The run's traffic on the links."""
        raw = ran.report()
        moved = raw["link_data"].astype(np.float64) + raw["link_control"]
        events = {name: float(number) for name, number in raw["stats"].items() if name not in ("events", "cpu_s")}
        replay = raw.get("replay", {})
        events |= {f"{name} by replay": float(replay[name]) for name in ("skipped_share", "error_share") if name in replay}
        sent = Sent.of_packets(raw) or sent_by(demands_of(self.on, self.plans), seen)
        return traffic(
            self.on.placed.graph, self.engine, moved, seconds, None, collision_ratios(self.on, self.plans), events,
            slowed_calls(self.calls, self.plans, seen), sent=sent, names=names_of(self.calls), loads=LinkLoads.of_packets(raw),
            note=_note(replay),
        )  # fmt: skip


def _note(replay: Mapping[str, Any]) -> str:
    """What is exact of the load over time where episodes are recalled."""
    if not replay.get("replayed"):
        return ""
    return (
        f"{replay['replayed']:,} of {replay['episodes']:,} episodes of calls were recalled, not simulated: each has the bytes and "
        "queues of the simulated one from its own begin on. Bytes of a link are exact; when they moved is, to within one bin"
    )


def _join_lanes(parts: Sequence[Lanes], extra: Sequence[float]) -> Lanes:
    """Lanes of all plans, one plan after the other; waits are numbered within their plan."""

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(p, name) for p in parts])

    depth = np.concatenate([[0], np.cumsum([len(p.dep_lane) for p in parts])])
    starts = [p.dep_start[:-1] + at for p, at in zip(parts, depth, strict=False)]
    return Lanes(
        src=column("src"), dst=column("dst"), bytes=column("bytes"), slice=column("slice"), window=column("window"),
        delay=column("delay"), rate=column("rate"),
        begin=np.concatenate([p.begin + more for p, more in zip(parts, extra, strict=True)]), group=column("group"),
        dep_start=np.append(np.concatenate(starts), depth[-1]).astype(np.int64),
        dep_lane=column("dep_lane"), dep_lead=column("dep_lead"), hold=column("hold"),
    )  # fmt: skip


def _joined_paths(parts: Sequence[Paths]) -> Paths:
    base = np.concatenate([[0], np.cumsum([len(p.links) for p in parts])])
    start = np.append(np.concatenate([p.start[:-1] + at for p, at in zip(parts, base, strict=False)]), base[-1])
    return Paths(start.astype(np.int64), np.concatenate([p.links for p in parts]).astype(np.int32))
