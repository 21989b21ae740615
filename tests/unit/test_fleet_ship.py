"""The shipper: every row of a ring comes to the collector once, whoever is killed on the way; what can't come is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fleet_collectors import Server, collecting

from windtunnel.base.errors import SpecError
from windtunnel.fleet.collect import RunStore, open_run
from windtunnel.fleet.ring import RingReader, RingWriter, RowState
from windtunnel.fleet.ship import NodeShipper, ShipPolicy
from windtunnel.fleet.ship.shipper import ProcessState, RingFollower
from windtunnel.records.sections import Section

QUICK = ShipPolicy(interval=0.05, linger=0.1, patience=5.0)
RANK = """
import os, signal, sys, time
from pathlib import Path
from windtunnel.fleet.ring import RingWriter, RowState
rank, steps, how = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
ring = RingWriter(Path(sys.argv[1]) / f"rank-{rank:06d}.ring", "job", rank, 2, rank, host="node0")
name, group = ring.text("name", "forward"), ring.text("group", {"name": "dp", "ranks": [0, 1]})
for step in range(steps):
    ring.at_step(step)
    whole = ring.write(0, step, time.time_ns(), name=-1)
    for part in range(9):
        row = ring.write(1 + part % 3, step, time.time_ns(), name=name, group=group)
        ring.rewrite(row, part, part + 1, RowState.DONE)
    ring.rewrite(whole, 1000 + step, 1000 + step, RowState.DONE)
    ring.beat()
    time.sleep(0.002)
if how == "hang":
    ring.write(4, steps, 123_000_000_000, name=name, group=group, call=7)
    os.kill(os.getpid(), signal.SIGKILL)
