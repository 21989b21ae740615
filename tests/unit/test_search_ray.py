"""Workers on Ray: the same answer as in process, also if one is killed; what goes wrong is said in one line."""

import os
import signal
import sys
from pathlib import Path

import pytest

from windtunnel.base.errors import EngineError, SpecError
from windtunnel.search.api import search
from windtunnel.search.find import Search, plans_of
from windtunnel.search.objective import objectives
from windtunnel.search.space import Space
from windtunnel.search.workers import RayWorkers, _join
from windtunnel.spec import load_job

SPACE = Space(
    load_job("llama3-8b-8xh100", ["plan.global_batch=32"]),
    {"plan.tp": (1, 2, 4), "plan.micro_batch": (1, 2), "plan.recompute": ("none", "full")},
)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray's own sockets
def test_ray_finds_the_same_also_if_a_worker_is_killed(tmp_path):
    """One test, so that one local cluster is enough."""
    ray = pytest.importorskip("ray")
    here = search(SPACE.job, SPACE.fields, processes=1, explained=False)
    again = search(SPACE.job, SPACE.fields, processes=2, ray="auto", explained=False)
    assert not ray.is_initialized()  # what a search starts it ends
    assert again.best == here.best

    plans = plans_of([SPACE], objectives("time"))
    every = Search(plans, objectives("time"), workers := RayWorkers(plans.jobs, 0.0, "auto", 2))
    first, task = tmp_path / "first", workers.task

    def killed_once(*trial):
        if not Path(first).exists():
            Path(first).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task._function(*trial)

    workers.task = ray.remote(num_cpus=1, max_retries=2)(killed_once)
    try:
        ranked, left = every.run()
    finally:
        workers.close()
    assert first.exists()
    assert left == 0
    assert ranked[0].change == here.best.change
    assert ranked[0].outcome == here.best.outcome


@pytest.mark.parametrize(
    ("address", "words"),
    [("127.0.0.1:1", "It does not answer"), ("10.0.0.1", "not HOST:PORT")],
)
def test_a_cluster_that_does_not_answer(address, words):
    pytest.importorskip("ray")
    with pytest.raises(SpecError, match=words):
        search(SPACE.job, SPACE.fields, ray=address, explained=False)


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"pip install 'windtunnel\[search\]'"):
        search(SPACE.job, SPACE.fields, ray="auto", explained=False)


def test_ray_that_is_slow_to_start_is_tried_again() -> None:
    class Slow:
        calls = 0

        def init(self, **_: object) -> None:
            self.calls += 1
            if self.calls < late:
                raise Exception("The current node timed out during startup. This could happen ...")

    late, ray = 3, Slow()
    _join(ray, "local", {})
    assert ray.calls == 3
    late, ray = 9, Slow()
    with pytest.raises(EngineError, match="did not start"):
        _join(ray, "local", {})
