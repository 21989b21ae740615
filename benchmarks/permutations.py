"""Permutations beside csg-htsim and ns-3: is one draw of theirs a draw of ours, and is our hash as uneven as chance?

    python benchmarks/permutations.py [FOLDER] [--only peers|hashes] [--seeds N]

Peers ran each workload with one hash, so their row is one sample. `peers` runs ours with N (30) seeds: the default DCQCN against
the spread of the peers, and each peer's own settings against its row. `hashes` runs max-min fluids over 200 draws of the router
and over 200 in which every switch chooses for every flow by dice. FOLDER holds perm_128_10MB.csv and the like (src,dst,bytes,
start_s); without it, patterns of the same shape are drawn. Asserts nothing.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FLOWS = {
    "perm_128_10MB": ("fat_tree:k=8,link=400Gb/s,latency=1us", "permutation:seed=1,bytes=10MiB"),
    "perm_128_1MB": ("fat_tree:k=8,link=100Gb/s,latency=1us", "permutation:seed=1,bytes=1MiB"),
    "perm_1024_1MB": ("fat_tree:k=16,link=100Gb/s,latency=1us", "permutation:seed=1,bytes=1MiB"),
    "incast_128_31to1_1MB": ("fat_tree:k=8,link=100Gb/s,latency=1us", "incast:dst=0,senders=31,seed=1,bytes=1MiB"),
    "ring_128_shift8_10MB": ("fat_tree:k=8,link=400Gb/s,latency=1us", "ring:shift=8,bytes=10MiB"),
}


class Peer(NamedTuple):
    """Settings under which ours does what a peer's run did. `header`: its bytes on the wire beyond the payload. `behind`: its ACKs
    wait behind data, as in csg-htsim, whose switches know no priorities; ours go first."""

    label: str
    cc: str
    header: int
    more: dict[str, float]
    behind: bool = False


HTSIM = Peer("csg-htsim, PFC only", "none", 64, {"xoff": 15 * 4096.0, "xon": 12 * 4096.0}, behind=True)
NS3_DCQCN = Peer("ns-3 HPCC fork, DCQCN", "dcqcn-hpcc-fork", 48, {})
NS3_HPCC = Peer("ns-3 HPCC fork, HPCC", "hpcc", 90, {})
OURS = Peer("default", "dcqcn", 0, {})

PEERS: dict[str, tuple[tuple[Peer, float, float], ...]] = {  # mean and p99, us: csg-htsim 841d9e7, HPCC fork 9f4be2a, one hash
    "perm_128_10MB": ((HTSIM, 600.9, 947.4), (NS3_DCQCN, 1397.5, 2994.6)),
    "perm_128_1MB": ((HTSIM, 250.9, 391.2), (NS3_HPCC, 246.2, 475.7), (NS3_DCQCN, 317.8, 1517.2)),
    "perm_1024_1MB": ((HTSIM, 281.0, 513.5),),
    "ring_128_shift8_10MB": ((HTSIM, 409.3, 673.1),),
}


def flows_of(name: str) -> tuple[Any, Any]:
    """(graph, flows) of a workload."""
    from windtunnel.network.fabrics import parse_fabric
    from windtunnel.network.flows.flow_list import load_flows

    fabric, pattern = FLOWS[name]
    folder = os.environ.get("FLOWS")
    graph = parse_fabric(fabric)
    return graph, load_flows(f"{folder}/{name}.csv" if folder else pattern, graph.endpoints)


def draws(name: str, peer: Peer, seeds: int) -> np.ndarray[Any, Any]:
    """[seeds, 2] mean and p99 of the completion times, us."""
    from dataclasses import replace

    from windtunnel.engine.packet import plain_lanes, run_packets
    from windtunnel.engine.routes import RouteOptions, route
    from windtunnel.network.simulate.packet_settings import PacketSettings

    graph, flows = flows_of(name)
    lanes = plain_lanes(flows.src, flows.dst, flows.bytes, flows.start)
    found = []
    for seed in range(1, seeds + 1):
        options = replace(PacketSettings(cc=peer.cc, header=peer.header).options("ecmp", 4096, seed)[0], **peer.more)
        if peer.behind:
            options = replace(options, sample=1e-6, sample_links=np.flatnonzero(_inner(graph)).tolist())
        paths = route(graph, flows.src, flows.dst, options=RouteOptions(seed=seed))
        done = run_packets(graph, paths, lanes, options)
        fct = 1e6 * (_acked_behind_data(graph, paths, done) - flows.start if peer.behind else done.fct)
        found.append((fct.mean(), np.percentile(fct, 99)))
    return np.array(found)


def _inner(graph: Any) -> Any:
    """Links that leave a switch."""
    return ~np.isin(graph.link_from, graph.endpoint)


def _acked_behind_data(graph: Any, paths: Any, done: Any) -> Any:
    """When the last ACK would be back if it waited at switches for the data in front of it, pauses included; to a sample a hop."""
    series = done.series
    row = {link: at for at, link in enumerate(series.links)}
    back = {(a, b): link for link, (a, b) in enumerate(zip(graph.link_from.tolist(), graph.link_to.tolist(), strict=True))}
    last = len(series.time) - 1
    acked = done.delivered.copy()
    for lane in range(len(acked)):
        time = acked[lane]
        for link in paths.links[paths.start[lane] : paths.start[lane + 1]][::-1]:
            out = back[int(graph.link_to[link]), int(graph.link_from[link])]
            now = int(np.searchsorted(series.time, time))
            if out in row and now <= last and series.queue[row[out], now] > 0:
                sent = series.sent[row[out]]
                time = max(time, series.time[min(np.searchsorted(sent, sent[now] + series.queue[row[out], now]), last)])
            time += 64 / graph.link_rate[out] + graph.link_latency[out]
        acked[lane] = time
    return acked


def peers(seeds: int = 30) -> None:
    for name, rows in PEERS.items():
        count = min(seeds, 10) if "1024" in name else seeds
        print(f"{name}, {count} hashes of ours, one of theirs; mean and p99, us")
        made = draws(name, OURS, count)
        spread = ""
        if len(rows) > 1:  # one draw of one peer is no spread
            means, tails = [row[1] for row in rows], [row[2] for row in rows]
            inside = (made >= [min(means), min(tails)]) & (made <= [max(means), max(tails)])
            spread = (f"; peers {min(means):.0f} to {max(means):.0f} / {min(tails):.0f} to {max(tails):.0f}: "
                      f"inside {inside[:, 0].sum()} / {inside[:, 1].sum()} of {count}")  # fmt: skip
        print(f"    {OURS.label:24s} {_range(made)}{spread}")
        for peer, mean, tail in rows:
            made = draws(name, peer, count)
            low, high = made.min(axis=0), made.max(axis=0)
            verdict = ["inside" if low[i] <= value <= high[i] else "OUTSIDE" for i, value in enumerate((mean, tail))]
            away = (np.array([mean, tail]) - made.mean(axis=0)) / made.std(axis=0)
            print(f"    as {peer.label:21s} {_range(made)}; theirs {mean:.0f} / {tail:.0f}: {verdict[0]} / {verdict[1]}, "
                  f"{away[0]:+.1f} / {away[1]:+.1f} standard deviations")  # fmt: skip


def _range(made: Any) -> str:
    (a, c), (b, d) = made.min(axis=0), made.max(axis=0)
    return f"{a:5.0f} to {b:5.0f} / {c:5.0f} to {d:5.0f}"


def hashes(count: int = 200) -> None:
    from windtunnel.engine.flow import Demands, Variables, run
    from windtunnel.engine.routes import RouteOptions, route

    for name in ("perm_128_1MB", "perm_1024_1MB"):
        graph, flows = flows_of(name)
        ways = [_next_hops(graph, int(s), int(d)) for s, d in zip(flows.src, flows.dst, strict=True)]
        for label in ("router", "dice"):
            found = []
            for seed in range(1, count + 1):
                if label == "router":
                    paths = route(graph, flows.src, flows.dst, options=RouteOptions(seed=seed))
                else:
                    paths = _dice(graph, flows, ways, np.random.default_rng(seed))
                done = run(graph.link_rate, Demands.of_paths(paths), Variables(begin=flows.start, size=flows.bytes.astype(float)))
                fct = 1e6 * (done.delivered - flows.start)
                found.append((fct.mean(), np.percentile(fct, 99), len(paths.links) / len(np.unique(paths.links))))
            mean, tail, load = np.array(found).T
            print(f"{name}, {count} draws by the {label:6s}: max-min mean {mean.mean():6.1f} (sd {mean.std():4.1f}), "
                  f"p99 {tail.mean():6.1f} (sd {tail.std():4.1f}) us; {load.mean():.3f} flows a used link")  # fmt: skip


def _next_hops(graph: Any, src: int, dst: int) -> dict[int, list[int]]:
    """Node -> links that lead from it towards endpoint `dst` on a shortest path, for the nodes between."""
    into: dict[int, list[int]] = {}
    for link, node in enumerate(graph.link_to.tolist()):
        into.setdefault(node, []).append(link)
    start, end = int(graph.endpoint[src]), int(graph.endpoint[dst])
    far, found, queue = {end: 0}, {}, deque([end])
    while queue:
        node = queue.popleft()
        if far[node] >= far.get(start, 1 << 30):
            break
        for link in into[node]:
            before = int(graph.link_from[link])
            if before not in far:
                far[before] = far[node] + 1
                queue.append(before)
            if far[before] == far[node] + 1:
                found.setdefault(before, []).append(link)
    return found


def _dice(graph: Any, flows: Any, ways: list[dict[int, list[int]]], dice: Any) -> Any:
    from windtunnel.engine.graph import Paths

    links: list[int] = []
    start = [0]
    for src, dst, way in zip(flows.src, flows.dst, ways, strict=True):
        node, end = int(graph.endpoint[src]), int(graph.endpoint[dst])
        while node != end:
            links.append(way[node][dice.integers(len(way[node]))])
            node = int(graph.link_to[links[-1]])
        start.append(len(links))
    return Paths(np.array(start, np.int64), np.array(links, np.int32))


def main(arguments: list[str]) -> None:
    chosen: dict[str, str] = {}
    for flag in ("--only", "--seeds"):
        if flag in arguments:
            at = arguments.index(flag)
            chosen[flag] = arguments[at + 1]
            arguments = arguments[:at] + arguments[at + 2 :]
    if arguments:
        os.environ["FLOWS"] = str(Path(arguments[0]).resolve())
    if chosen.get("--only", "hashes") == "hashes":
        hashes()
    if chosen.get("--only", "peers") == "peers":
        peers(int(chosen.get("--seeds", "30")))


if __name__ == "__main__":
    main(sys.argv[1:])
