"""What it costs a driver to hear a large fleet: simulated agents on connections of their own, each with a heartbeat a second.

    python benchmarks/fleet_driver.py --agents 12288 --seconds 20
    python benchmarks/fleet_driver.py --agents 12288 --seconds 20 --tls

The driver's process is pinned to one core; the agents are others. Reported: CPU seconds of the driver per second; the seconds from
the end of an agent until a rule names it; the seconds of the order for the next attempt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from windtunnel.fleet.driver.detect import DetectionLimits, detect
from windtunnel.fleet.driver.plan import RecoveryContext, RecoveryPolicy, decide
from windtunnel.fleet.driver.roster import AgentNode, Roster
from windtunnel.fleet.wire.channel import Channel, connect, listen
from windtunnel.fleet.wire.messages import AgentBeat, FromDriver, Hello, RankReport, StartRanks
from windtunnel.fleet.wire.secrets import FILE, make_secrets, read_secrets

SPARES = 64
ALL = os.sched_getaffinity(0)


async def drive(folder: Path, agents: int, processes: int, seconds: float, tls: bool) -> dict[str, float]:
    """The driver's side: all of what a driver does but the trainers."""
    secrets = make_secrets(folder)
    names = [f"node{index}" for index in range(agents)]
    roster = Roster(secrets, DetectionLimits(), fence=1, nodes={name: AgentNode(name) for name in names})
    server, address = await listen("127.0.0.1:0" if tls else f"unix:{folder / 'driver.sock'}", secrets, folder, roster.channel)
    bounds = [agents * index // processes for index in range(processes + 1)]
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--simulate", address, str(folder / FILE), str(low), str(high)],
            preexec_fn=lambda: os.sched_setaffinity(0, ALL),
        )
        for low, high in zip(bounds, bounds[1:], strict=False)
    ]
    began = time.monotonic()
    while not all(node.channel is not None for node in roster.nodes.values()):
        await asyncio.sleep(0.2)
    joined = time.monotonic() - began
    roster.begin_attempt(0, names[: agents - SPARES])
    await asyncio.sleep(3.0)
    looks, longest, heard, cpu, start = 0.0, 0.0, _heard(roster), time.process_time(), time.monotonic()
    worst = 0.0
    while time.monotonic() - start < seconds:
        await asyncio.sleep(0.25)
        now = time.monotonic()
        fault = detect(roster.snapshot(), roster.limits)
        looks = time.monotonic() - now
        longest = max(longest, looks)
        worst = max(worst, max(now - roster.nodes[name].heard for name in roster.assigned))
        assert fault is None, fault
    taken, used = time.monotonic() - start, time.process_time() - cpu
    beats = _heard(roster) - heard
    last = children[0]
    dead_at = time.time()
    os.kill(last.pid, 19)  # SIGSTOP: its agents fall silent
    while (fault := detect(roster.snapshot(), roster.limits)) is None:
        await asyncio.sleep(0.25)
    seen = time.time() - dead_at
    order = _order(roster, fault.nodes[:SPARES], agents)
    for child in children:
        child.kill()
        child.wait()
    server.close()
    return {
        "agents": agents, "tls": tls, "joined_seconds": joined, "beats_a_second": beats / taken, "cpu_a_second": used / taken,
        "longest_look_seconds": longest, "oldest_beat_seconds": worst, "dead_seen_seconds": seen, "dead": len(fault.nodes),
        "order_seconds": order, "driver_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def _heard(roster: Roster) -> int:
    return sum(node.beats for node in roster.nodes.values())


def _order(roster: Roster, gone: tuple[str, ...], agents: int) -> float:
    """Seconds to decide and to make the messages that start the next attempt."""
    import msgspec

    from windtunnel.fleet.driver.detect import DetectedFault

    began = time.monotonic()
    nodes = roster.assigned
    assigned = frozenset(nodes)
    spares = tuple(name for name in roster.nodes if name not in assigned)
    fault = DetectedFault("node-lost", gone, (), "", time.time(), time.time())
    standing = RecoveryContext(nodes, frozenset(roster.nodes) - set(gone), spares)
    decision = decide(fault, standing, RecoveryPolicy())
    assert decision.action == "replace" and len(decision.nodes) == len(nodes)
    encoder = msgspec.msgpack.Encoder()
    for index, _ in enumerate(decision.nodes):
        encoder.encode(StartRanks(1, index, 1, ("python", "train.py"), index, 1, agents, index, "10.0.0.1", 1, "run", "/run"))
    return time.monotonic() - began


async def simulate(address: str, secrets: Path, low: int, high: int) -> None:
    """Agents `low` … `high - 1`, each with one rank."""
    known = read_secrets(secrets)
    channels: list[Channel] = []
    for index in range(low, high):
        channel = await connect(address, known, lambda: Channel(FromDriver, lambda c, m: None, lambda c, w: None))
        channel.send(Hello(known.token, f"node{index}", "host", os.getpid(), 0, (RankReport(index, 1),)))
        channels.append(channel)
    slices, turn = 20, 0
    while True:
        began = time.monotonic()
        for index in range(turn % slices, len(channels), slices):
            rank = RankReport(low + index, 1, silent=0.1, progress=turn, step=turn // slices)
            channels[index].send(AgentBeat(time.time(), 0, (rank,), turn, 0, True))
        turn += 1
        await asyncio.sleep(max(0.0, 1.0 / slices - (time.monotonic() - began)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=12288)
    parser.add_argument("--processes", type=int, default=4, help="that simulate agents")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--tls", action="store_true", help="over TLS; otherwise over a private socket")
    parser.add_argument("--simulate", nargs=4, metavar=("ADDRESS", "SECRETS", "LOW", "HIGH"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.simulate:
        address, secrets, low, high = given.simulate
        asyncio.run(simulate(address, Path(secrets), int(low), int(high)))
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(drive(Path(folder), given.agents, given.processes, given.seconds, given.tls))
    print(json.dumps({name: round(value, 4) for name, value in found.items()}))


if __name__ == "__main__":
    main()
