"""Agents as processes of this machine: started, found again by another engine, ended with all that they started."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.fleet.driver.node_logs import ended_agents
from windtunnel.fleet.engines.engine import SECRETS, AgentCommand
from windtunnel.fleet.engines.local import LocalEngine, Process

AGENT = """
import os, subprocess, sys, time
from pathlib import Path
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
seen = [os.environ.get("WINDTUNNEL_FLEET_TOKEN", "none"), os.environ["WINDTUNNEL_FLEET_SECRETS"]]
new = Path(given["--folder"], given["--node"] + ".new")
new.write_text(f"{os.getpid()} {child.pid} {' '.join(seen)}")
new.rename(new.with_suffix(".is"))
time.sleep(600)
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    program, secrets = tmp_path / "agent.py", tmp_path / "secrets"
    program.write_text(AGENT)
    secrets.write_text("hidden")
    secrets.chmod(0o600)
    made = LocalEngine(AgentCommand("127.0.0.1:1", secrets, tmp_path, (sys.executable, str(program))), tmp_path / "agents")
    yield made
    made.close()


def wait_for(done: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


def said(folder: Path, node: str) -> list[str]:
    wait_for((folder / f"{node}.is").exists)
    return (folder / f"{node}.is").read_text().split()


def gone(pid: int) -> bool:
    return Process.of(pid) is None


def test_agents_start_and_end_with_their_children(engine: LocalEngine, tmp_path: Path) -> None:
    nodes = engine.acquire(2)
    engine.start(nodes)
    pids = [int(one) for node in nodes for one in said(tmp_path, node)[:2]]
    assert all(engine.is_running(node) for node in nodes)
    engine.stop(nodes[0])
    assert not engine.is_running(nodes[0])
    assert engine.is_running(nodes[1])
    wait_for(lambda: gone(pids[0]) and gone(pids[1]))
    engine.close()
    wait_for(lambda: all(gone(pid) for pid in pids))


def test_an_agent_that_is_killed_is_not_alive_and_starts_again(engine: LocalEngine, tmp_path: Path) -> None:
    (node,) = engine.acquire(1)
    engine.start((node,))
    pid, child = (int(one) for one in said(tmp_path, node)[:2])
    os.kill(pid, 9)
    wait_for(lambda: not engine.is_running(node))
    os.kill(child, 9)
    (tmp_path / f"{node}.is").unlink()
    engine.start((node,))
    assert int(said(tmp_path, node)[0]) != pid


def test_the_last_line_of_an_agent_that_has_ended_is_found(engine: LocalEngine, tmp_path: Path) -> None:
    """Of those that have ended alone; escapes of a terminal are left out."""
    first, second = engine.acquire(2)
    engine.start([first, second])
    pid = int(said(tmp_path, first)[0])
    said(tmp_path, second)
    for node in (first, second):
        (engine.folder / f"agent-{node}.log").write_text("begins\n\x1b[31mPermissionError: /tmp/windtunnel-0\x1b[0m\n\n")
    os.kill(pid, 9)
    wait_for(lambda: not engine.is_running(first))
    assert ended_agents(engine, engine.folder, [first, second, "elsewhere"]) == {first: "PermissionError: /tmp/windtunnel-0"}
    (engine.folder / f"agent-{first}.log").write_text("")
    assert ended_agents(engine, engine.folder, [first]) == {first: "it wrote nothing"}


def test_another_engine_finds_the_agents(engine: LocalEngine, tmp_path: Path) -> None:
    nodes = engine.acquire(1)
    engine.start(nodes)
    pid = int(said(tmp_path, nodes[0])[0])
    another = LocalEngine(engine.command, engine.folder)
    assert another.is_running(nodes[0])
    another.stop(nodes[0])
    wait_for(lambda: gone(pid))
    assert not engine.is_running(nodes[0])


def test_an_id_that_another_process_has_now_is_left_alone(engine: LocalEngine, tmp_path: Path) -> None:
    engine.acquire(1)
    (engine.folder / "agent-node0.json").write_text(f'{{"pid": {os.getpid()}, "started": 1}}')
    assert not engine.is_running("node0")
    engine.stop("node0")


def test_the_drivers_token_is_not_in_the_agents_environment(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDTUNNEL_FLEET_TOKEN", "hidden")
    engine.start(engine.acquire(1))
    assert said(tmp_path, "node0")[2:] == ["none", str(tmp_path / "secrets")]
    assert "hidden" not in " ".join(engine.command.of("node0"))
    assert SECRETS in engine.command.variables()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_secrets_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("hidden")
    secrets.chmod(mode)
    with pytest.raises(SpecError, match="chmod 600"):
        AgentCommand("127.0.0.1:1", secrets)


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden"])
def test_a_name_that_is_no_part_of_a_file_name_is_refused(engine: LocalEngine, name: str) -> None:
    with pytest.raises(SpecError, match="letters"):
        engine.start((name,))
