"""Faults before the first step, in real ranks: each is named within 20 s, with the rank that is to blame."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.fleet.api import find_hang
from windtunnel.fleet.launch.command import environment
from windtunnel.fleet.monitor import Monitor
from windtunnel.fleet.sources import read_run
from windtunnel.fleet.wire.ports import free_port

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
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
if not (what == "group" and rank == 2):
    dist.new_group()
dist.barrier()
time.sleep(1000)
"""


@pytest.mark.parametrize(
    "what, world, blamed, words",
    [
        ("world", 4, 3, "WORLD_SIZE is the number of ranks that were started"),
        ("late", 3, 1, "has not begun store 0 of start-up"),
        ("group", 3, 2, "where ranks 0 and 1 are in new_group 2 of start-up"),
    ],
)
def test_a_fault_before_the_first_step_is_named(tmp_path: Path, what: str, world: int, blamed: int, words: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    base = {**environment(tmp_path, "job"), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    names = [{**base, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)} for rank in range(3)]
    command = [sys.executable, str(script), what]
    ranks = [subprocess.Popen(command, env={**os.environ, **name}, stderr=subprocess.DEVNULL) for name in names]
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
        for rank in ranks:
            rank.kill()
            rank.wait()
