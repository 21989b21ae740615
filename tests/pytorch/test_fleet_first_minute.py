"""Faults before the first step, in real ranks: each is named within 20 s, with the rank that is to blame."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_ranks import RankForge

from windtunnel.base.errors import FileError
from windtunnel.fleet.api import find_hang
from windtunnel.fleet.launch.command import environment
from windtunnel.fleet.monitor import CONFIRM_SECONDS, Monitor
from windtunnel.fleet.sources import read_run
from windtunnel.fleet.wire.sockets import free_port
from windtunnel.records.sections import Section

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LONG = 100
"""Seconds for what takes some ten on an idle machine."""

SCRIPT = """
import datetime, os, sys, time
import torch
import torch.distributed as dist

rank, what = int(os.environ["RANK"]), sys.argv[1]
if what == "late" and rank == 1:
    time.sleep(1000)
while what == "busy" and rank == 1 and not os.path.exists("enough"):
    sum(range(100_000))
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
if not (what == "group" and rank == 2):
    dist.new_group()
dist.barrier()
time.sleep(1000)
"""


def written(folder: Path) -> str:
    """The script in a file."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    return str(script)


def started(folder: Path, what: str) -> list[subprocess.Popen[bytes]]:
    """Three ranks of `SCRIPT`, watched, whose records are in the run `job` of `folder`."""
    base = {**environment(folder, "job"), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    names = [{**base, "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank)} for rank in range(3)]
    command = [sys.executable, written(folder), what]
    return [subprocess.Popen(command, env={**os.environ, **name}, cwd=folder, stderr=subprocess.DEVNULL) for name in names]


def test_a_rank_that_builds_its_model_for_longer_is_no_hang(tmp_path: Path) -> None:
    """The others wait for it in the store, twice as long as one that sleeps is given."""
    ranks = started(tmp_path, "busy")
    try:
        alarms, monitor, until, waits = [], Monitor(), time.monotonic() + LONG, 0.0
        while not alarms and time.monotonic() < until:
            time.sleep(0.5)
            try:
                recorded = read_run(str(tmp_path / "job"))
            except FileError:
                continue
            alarms = monitor.look(recorded)
            joined = {int(rank) for rank in recorded.sections.rank[recorded.sections.section == Section.JOIN]}
            waits += 0.5 if len(recorded.beats) == 3 and joined == {0, 2} else 0.0
            if waits > 2 * CONFIRM_SECONDS:
                (tmp_path / "enough").touch()
            if 1 in joined:
                break
        assert [alarm.text for alarm in alarms] == [] and 1 in joined
        assert sorted(path.name for path in (tmp_path / "job").glob("*.start")) == [f"rank-00000{rank}.start" for rank in range(3)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankForge]:
    made = RankForge(Path(__file__).with_name("capture_ranks.py"), tmp_path_factory.mktemp("said"))
    yield made
    made.close()


@pytest.mark.parametrize(
    "what, world, blamed, words",
    [
        ("world", 4, 3, "WORLD_SIZE is the number of ranks that were started"),
        ("late", 3, 1, "has not begun store 0 of start-up"),
        ("group", 3, 2, "where ranks 0 and 1 are in new_group 2 of start-up"),
    ],
)
def test_a_fault_before_the_first_step_is_named(
    forge: RankForge, tmp_path: Path, what: str, world: int, blamed: int, words: str
) -> None:
    job = forge.started("run", 3, [written(tmp_path), [what], str(tmp_path)], {"name": "job", "WORLD_SIZE": str(world)})
    try:
        alarms, monitor, until = [], Monitor(), time.monotonic() + LONG
        while not alarms and time.monotonic() < until:
            time.sleep(0.5)
            try:
                alarms = monitor.look(read_run(str(tmp_path / "job")))
            except FileError:  # no rank has begun
                continue
        assert [alarm.ranks for alarm in alarms] == [(blamed,)], [alarm.text for alarm in alarms]
        assert words in alarms[0].text
        assert list(find_hang(tmp_path / "job")["culprits"]) == [str(blamed)]
    finally:
        forge.killed(job)
