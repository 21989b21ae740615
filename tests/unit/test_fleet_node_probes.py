"""What an agent reads of its node."""

from __future__ import annotations

from pathlib import Path

from windtunnel.fleet.watch.ends import memory_events_path, memory_kills

GROUPS = "9:name=systemd:/\n4:memory:/jobs/one\n0::/jobs/two\n"


def test_kills_for_memory_in_either_version_of_cgroups(tmp_path: Path) -> None:
    first = tmp_path / "memory" / "jobs" / "one" / "memory.oom_control"
    first.parent.mkdir(parents=True)
    first.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert memory_events_path(GROUPS, tmp_path) == first
    assert memory_kills(str(first)) == 3
    second = tmp_path / "jobs" / "two" / "memory.events"
    second.parent.mkdir(parents=True)
    second.write_text("low 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n")
    assert memory_events_path(GROUPS, tmp_path) == second
    assert memory_kills(str(second)) == 2


def test_a_container_sees_its_own_root(tmp_path: Path) -> None:
    root = tmp_path / "memory.events"
    root.write_text("oom_kill 1\n")
    assert memory_events_path("0::/kubepods/pod1\n", tmp_path) == root
    assert memory_kills(str(tmp_path / "none")) == 0
