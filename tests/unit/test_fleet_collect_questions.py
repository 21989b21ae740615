"""Questions about a run cannot hold its collector up, whatever they do: they have processes of their own, and a limited time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fleet_collectors import Server, batch_of, collecting

from windtunnel.fleet.batch import encode
from windtunnel.fleet.collect import open_run
from windtunnel.fleet.recorded import ENDLESS, CollectorClient

LONG = 60
"""Seconds for what takes one on an idle machine."""
SMALL = {"segment_bytes": 1500}


def filled(server: Server, steps: int = 24, **told: bool) -> None:
    """Two nodes of two ranks, in several segments."""
    for sequence in range(1, steps // 4 + 1):
        for node in range(2):
            batch = batch_of(node, sequence, range(sequence * 4 - 4, sequence * 4), introduce=sequence == 1)
            assert server.ask("POST", "/v1/batches", encode(batch))[0] == 200


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in task.read_text().split()]


def stuck_file(folder: Path) -> Path:
    """Replaces a stored file by a pipe that nobody writes to: whoever reads it waits for ever."""
    file = sorted((folder / "data").glob("sections-*.parquet"))[0]
    file.unlink()
    os.mkfifo(file)
    return file


RANGES = [
    range(-1, ENDLESS), range(5, ENDLESS), range(5, 9), range(0, ENDLESS, 3), range(20, 3, -2), range(9, 9), range(ENDLESS, 0),
    range(ENDLESS, 4, -5), [3, 7], [],
]  # fmt: skip


@pytest.mark.parametrize("steps", RANGES, ids=str)
def test_any_selection_of_steps_is_answered_from_compacted_segments(tmp_path: Path, steps: range | list[int]) -> None:
    with collecting(tmp_path, policy=SMALL) as server:
        filled(server)
        until(lambda: len(list((tmp_path / "data").glob("sections-*"))) >= 3, "no segment was compacted")
        store, client = open_run(tmp_path), CollectorClient(server.url)
        wanted = [step for step in range(24) if step in steps]
        for run in (store, client):
            found = run.sections(steps)
            assert sorted(set(found.step.tolist())) == wanted and len(found) == len(wanted) * 4 * 5
        assert sorted(set(store.summaries(steps).step.tolist())) == wanted
        assert len(store.sections(None, steps)) == len([rank for rank in range(4) if rank in steps]) * 24 * 5
        store.close()
        client.close()


def test_a_question_that_never_ends_is_given_up_and_nothing_else_waits_for_it(tmp_path: Path) -> None:
    with collecting(tmp_path, policy={**SMALL, "question_seconds": 2.0}) as server:
        filled(server)
        until(lambda: len(list((tmp_path / "data").glob("sections-*"))) >= 3, "no segment was compacted")
        stuck_file(tmp_path)
        status, told = server.ask("GET", "/v1/sections?steps=0:4")
        assert status == 503 and "more than 2 s" in told["error"]
        assert server.ask("GET", "/v1/heartbeats")[0] == 200
        assert server.ask("POST", "/v1/batches", encode(batch_of(0, 7, range(24, 28))))[0] == 200
        assert server.ask("GET", "/v1/sections?steps=20:24")[0] == 200


def test_sigterm_ends_a_collector_whose_questions_never_end(tmp_path: Path) -> None:
    server = Server(tmp_path, policy={**SMALL, "question_seconds": 600.0, "close_seconds": 1.0})
    filled(server)
    until(lambda: len(list((tmp_path / "data").glob("sections-*"))) >= 3, "no segment was compacted")
    stuck_file(tmp_path)
    clients = [CollectorClient(server.url) for _ in range(4)]
    for client in clients:
        client._connection.request("GET", "/v1/sections?steps=0:4", headers=client._headers)
    pid = server._job.pids[0]
    until(lambda: len(children(pid)) >= 2, "no process answers")
    answering = children(pid)
    assert server.kill(signal.SIGTERM) in (0, -signal.SIGTERM)
    until(lambda: not any(Path(f"/proc/{one}/fd").exists() and _lives(one) for one in answering), "a process was left")
    for client in clients:
        client.close()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_stopped_and_a_killed_process_are_replaced(tmp_path: Path) -> None:
    with collecting(tmp_path, policy={**SMALL, "question_seconds": 3.0}) as server:
        filled(server)
        assert server.ask("GET", "/v1/heartbeats")[0] == 200
        (first,) = children(server._job.pids[0])
        os.kill(first, signal.SIGSTOP)
        assert server.ask("GET", "/v1/heartbeats")[0] == 503
        assert server.ask("GET", "/v1/heartbeats")[0] == 200
        (second,) = (one for one in children(server._job.pids[0]) if one != first)
        os.kill(second, signal.SIGKILL)
        until(lambda: not _lives(second), "it was killed")
        assert server.ask("GET", "/v1/heartbeats")[0] == 503  # the collector sees it when it asks
        assert server.ask("GET", "/v1/heartbeats")[0] == 200


def test_many_questions_at_once_are_all_answered_by_few_processes(tmp_path: Path) -> None:
    with collecting(tmp_path, policy={**SMALL, "idle_seconds": 0.1, "tick_seconds": 0.05}) as server:
        filled(server)
        clients = [CollectorClient(server.url) for _ in range(12)]
        for client in clients:
            client._connection.request("GET", "/v1/overview", headers=client._headers)
        assert [client._connection.getresponse().status for client in clients] == [200] * 12
        assert len(children(server._job.pids[0])) <= 2
        until(lambda: len(children(server._job.pids[0])) == 1, "an idle process stayed")
        for client in clients:
            client.close()


def started_again(server: Server, boot: int, steps: range, *, run: str = "job", world: int = 2, ranks: int = 2) -> None:
    """A start of a job, whose ranks are new processes."""
    batch = batch_of(0, 1, steps, ranks=ranks, boot=boot.to_bytes(16, "big"), introduce=True)
    for beat in batch.meta.beats:
        assert beat.identity is not None
        beat.identity.run, beat.identity.world, beat.identity.pid = run, world, 100 + boot
        beat.ring = beat.identity.key()
    assert server.ask("POST", "/v1/batches", encode(batch))[0] == 200


@pytest.mark.parametrize("policy", [{}, {"segment_bytes": 1}], ids=["in the log", "compacted"])
def test_steps_that_were_repeated_and_other_runs_do_not_mix(tmp_path: Path, policy: dict[str, int]) -> None:
    with collecting(tmp_path, policy=policy) as server:
        store = None
        started_again(server, 1, range(10))
        started_again(server, 2, range(6, 14))
        store = open_run(tmp_path)
        found = store.sections()
        steps, counts = np.unique(found.step[found.rank == 0], return_counts=True)
        assert steps.tolist() == list(range(14)) and set(counts.tolist()) == {5}
        assert len(store.rows()["step"]) == 2 * 18 * 5  # nothing is lost of what came
        started_again(server, 3, range(3), run="another", world=1, ranks=1)
        found = store.sections()
        assert set(found.rank.tolist()) == {0} and sorted(set(found.step.tolist())) == [0, 1, 2] and len(found) == 15
        assert [beat.rank for beat in store.heartbeats()] == [0]
        overview = store.overview()
        assert (overview["run"], overview["world"], overview["earlier"]) == ("another", 1, ["job"])
        started_again(server, 4, range(2), run="another", world=1, ranks=1)  # in full again
        assert sorted(set(store.sections(range(-1, ENDLESS)).step.tolist())) == [0, 1]
        store.close()


def cut(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])


def overwrite(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + bytes(len(raw) - 40) + raw[-36:])  # its ends are those of a whole file


@pytest.mark.parametrize("spoil", [cut, overwrite, lambda path: path.write_bytes(b"")], ids=["cut", "overwritten", "empty"])
def test_a_damaged_file_is_left_out_and_the_rest_is_answered(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    with collecting(tmp_path, policy={"segment_bytes": 1}) as server:
        filled(server)
        until(lambda: len(list((tmp_path / "data").glob("sections-*.parquet"))) == 12, "no segment was compacted")
        spoil(tmp_path / "data" / "sections-00000001.parquet")
        spoil(tmp_path / "data" / "summaries-00000002.parquet")
        store = open_run(tmp_path)
        found = store.sections()
        assert len(found) == 4 * 24 * 5 - 2 * 4 * 5 and store.damaged == {"data/sections-00000001.parquet"}
        assert len(store.summaries()) == 4 * 24 * 5 - 2 * 4 * 5 and len(store.damaged) == 2
        assert server.ask("GET", "/v1/findings")[0] == 200
        store.close()
