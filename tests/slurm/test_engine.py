"""Agents on a real Slurm: they start, are found again by another engine, end, and a lost node takes only its own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, why_not
from windtunnel.fleet.engines.engine import AgentCommand
from windtunnel.fleet.engines.slurm import SlurmEngine, SlurmError

pytestmark = pytest.mark.slurm
AGENT = Path(__file__).with_name("agent.py")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if why_not():
        pytest.skip(why_not())
    before = os.environ.get("SLURM_CONF")
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), 4) as cluster:
        os.environ.update(cluster.variables)
        yield cluster
    os.environ.pop("SLURM_CONF")
    if before is not None:
        os.environ["SLURM_CONF"] = before


@pytest.fixture
def engine(slurm: SlurmCluster, tmp_path: Path) -> Iterator[SlurmEngine]:
    secrets = tmp_path / "secrets"
    secrets.write_text("hidden-token")
    secrets.chmod(0o600)
    command = AgentCommand("127.0.0.1:1", secrets, tmp_path, (sys.executable, str(AGENT)))
    made = SlurmEngine(command, tmp_path, fresh=0.0, wait=60.0)
    yield made
    made.close()


def wait_for(done: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.1)


def agents(folder: Path) -> list[dict[str, str]]:
    found = []
    for file in folder.glob("is-*.json"):
        text = file.read_text()
        if text:
            found.append(json.loads(text))
    return found


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_an_agent_on_each_node_and_none_after_the_end(engine: SlurmEngine, tmp_path: Path) -> None:
    nodes = engine.acquire(3)
    assert len(set(nodes)) == 3
    assert engine.acquire(3) == nodes
    engine.start(nodes)
    wait_for(lambda: len(agents(tmp_path)) == 3)
    found = agents(tmp_path)
    assert {one["node"] for one in found} == {one["host"] for one in found} == set(nodes)
    assert all(engine.is_running(node) and engine.place(node) == node for node in nodes)
    engine.close()
    wait_for(lambda: not any(runs(int(one["pid"])) for one in found))


def test_the_secret_is_in_a_file_and_on_no_command_line(
    engine: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDTUNNEL_FLEET_TOKEN", "hidden-token")
    engine.start(engine.acquire(1))
    wait_for(lambda: len(agents(tmp_path)) == 1)
    (found,) = agents(tmp_path)
    assert found["secret"] == "hidden-token"
    assert found["token"] is None
    lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    assert not any(b"hidden-token" in line for line in lines)


def test_one_agent_stops_and_starts_again_beside_another(engine: SlurmEngine, tmp_path: Path) -> None:
    first, second = engine.acquire(2)
    engine.start((first, second))
    wait_for(lambda: len(agents(tmp_path)) == 2)
    pids = {one["node"]: int(one["pid"]) for one in agents(tmp_path)}
    engine.stop(first)
    assert not engine.is_running(first)
    assert engine.is_running(second)
    wait_for(lambda: not runs(pids[first]))
    assert runs(pids[second])
    engine.start((first,))
    wait_for(lambda: len(agents(tmp_path)) == 3)
    assert engine.is_running(first)


def test_an_agent_that_is_killed_is_not_alive(engine: SlurmEngine, tmp_path: Path) -> None:
    (node,) = engine.acquire(1)
    engine.start((node,))
    wait_for(lambda: len(agents(tmp_path)) == 1)
    os.kill(int(agents(tmp_path)[0]["pid"]), 9)
    wait_for(lambda: not engine.is_running(node))


def test_a_driver_that_starts_again_finds_the_agents(engine: SlurmEngine, tmp_path: Path) -> None:
    nodes = engine.acquire(2)
    engine.start(nodes)
    wait_for(lambda: all(engine.is_running(node) for node in nodes) and len(agents(tmp_path)) == 2)
    another = SlurmEngine(engine.command, tmp_path, fresh=0.0)
    assert another.acquire(2) == nodes
    assert all(another.is_running(node) for node in nodes)
    another.stop(nodes[0])
    wait_for(lambda: not engine.is_running(nodes[0]))
    assert engine.is_running(nodes[1])


def test_a_node_that_goes_down_takes_its_agent_only(slurm: SlurmCluster, engine: SlurmEngine, tmp_path: Path) -> None:
    nodes = engine.acquire(3)
    engine.start(nodes)
    wait_for(lambda: all(engine.is_running(node) for node in nodes) and len(agents(tmp_path)) == 3)
    pids = {one["node"]: int(one["pid"]) for one in agents(tmp_path)}
    slurm.down(nodes[1])
    try:
        wait_for(lambda: not engine.is_running(nodes[1]))
        assert engine.is_running(nodes[0])
        assert engine.is_running(nodes[2])
        assert runs(pids[nodes[0]])
        assert runs(pids[nodes[2]])
        with pytest.raises(SlurmError, match="in no allocation"):
            engine.start((nodes[1],))
        mended = engine.acquire(3)  # from another allocation
        assert set(nodes) - {nodes[1]} <= set(mended)
        (new,) = set(mended) - set(nodes)
        engine.start((new,))
        wait_for(lambda: engine.is_running(new) and any(one["node"] == new for one in agents(tmp_path)))
    finally:
        slurm.up(nodes[1])
        slurm.slurm("scontrol", "update", f"nodename={nodes[1]}", "state=resume")


def test_what_slurm_refuses_is_said(engine: SlurmEngine) -> None:
    engine.options = ("--partition=nowhere",)
    with pytest.raises(SlurmError, match="partition"):
        engine.acquire(1)
