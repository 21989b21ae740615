"""What one core of collector holds: 10,000 simulated ranks × 50 records a step × 1 step a second.

    python benchmarks/fleet_collector.py [--ranks 10000] [--records 50] [--seconds 60] [--every 4] [--rate 1.0] [--no-kill]

One process plays all nodes of 8 ranks, each with a connection of its own, on core 1; the collector is held on core 0 with taskset.
Each node sends its ranks' records of `--every` steps each `--every` seconds, evenly spread over them. The records are made once for
16 kinds of node (durations and gaps are random), and each batch gets its own steps, times, row numbers and checksum. `--rate` above
1 sends faster than real time: the ceiling. At the end the collector is killed with -9 while batches are under way, started again,
and every row that was acknowledged is looked up: by (rank, number), each exactly once, its values as sent (by their sum).

Prints what the collector used as Linux counts it (/proc/PID/stat), so that what else the machine does counts little; latencies and
the rate that was reached do suffer from it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.fleet.batch import OPEN_ROWS, SUMMARIES, Batch, BatchMeta, BatchTable, RankBeat, RingIdentity, encode, table_of_rows
from windtunnel.fleet.collect import open_run
from windtunnel.fleet.ring import ROW, RowState

RANKS_A_NODE = 8
KINDS = 16
DIRECT = """
import sys
from windtunnel.cli.fleet.collect import command
command(dir=sys.argv[1], port=int(sys.argv[2]), host="127.0.0.1", unix=None, token_file=None, secrets=None, db=None, keep_days=7.0,
        keep_gib=200.0, keep_summaries=365.0, otlp=None, otlp_ranks="0")
