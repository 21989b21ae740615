"""Agents under a real Ray of two machines (raylets) on loopback."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.clusters import ray_cluster
from windtunnel.fleet.engines.engine import AgentCommand
from windtunnel.fleet.engines.local import Process
from windtunnel.fleet.engines.ray_engine import RayEngine, RayError

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray")]
AGENT = """
import os, sys, time
from pathlib import Path
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
new = Path(given["--folder"], given["--node"] + ".new")
new.write_text(str(os.getpid()))
new.rename(new.with_suffix(".is"))
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ray_cluster() as made:
        yield made.address
        ray.shutdown()


@pytest.fixture
def engine(cluster: str, tmp_path: Path) -> Iterator[RayEngine]:
    program, secrets = tmp_path / "agent.py", tmp_path / "secrets"
    program.write_text(AGENT)
    secrets.write_text("hidden")
    secrets.chmod(0o600)
    command = AgentCommand("127.0.0.1:1", secrets, tmp_path, (sys.executable, str(program)))
    made = RayEngine(command, tmp_path.name, address=cluster, wait=60.0)
    yield made
    made.close()


def wait_for(done: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.05)


def pid_of(folder: Path, node: str) -> int:
    wait_for((folder / f"{node}.is").exists)
    return int((folder / f"{node}.is").read_text())


def test_one_agent_a_machine_stopped_started_and_found_again(engine: RayEngine, tmp_path: Path) -> None:
    nodes = engine.acquire(2)
    assert engine.acquire(2) == nodes
    engine.start(nodes)
    pids = {node: pid_of(tmp_path, node) for node in nodes}
    assert len({engine.place(node) for node in nodes}) == 2
    os.kill(pids["node0"], 9)
    wait_for(lambda: not engine.is_running("node0"))
    assert engine.is_running("node1")
    (tmp_path / "node0.is").unlink()
    engine.start(("node0",))
    assert pid_of(tmp_path, "node0") != pids["node0"]
    another = RayEngine(engine.command, engine.run, engine.address)
    assert another.is_running("node0")
    another.stop("node1")
    assert not engine.is_running("node1")
    wait_for(lambda: Process.of(pids["node1"]) is None)


def test_more_agents_than_machines_are_refused(engine: RayEngine) -> None:
    engine.wait = 2.0
    with pytest.raises(RayError, match="2 machines"):
        engine.acquire(3)
