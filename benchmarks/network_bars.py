"""The bars of the network engines: speed, memory, agreement, and permutations beside other simulators (permutations.py).

    python benchmarks/network_bars.py [FOLDER] [--only speed|threads|flow|agreement|peers|step|skip]

FOLDER holds perm_128_10MB.csv and the like (src,dst,bytes,start_s); without it, patterns of the same shape are drawn. Each
measurement runs in a process of its own, so that its memory is its own; times are CPU seconds, medians of three. Asserts nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import permutations
from permutations import flows_of


def packet(name: str, cc: str = "dcqcn", threads: int = 1, seed: int = 1, **more: float) -> dict[str, float]:
    """One packet run: hops, CPU and wall seconds, completion times in microseconds."""
    from dataclasses import replace

    import numpy as np

    from windtunnel.engine.packet import plain_lanes, run_packets
    from windtunnel.engine.routes import RouteOptions, route
    from windtunnel.network.simulate.packet_settings import PacketSettings

    graph, flows = flows_of(name)
    options = replace(PacketSettings(cc=cc, threads=threads).options("ecmp", 4096, seed)[0], **more)
    paths = route(graph, flows.src, flows.dst, options=RouteOptions(seed=seed))
    before, wall = peak(), time.perf_counter()
    done = run_packets(graph, paths, plain_lanes(flows.src, flows.dst, flows.bytes, flows.start), options)
    hops = done.stats["data_packet_hops"] + done.stats["ack_packet_hops"]
    fct = done.fct * 1e6
    return {
        "hops": hops, "events": done.stats["events"], "cpu": done.stats["cpu_s"], "wall": time.perf_counter() - wall,
        "megabytes": peak() - before, "mean": float(fct.mean()), "p99": float(np.percentile(fct, 99)), "max": float(fct.max()),
        "pauses": done.stats["pfc_pauses"],
    }  # fmt: skip


def peak() -> float:
    """Most memory of this process so far, MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def all_to_all() -> dict[str, float]:
    """1,024 ranks, every ordered pair, 64 KiB: a million flows, paths included."""
    import numpy as np

    from windtunnel.engine.flow import Demands, Variables, run
    from windtunnel.engine.routes import route
    from windtunnel.network.fabrics import parse_fabric
    from windtunnel.network.flows.flow_list import load_flows

    graph = parse_fabric("fat_tree:k=16,link=400Gb/s,latency=1us")
    flows = load_flows("all_to_all:bytes=64KiB", graph.endpoints)
    began = time.process_time()
    paths = route(graph, flows.src, flows.dst)
    routed = time.process_time()
    done = run(graph.link_rate, Demands.of_paths(paths), Variables(begin=flows.start, size=flows.bytes.astype(np.float64)))
    full = float((done.use.bytes / (graph.link_rate * done.last)).max())
    return {"flows": len(flows), "routes": routed - began, "cpu": time.process_time() - began, "megabytes": peak(), "fullest": full}


def step(network: str = "flow", job: str = "megascale-175b-12288") -> dict[str, float]:
    """A whole training step over a network."""
    import windtunnel as wt
    from windtunnel.predict import predict

    loaded = wt.load(job)
    began = time.process_time()
    made = predict(loaded, network)
    return {"seconds": made.step_time_s, "cpu": time.process_time() - began, "megabytes": peak()}


def agreement() -> dict[str, float]:
    """One flow over 2, 4 and 6 links in each engine, and an incast, against what links allow."""
    import numpy as np

    from windtunnel.network.fabrics import parse_fabric
    from windtunnel.network.flows.flow_list import make_flows
    from windtunnel.network.flows.run import FlowOptions, run_flows

    found = {}
    for rate in ("100Gb/s", "400Gb/s"):
        graph = parse_fabric(f"fat_tree:k=8,link={rate},latency=1us")
        for dst, links in ((1, 2), (5, 4), (100, 6)):
            for size in (65_536, 2**20, 10 * 2**20, 2**30):
                one = make_flows([0], [dst], [size], [0.0], 128)
                times = [run_flows(graph, one, FlowOptions(network=n)).fct[0] for n in ("closed", "flow", "packet")]
                found[f"{size >> 10} KiB, {links} links, {rate}"] = float(np.max(times) / np.min(times) - 1.0)
    return {"largest": max(found.values())}


def incast(
    network: str, senders: int = 31, size: int = 2**20, rate: int = 100, seeds: int = 1, cc: str = "dcqcn"
) -> dict[str, float]:
    """Last end of an incast over bytes / rate of the receiver's link: the worst of `seeds` hashes."""
    from windtunnel.network.fabrics import parse_fabric
    from windtunnel.network.flows.flow_list import load_flows
    from windtunnel.network.flows.run import FlowOptions, run_flows
    from windtunnel.network.simulate.packet_settings import PacketSettings

    graph = parse_fabric(f"fat_tree:k=8,link={rate}Gb/s,latency=1us")
    flows = load_flows(f"incast:dst=0,senders={senders},seed=1,bytes={size}", 128)
    last = 0.0
    for seed in range(1, seeds + 1):
        done = run_flows(graph, flows, FlowOptions(network=network, seed=seed, packet=PacketSettings(cc=cc)))
        last = max(last, float(done.fct.max()))
    return {"over": last / (senders * size / (rate / 8 * 1e9)) - 1.0}


