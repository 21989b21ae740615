"""A driver that has run out of nodes in a Slurm job, in virtual time; and what scontrol is asked."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from fleet_world import World, virtual

from windtunnel.fleet.driver.plan import JobPlan, RecoveryPolicy, requeued_state
from windtunnel.fleet.engines.slurm import is_requeued, requeue, requeueable_job
from windtunnel.records.incidents import read_incidents

SCONTROL = """#!{python}
import sys
open({log!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
print("JobId=77 JobName=train Requeue={requeue} Restarts=0")
"""


class LastNodes(World):
    """A fleet in which a lost node does not come back."""

    async def restart(self, node: str) -> None:
        await asyncio.sleep(0.3)
        if not self.nodes[node].dead:
            await super().restart(node)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_job_without_nodes_is_requeued_where_slurm_allows_it(tmp_path: Path, allowed: bool) -> None:
    plan = JobPlan(("train",), 2, 2, 0, "job", str(tmp_path), adopt_seconds=5.0, policy=RecoveryPolicy(retries=6))
    world = LastNodes(plan, tmp_path, requeue_job="77" if allowed else "")
    code = virtual(world.run([(5.0, "node-lost", 1)]))
    assert world.state is not None
    last = read_incidents(tmp_path)[-1]
    if not allowed:
        assert (code, world.state.phase, last.outcome) == (1, "ENDED", "stopped")
        return
    assert (code, world.state.phase, last.what, last.outcome) == (os.EX_TEMPFAIL, "REQUEUED", "node-lost", "open")
    assert any("Slurm requeues job 77" in line for line in world.history)
    assert not list(world.living())
    again = requeued_state(world.state)
    assert (again.nodes, again.spares, again.phase, again.attempt) == ([], [], "REQUEUED", world.state.attempt)
    assert again.open == world.state.open and again.blocked == world.state.blocked


@pytest.mark.parametrize("allowed", [0, 1])
def test_slurm_is_asked_by_the_jobs_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    log, program = tmp_path / "asked", tmp_path / "scontrol"
    program.write_text(SCONTROL.format(python=sys.executable, log=str(log), requeue=allowed))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert requeueable_job() == ""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert requeueable_job() == ("77" if allowed else "")
    assert requeue("77")
    assert log.read_text() == "show job 77\nrequeue 77\n"


@pytest.mark.parametrize(("count", "again"), [("", False), ("0", False), ("1", True), ("what", False)])
def test_slurm_counts_its_restarts(monkeypatch: pytest.MonkeyPatch, count: str, again: bool) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", count)
    assert is_requeued() == again
