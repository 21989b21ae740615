"""Scripts of frameworks, unedited, on 8 and on 1,024 GPUs that aren't there."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("loaded_once")]
pytest.importorskip("torch")
SCRIPTS = Path(__file__).parent / "scripts"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LISTED: dict[str, dict[str, Any]] = tomllib.loads((SCRIPTS / "frameworks.toml").read_text())


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("gpus", [8, 1024])
@pytest.mark.parametrize("name", LISTED)
def test_a_frameworks_script_runs_as_it_is(name: str, gpus: int, tmp_path: Path) -> None:
    listed = LISTED[name]
    if missing := [package for package in listed.get("needs", ()) if not is_installed(package)]:
        pytest.skip(f"{', '.join(missing)} is not installed")
    places = {"scripts": SCRIPTS, "benchmarks": BENCHMARKS}
    ranks = [] if "send" in listed["calls"] else [0]  # stages run together
    job = wt.capture(listed["command"].format(**places).split(), "h100-ib", gpus, ranks=ranks, out=tmp_path / "captured")
    assert job.world == gpus
    assert job.ranks[0].about["steps"] == 3
    assert {calls.op for calls in job.calls if len(calls.ranks) > 1} >= set(listed["calls"])
    assert not job.replayed.stuck
    assert 1e-4 < job.seconds < 60
    assert max(rank.allocated for rank in job.memory) > 0


def test_the_list_is_as_broad_as_it_says() -> None:
    assert len(LISTED) >= 12
    assert len({listed["framework"] for listed in LISTED.values()}) >= 6
    for call, least in (("all_to_all", 2), ("send", 2)):  # experts, pipelines
        assert sum(call in listed["calls"] for listed in LISTED.values()) >= least