def apart(call: str, **arguments: object) -> dict[str, float]:
    """Runs a function of this file in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--call", json.dumps([call, arguments])], check=True, capture_output=True, text=True
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def speed() -> None:
    for name, bar, memory in (("perm_128_10MB", 5.0, 16), ("perm_1024_1MB", 4.0, 90)):
        runs = [apart("packet", name=name) for _ in range(3)]
        rate = statistics.median(r["hops"] / r["cpu"] for r in runs) / 1e6
        one = runs[0]
        print(f"packet, {name}, DCQCN+PFC+ECN: {rate:5.2f} M packet-hops a CPU second (bar {bar}); "
              f"{one['events'] / one['hops']:.3f} events a hop; {max(r['megabytes'] for r in runs):.0f} MB "
              f"(csg-htsim {memory})")  # fmt: skip


def threads() -> None:
    ratios = []
    for _ in range(3):
        one, two = apart("packet", name="perm_1024_1MB"), apart("packet", name="perm_1024_1MB", threads=2)
        ratios.append(one["wall"] / two["wall"])
    equal = one["mean"] == two["mean"] and one["p99"] == two["p99"]
    print(f"two threads, 1,024 hosts: {statistics.median(ratios):.2f} times one (bar 1.6); "
          f"{'the same' if equal else 'OTHER'} completion times")  # fmt: skip


def flow() -> None:
    runs = [apart("all_to_all") for _ in range(3)]
    one = runs[0]
    print(
        f"flow, all-to-all of 1,024 ({one['flows']:,} flows): {statistics.median(r['cpu'] for r in runs):.2f} CPU s, of which "
        f"routes {one['routes']:.2f} (bar 2); {one['megabytes']:.0f} MB in all (bar 1,500); fullest link {one['fullest']:.3f}"
    )


def steps() -> None:
    done = apart("step")
    print(f"flow, step of megascale-175b-12288: {done['seconds']:.3f} s predicted in {done['cpu']:.2f} CPU s (bar 10), "
          f"{done['megabytes']:.0f} MB (bar 2,000)")  # fmt: skip


def agree() -> None:
    print(f"one flow alone, closed, flow and packet: {apart('agreement')['largest']:.2%} apart at most (bar 1 %)")
    print(f"incast of 31, flow: {apart('incast', network='flow')['over']:+.2%} over the bound (bar 2 %)")
    print(f"incast of 31, packet, worst of 10 hashes: {apart('incast', network='packet', seeds=10)['over']:+.2%} (bar 5 %)")
    for rate, size, senders in ((400, 2**20, 31), (100, 10 * 2**20, 31), *((100, 2**20, n) for n in (8, 16, 64, 100))):
        way = {"network": "packet", "senders": senders, "size": size, "rate": rate, "seeds": 10}
        print(f"    {senders} x {size >> 20} MiB at {rate} Gb/s: {apart('incast', **way)['over']:+.2%}; "
              f"without congestion control {apart('incast', cc='none', **way)['over']:+.2%}")  # fmt: skip


def ring(skip: bool) -> dict[str, float]:
    """All-reduce of 1 GiB over 1,024 GPUs of a rail-optimised RoCE fabric, as a ring."""
    from windtunnel.network import flat_group
    from windtunnel.network.simulate.collective import run_collective
    from windtunnel.spec import load_cluster
    from windtunnel.workload.ops import Comm

    cluster = load_cluster("h100-roce")
    made = run_collective(
        cluster, Comm.ALL_REDUCE, 2.0**30, flat_group(cluster, 1024), network="packet", algorithm="ring", mtu=MTU, skip=skip
    )
    return {"seconds": made.seconds, "cpu": made.stats["cpu_s"], "share": made.stats["skipped_share"]}


MTU = 32768  # 4096 takes eight minutes without skipping; the ratio is the same or better
"""Packets of the ring."""


def skips() -> None:
    full, quick = apart("ring", skip=False), apart("ring", skip=True)
    print(f"ring of 1 GiB over 1,024 GPUs, --skip: {full['cpu'] / quick['cpu']:.0f} times less CPU time (bar 100), "
          f"{quick['share']:.1%} skipped, time {quick['seconds'] / full['seconds'] - 1:+.2%} (bar 1 %)")  # fmt: skip


BARS: dict[str, Callable[[], None]] = {
    "speed": speed,
    "threads": threads,
    "flow": flow,
    "step": steps,
    "agreement": agree,
    "skip": skips,
    "peers": permutations.peers,
}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--call"]:
        name, given = json.loads(arguments[1])
        print(json.dumps(globals()[name](**given)))
        return
    only = None
    if "--only" in arguments:
        at = arguments.index("--only")
        only = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    if arguments:
        os.environ["FLOWS"] = str(Path(arguments[0]).resolve())
    for name, bar in BARS.items():
        if only in (None, name):
            bar()


if __name__ == "__main__":
    main(sys.argv[1:])