ring.mark_ended(0)
"""


def rank_process(folder: Path, rank: int, steps: int, how: str = "end") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RANK, str(folder), str(rank), str(steps), how])


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def counted(store: RunStore, rank: int) -> list[int]:
    found = store.rows(ranks=[rank])
    return sorted(found["number"].tolist())


def test_all_rows_come_once_and_the_shipper_ends_with_its_ranks(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    with collecting(tmp_path / "run") as server:
        processes = [rank_process(rings, 0, 100), rank_process(rings, 1, 60, "hang")]
        until(lambda: len(list(rings.glob("*.ring"))) == 2)
        shipper = threading.Thread(target=lambda: done.append(NodeShipper(rings, server.url, QUICK).run()))
        done: list[object] = []
        shipper.start()
        for process in processes:
            process.wait(60)
        shipper.join(60)
        assert not shipper.is_alive() and done
        store = open_run(tmp_path / "run")
        assert counted(store, 0) == list(range(1000)) and counted(store, 1) == list(range(600))
        first, second = store.heartbeats()
        assert (first.ended, first.open, first.lost, first.step) == (0, (), 0, 99)
        assert (second.ended, second.process) == (None, "zombie") or second.process == "gone"
        (where,) = second.open
        assert (where.section, where.name, where.group, where.begin, where.call) == ("CALL", "forward", "dp", 123.0, 7)
        found = store.sections(ranks=[1])
        assert len(found) == 601 and np.isnan(found.seconds).sum() == 1
        assert all(len(stamps) > 0 and stamps[0].back >= stamps[0].sent for stamps in store.exchanges().values())
        store.close()


def test_a_killed_shipper_and_a_killed_collector_lose_nothing(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    server = Server(tmp_path / "run", policy={"segment_bytes": 4000})
    try:
        process = rank_process(rings, 0, 400)
        until(lambda: any(rings.glob("*.ring")))
        for victim in ("ship", "collect", "ship"):
            shipper = subprocess.Popen([sys.executable, "-m", "windtunnel.fleet.ship", str(rings), server.url])
            try:
                time.sleep(1.2)  # long enough for some batches; how many does not matter
            finally:
                if victim == "ship":
                    os.kill(shipper.pid, signal.SIGKILL)
                else:
                    server.kill()
                    server = Server(tmp_path / "run", port=server.port, policy={"segment_bytes": 4000})
                    time.sleep(1.0)
                    os.kill(shipper.pid, signal.SIGKILL)
                shipper.wait(60)
        process.wait(60)
        NodeShipper(rings, server.url, QUICK).run()
        store = open_run(tmp_path / "run")
        assert counted(store, 0) == list(range(4000))
        store.close()
    finally:
        server.kill(signal.SIGTERM)


def test_what_the_ring_overtakes_is_counted(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "rank-000000.ring", "job", 0, 1, rows=64)
    still_open = writer.write(Section.STEP, 0, 1)
    follower = RingFollower(writer.path, RingReader(writer.path))
    found = follower.look(1000)
    assert (found.after.waiting.tolist(), len(found.rows), found.open_numbers.tolist()) == ([still_open], 0, [0])
    follower.confirm_sent(found)
    for number in range(200):
        writer.rewrite(writer.write(Section.CALL, number, 5), 1, 1, RowState.DONE)
    found = follower.look(1000)
    assert found.after.lost == 1 + (200 - 64)
    assert found.numbers.tolist() == list(range(137, 201))
    follower.confirm_sent(found)
    assert follower.look(1000).numbers.tolist() == []
    follower.close()


def test_rows_that_end_later_come_when_they_end(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "rank-000000.ring", "job", 0, 1)
    rows = [writer.write(Section.CALL, 0, at) for at in range(5)]
    follower = RingFollower(writer.path, RingReader(writer.path))
    writer.rewrite(rows[3], 7, 7, RowState.DONE)
    writer.rewrite(rows[4], -1, 7, RowState.DONE)  # may be half written
    found = follower.look(100)
    assert found.numbers.tolist() == [3]
    follower.confirm_sent(found)
    writer.rewrite(rows[1], 9, 9, RowState.DONE)
    found = follower.look(100)
    assert found.numbers.tolist() == [1, 4] and found.after.waiting.tolist() == [0, 2]
    follower.close()


def test_beyond_the_budget_whole_steps_go_as_summaries(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "rings" / "rank-000000.ring", "job", 0, 1)
    for step in range(100):
        for part in range(10):
            writer.rewrite(writer.write(Section.CALL, step, 5), part + 1, 1, RowState.DONE)
    writer.mark_ended(0)
    with collecting(tmp_path / "run") as server:
        done = NodeShipper(tmp_path / "rings", server.url, ShipPolicy(0.05, "summary", linger=0.0)).run()
        assert (done.rows, done.reduced, done.lost) == (0, 1000, 0)
        store = open_run(tmp_path / "run")
        table = store.summaries()
        assert table.count.tolist() == [10] * 100 and np.allclose(table.sum, 55e-9) and np.allclose(table.most, 10e-9)
        assert store.heartbeats()[0].reduced == 1000 and len(store.sections()) == 0
        store.close()


def test_a_collector_that_does_not_answer_is_waited_for(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "rings" / "rank-000000.ring", "job", 0, 1)
    writer.rewrite(writer.write(Section.CALL, 0, 5), 3, 3, RowState.DONE)
    with collecting(tmp_path / "other") as server:
        port = server.port
    shipper = NodeShipper(tmp_path / "rings", f"http://127.0.0.1:{port}", QUICK)
    thread = threading.Thread(target=shipper.run)
    thread.start()
    with collecting(tmp_path / "run", port=port):
        until(lambda: shipper.done.batches > 0)
        writer.mark_ended(0)
        thread.join(60)
        store = open_run(tmp_path / "run")
        assert counted(store, 0) == [0]
        store.close()


def test_a_unix_socket_and_a_token(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "rings" / "rank-000000.ring", "job", 0, 1)
    writer.rewrite(writer.write(Section.CALL, 0, 5), 3, 3, RowState.DONE)
    writer.mark_ended(0)
    with collecting(tmp_path / "run", unix=str(tmp_path / "s"), token="secret") as server:
        assert server.url == f"unix:{tmp_path}/s"
        with pytest.raises(SpecError):
            NodeShipper(tmp_path / "rings", server.url, QUICK, "wrong").run()
        assert NodeShipper(tmp_path / "rings", server.url, QUICK, "secret").run().rows == 1
    with pytest.raises(SpecError):
        NodeShipper(tmp_path, "collector:8470")


def test_the_state_of_a_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        look = ProcessState(process.pid)
        assert look.state() in ("running", "sleeping")
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: look.state() == "stopped")
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: look.state() == "zombie")
    finally:
        process.kill()
        process.wait()
    assert look.state() == "gone"
