"""`windtunnel fleet run --collect` around two real ranks: gloo on loopback, CPU clock."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.pytorch.watched_runs import EXAMPLE, LONG, ended, started, training
from windtunnel.fleet.collect import open_run
from windtunnel.fleet.sources import alarms_of, read_run
from windtunnel.fleet.wire.sockets import free_port
from windtunnel.records.sections import Section

torch = pytest.importorskip("torch")
pytest.importorskip("starlette")
pytestmark = pytest.mark.torch


def beside(folder: Path) -> list[int]:
    """Processes of which the command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def test_one_command_watches_an_unchanged_script_collects_ships_and_sums_up(tmp_path: Path) -> None:
    code, said, errors = ended(started(tmp_path, *training("--steps", "12", "--save", str(tmp_path / "weights.pt"))))
    assert code == 0, errors
    assert said.startswith("loss ") and "ms a step" in said
    assert re.search(r"records in .*job, collected at http://127\.0\.0\.1:\d+", errors)
    assert "windtunnel fleet: 2 ranks on 1 machine, 1" in errors and "windtunnel fleet show" in errors
    assert beside(tmp_path) == []
    kept, rings = read_run(str(tmp_path)), read_run(str(tmp_path / "job"))
    assert len(kept.sections) == len(rings.sections) > 100
    run = open_run(tmp_path / "job" / "collected")
    assert {beat.ended for beat in run.heartbeats()} == {0} and run.overview()["world"] == 2
    run.close()
    table = rings.sections
    for section in (Section.DATA, Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER, Section.CALL):
        assert len(table.where((table.rank == 1) & (table.step == 4) & (table.section == section))) >= 1, section
    saves = table.where(table.section == Section.CHECKPOINT)
    assert saves.rank.tolist() == [0] and saves.names[saves.name[0]] == "torch.save"
    assert {beat.ended for beat in rings.beats.values()} == {0} and set(rings.beats) == {0, 1}


def test_two_nodes_ship_to_one_collector_over_tls(tmp_path: Path) -> None:
    """Two `fleet run`, as two nodes would have them; the second starts first, and waits for the secrets."""
    ports = [free_port(), free_port()]
    secrets = ("--secrets", str(tmp_path / "keys"))
    nodes = []
    for rank in (1, 0):
        names = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ports[0]}
        there = (
            ("--collect", "--listen", f"127.0.0.1:{ports[1]}") if rank == 0 else ("--collector", f"https://127.0.0.1:{ports[1]}")
        )
        launch = ["env", *(f"{name}={value}" for name, value in names.items()), sys.executable, str(EXAMPLE), "--steps", "12"]
        nodes.append(started(tmp_path / f"node{rank}", *launch, options=(*there, *secrets)))
    try:
        other, _, _ = ended(nodes[0])
    finally:
        code, _, errors = ended(nodes[1], timeout=LONG if nodes[0].returncode == 0 else 1.0)
    assert (other, code) == (0, 0), errors
    assert f"collected at https://127.0.0.1:{ports[1]}" in errors and "windtunnel fleet: 2 ranks" in errors
    assert beside(tmp_path) == []
    run = open_run(tmp_path / "node0" / "job" / "collected")
    assert {beat.rank: beat.ended for beat in run.heartbeats()} == {0: 0, 1: 0} and set(run.sections().rank.tolist()) == {0, 1}
    run.close()


def test_the_exit_code_is_kept_and_nothing_stays_behind(tmp_path: Path) -> None:
    code, _, errors = ended(started(tmp_path, sys.executable, "-c", "raise SystemExit(7)"))
    assert code == 7 and "nothing was recorded" in errors and beside(tmp_path) == []


def test_records_of_killed_ranks_are_shipped_and_a_signal_is_passed_on(tmp_path: Path) -> None:
    child = started(tmp_path, *training("--steps", "1000000"))
    folder = tmp_path / "job"
    try:
        until = time.monotonic() + LONG
        while not (folder.is_dir() and len(list(folder.glob("*.ring"))) == 2 and _steps(folder) >= 3):
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.2)
        recorded = read_run(str(folder))
        os.kill(recorded.pids[1], signal.SIGKILL)  # the launcher then ends the other rank and fails
        code, _, errors = ended(child)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    assert code != 0 and "Rank 1: was ended by SIGKILL" in errors and beside(tmp_path) == []
    assert [alarm["ranks"][:1] for alarm in alarms_of(str(folder)) if alarm["verdict"] == "crash"][-1:] == [[1]]
    run = open_run(folder / "collected")
    table = run.sections()
    assert set(table.rank.tolist()) == {0, 1} and next(beat for beat in run.heartbeats() if beat.rank == 1).process == "gone"
    run.close()


def test_sigterm_ends_the_command_and_all_beside_it(tmp_path: Path) -> None:
    child = started(tmp_path, sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
    try:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        code, _, _ = ended(child)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    assert code == 128 + signal.SIGTERM and beside(tmp_path) == []


def test_agents_end_when_fleet_run_is_killed(tmp_path: Path) -> None:
    child = started(tmp_path, sys.executable, "-c", "import time; print('up', flush=True); time.sleep(5)")
    try:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        assert len(beside(tmp_path)) >= 4  # fleet run, collector, shipper, monitor
        child.kill()
        child.wait(30)
        until = time.monotonic() + LONG
        while beside(tmp_path):
            assert time.monotonic() < until, beside(tmp_path)
            time.sleep(0.2)
    finally:
        child.communicate()


def _steps(folder: Path) -> int:
    try:
        recorded = read_run(str(folder))
    except Exception:  # nothing has come yet
        return 0
    return min(beat.step for beat in recorded.beats.values()) if len(recorded.beats) == 2 else 0


STALLS = """
import time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(90):
    loss = model(torch.randn(4, 8)).sum()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 1 and step % 15 == 14:
        time.sleep(0.5)  # a logger that flushes
"""


def test_a_rank_that_stands_still_at_every_15th_step_is_named_with_its_period(tmp_path: Path) -> None:
    (tmp_path / "stalls.py").write_text(STALLS)
    child = started(
        tmp_path, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(tmp_path / "stalls.py"), options=(),
    )  # fmt: skip
    code, _, errors = ended(child)
    assert code == 0, errors
    first = next(line for line in errors.splitlines() if line.startswith("  1. "))
    assert "Rank 1 on " in first and "at every 15th step (first step 15)" in first, errors
    assert "in the mean (p50 " in errors