"""


@dataclass
class Tally:
    """What the nodes were told."""

    acknowledged: int = 0  # batches
    rows: int = 0
    bytes: int = 0
    refused: int = 0
    failed: int = 0
    late: float = 0.0
    seconds: list[float] = field(default_factory=list)  # from sending to the answer


def records(kind: int, steps: int, each: int) -> tuple[Any, list[Any]]:
    """Rows of the 8 ranks of a kind of node for `steps` steps from step 0, and their numbers from 0."""
    rng = np.random.default_rng(kind)
    rows, numbers = [], []
    for _ in range(RANKS_A_NODE):
        count = steps * each
        one = np.zeros(count, ROW)
        one["step"] = np.repeat(np.arange(steps), each)
        inside = np.sort(rng.integers(0, 900_000_000, (steps, each)), axis=1)
        one["begin"] = (inside + np.arange(steps)[:, None] * 1_000_000_000).ravel()
        one["nanos"] = rng.lognormal(15, 0.8, count)
        one["host_nanos"] = one["nanos"] + rng.integers(1000, 9000, count)
        one["section"] = np.tile(np.array([1, 4, 2, 4, 4, 4, 1, 4, 2, 3])[np.arange(each) % 10], steps)
        call = one["section"] == 4
        one["comm"] = np.where(call, 1, 0)
        one["bytes"] = np.where(call, np.tile(1 << np.arange(each) % 12 + 12, steps), -1)
        one["group"] = np.where(call, np.tile(np.arange(each) % 3, steps), -1)
        one["call"] = np.where(call, np.arange(count), -1)
        one["name"] = np.tile(np.arange(each) % 17, steps)
        one["micro_batch"] = np.tile(np.arange(each) // 12, steps)
        one["peer"] = -1
        one["state"] = RowState.DONE
        rows.append(one)
        numbers.append(np.arange(count))
    return rows, numbers


class Fleet:
    """Batches of all nodes. `shift` moves a kind's batch to its steps: the head words are made anew, tables packed from shifted
    columns.
    """

    def __init__(self, ranks: int, steps: int, each: int) -> None:
        self.nodes, self.steps, self.each = ranks // RANKS_A_NODE, steps, each
        self.tables = []
        for kind in range(KINDS):
            rows, numbers = records(kind, steps, each)
            self.tables.append(table_of_rows(numbers, rows))
        self.zero = time.time_ns()
        self.identities = [self._identities(node) for node in range(self.nodes)]
        self.keys = [[one.key() for one in identities] for identities in self.identities]
        self.empty = [BatchTable.empty(names, RANKS_A_NODE) for names in (OPEN_ROWS, SUMMARIES)]

    def _identities(self, node: int) -> list[RingIdentity]:
        return [
            RingIdentity(
                "bench", node * RANKS_A_NODE + rank, self.nodes * RANKS_A_NODE, rank, f"node{node}", rank + 1, "cpu", 0, 1 << 16
            )
            for rank in range(RANKS_A_NODE)
        ]

    def batch(self, node: int, sequence: int) -> bytes:
        step = (sequence - 1) * self.steps
        first = step * self.each
        table = self.tables[node % KINDS]
        columns = dict(table.columns)
        columns["number"] = columns["number"] + first
        columns["step"] = columns["step"] + step
        columns["begin"] = columns["begin"] + (self.zero + step * 1_000_000_000)
        end = first + self.steps * self.each
        beats = [
            RankBeat(
                key,
                end,
                step + self.steps - 1,
                self.zero,
                "running",
                next=end,
                identity=self.identities[node][at] if sequence == 1 else None,
                lines_from=0 if sequence == 1 else 20,
                lines=list(range(20)) if sequence == 1 else [],
            )
            for at, key in enumerate(self.keys[node])
        ]
        lines: list[Any] = []
        if sequence == 1:
            lines = [("name", f"section {name}") for name in range(17)]
            lines += [("group", {"name": f"group {at}", "ranks": [node * 8 + rank for rank in range(8)]}) for at in range(3)]
        meta = BatchMeta(f"node{node}", self.zero, beats, lines, [(1, 2, 3, 4)])
        return encode(Batch(node.to_bytes(16, "big"), sequence, meta, BatchTable(table.runs, columns), *self.empty))


class Answer(asyncio.Protocol):
    """One node's connection: requests one after another, answers by their length. Bare, so that the client needs little of its
    core.
    """

    def __init__(self) -> None:
        self.buffer = b""
        self.waiting: asyncio.Future[int] | None = None
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        at = head.find(b"content-length: ") + 16
        size = int(head[at:].split(b"\r\n", 1)[0])
        if len(self.buffer) >= end + 4 + size and self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(int(head[9:12]))
            self.buffer = b""

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(error or ConnectionError("closed"))


async def play(fleet: Fleet, node: int, port: int, until: float, start: float, every: float, tally: Tally, last: list[int]) -> None:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(Answer, "127.0.0.1", port)
    due = start + every * (node * 997 % fleet.nodes) / fleet.nodes
    while due < until:
        await asyncio.sleep(max(0.0, due - loop.time()))
        sequence = last[node] + 1
        body = fleet.batch(node, sequence)
        while True:
            sent = loop.time()
            if protocol.closed:
                return
            protocol.waiting = loop.create_future()
            head = b"POST /v1/batches HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\ncontent-length: %d\r\n\r\n"
            protocol.transport.write(head % (TOKEN.encode(), len(body)) + body)
            try:
                status = await protocol.waiting
            except (OSError, ConnectionError):
                tally.failed += 1
                return
            if status == 200:
                break
            tally.refused += 1
            await asyncio.sleep(1.0)
        tally.seconds.append(loop.time() - sent)
        tally.late = max(tally.late, sent - due)
        last[node] = sequence
        tally.acknowledged += 1
        tally.rows += RANKS_A_NODE * fleet.steps * fleet.each
        tally.bytes += len(body)
        due = max(due + every, loop.time() - 2 * every)


def used(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


TOKEN = "benchmark"


def started(folder: Path, core: int, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    command = ["taskset", "-c", str(core), sys.executable, "-c", DIRECT, str(folder), str(port)]
    many = '{"collect": {"strangers": 4096}}'  # all nodes have the same address here
    variables = {**os.environ, "WINDTUNNEL_FLEET_TOKEN": TOKEN, "WINDTUNNEL_FLEET_TIMERS": many}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    return process, int(line.rpartition(":")[2])


async def watch(pid: int, folder: Path, tally: Tally, seconds: float) -> list[float]:
    sizes, begin, cpu = [], time.monotonic(), used(pid)
    before = (0.0, cpu, 0)
    while time.monotonic() - begin < seconds:
        await asyncio.sleep(min(10.0, seconds))
        now, busy, rows = time.monotonic() - begin, used(pid), tally.rows
        log = sum(path.stat().st_size for path in (folder / "log").iterdir() if path.exists()) / 1e6
        span = now - before[0]
        sizes.append(resident(pid))
        print(
            f"  {now:5.0f} s  {(rows - before[2]) / span:9,.0f} records/s  collector {(busy - before[1]) / span:5.1%} of a core"
            f"  RSS {sizes[-1]:5.0f} MiB  log not compacted {log:6.1f} MB  refused {tally.refused}", flush=True,
        )  # fmt: skip
        before = (now, busy, rows)
    return sizes


async def load(
    fleet: Fleet, process: Any, port: int, folder: Path, args: argparse.Namespace, tally: Tally, last: list[int]
) -> None:
    loop = asyncio.get_running_loop()
    every = args.every / args.rate
    start = loop.time() + 1.0
    until = start + args.seconds + (0 if args.no_kill else 5)
    pid = process.pid
    nodes = [asyncio.ensure_future(play(fleet, node, port, until, start, every, tally, last)) for node in range(fleet.nodes)]
    await asyncio.sleep(start - loop.time())  # nothing is sent before: what is counted is the load itself
    begin, busy = time.monotonic(), used(pid)
    sizes = await watch(pid, folder, tally, args.seconds)
    span = time.monotonic() - begin
    quick = np.sort(tally.seconds)
    print(
        f"| {tally.rows / span:,.0f} records/s | {tally.acknowledged / span:,.0f} batches/s | {tally.bytes / tally.rows:.1f} B each"
        f" | collector {(used(pid) - busy) / span:.1%} of a core, {(used(pid) - busy) / tally.rows * 1e6:.2f} s a million records"
        f" | RSS {max(sizes):.0f} MiB at most, {sizes[-1]:.0f} at the end"
        f" | answer p50 {quick[len(quick) // 2] * 1e3:.0f} ms, p99 {quick[len(quick) * 99 // 100] * 1e3:.0f} ms |"
    )
    if not args.no_kill:
        os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*nodes, return_exceptions=True)


def checked(folder: Path, fleet: Fleet, tally: Tally, last: list[int]) -> bool:
    """Whether all rows that were acknowledged are there once; prints the counts."""
    store = open_run(folder)
    right = twice = missing = wrong = 0
    for low in range(0, fleet.nodes, 250):
        nodes = range(low, min(low + 250, fleet.nodes))
        rows = store.rows(ranks=range(nodes.start * RANKS_A_NODE, nodes.stop * RANKS_A_NODE), columns=("number", "nanos"))
        key = rows["rank"].astype(np.int64) << 32 | rows["number"]
        unique, first = np.unique(key, return_index=True)
        twice += len(key) - len(unique)
        number, nanos = unique & 0xFFFFFFFF, rows["nanos"][first]
        begins = np.searchsorted(unique >> 32, np.arange(nodes.start * RANKS_A_NODE, nodes.stop * RANKS_A_NODE + 1))
        for node in nodes:
            acknowledged = last[node] * fleet.steps * fleet.each
            table = fleet.tables[node % KINDS]
            per_rank = fleet.steps * fleet.each
            for at in range(RANKS_A_NODE):
                place = (node - nodes.start) * RANKS_A_NODE + at
                mine = slice(
                    begins[place], begins[place] + int(np.searchsorted(number[begins[place] : begins[place + 1]], acknowledged))
                )
                missing += acknowledged - (mine.stop - mine.start)
                sent = table.columns["nanos"][at * per_rank : (at + 1) * per_rank]
                same = nanos[mine] == sent[number[mine] % per_rank]
                right += int(same.sum())
                wrong += int((~same).sum())
    print(f"| acknowledged {tally.rows:,} rows | found {right:,} | missing {missing} | twice {twice} | changed {wrong} |")
    return missing == twice == wrong == 0 and right == tally.rows


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, value in (("ranks", 10_000), ("records", 50), ("seconds", 60), ("every", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--no-kill", action="store_true")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fleet-collector-"))
    core, own = sorted(os.sched_getaffinity(0))[0], sorted(os.sched_getaffinity(0))[-1]
    fleet = Fleet(args.ranks, args.every, args.records)
    tally, last = Tally(), [0] * fleet.nodes
    print(
        f"{args.ranks} ranks, {fleet.nodes} nodes, {args.records} records a step; a node sends each {args.every / args.rate:.1f} s"
    )
    process, port = started(folder, core)
    os.sched_setaffinity(0, {own})
    right = True
    try:
        asyncio.run(load(fleet, process, port, folder, args, tally, last))
        if not args.no_kill:
            process.wait()
            begin = time.monotonic()
            process, port = started(folder, core)
            print(
                f"killed with -9 and started again in {time.monotonic() - begin:.1f} s; {tally.failed} batches in flight",
                flush=True,
            )
            while any((folder / "log").iterdir()):
                time.sleep(0.2)
            print(f"its whole log compacted {time.monotonic() - begin:.1f} s after the kill", flush=True)
            right = checked(folder, fleet, tally, last)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
