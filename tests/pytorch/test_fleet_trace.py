"""`windtunnel fleet trace`: a profiler trace of a rank that trains under torchrun, without a restart."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pytorch.watched_runs import LONG, ended, started, training
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.tracing import FOLDER, ask_path, failed_path

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "windtunnel", *arguments], capture_output=True, text=True, timeout=LONG, check=False
    )  # fmt: skip


def test_a_rank_that_trains_takes_a_trace_of_its_next_steps(tmp_path: Path) -> None:
    child = started(tmp_path, *training("--steps", "100000"), options=())
    try:
        ring = ring_path(tmp_path / "job", 1)
        end = time.monotonic() + LONG
        while not ring.exists() and time.monotonic() < end and child.poll() is None:
            time.sleep(0.1)
        told = _run("fleet", "trace", str(tmp_path), "--rank", "1", "--steps", "3")
        assert told.returncode == 0, told.stderr
        path = Path(told.stdout.strip())
        assert path.parent.name == FOLDER and path.name.startswith("rank1-step") and child.poll() is None
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        steps = {event["name"] for event in events if str(event.get("name", "")).startswith("ProfilerStep#")}
        assert steps == {"ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"}
        shown = _run("runs", "show", str(path))
        assert shown.returncode == 0 and "step" in shown.stdout, shown.stderr
        refused = _run("fleet", "trace", str(tmp_path), "--rank", "7")
        assert refused.returncode == 2 and "ring lies in" in refused.stderr
    finally:
        os.killpg(child.pid, 2)
        ended(child)
    late = _run("fleet", "trace", str(tmp_path), "--rank", "1", "--wait", "5")
    assert late.returncode == 2 and "which has ended" in " ".join(late.stderr.split())


def test_a_request_that_cannot_be_read_ends_no_training(tmp_path: Path) -> None:
    from windtunnel.fleet.watch.answers import TraceTaker

    (tmp_path / FOLDER).mkdir()
    ask_path(tmp_path, 0).write_text("{", encoding="utf-8")
    TraceTaker(tmp_path, 0).end_step(7)
    assert "JSONDecodeError" in failed_path(tmp_path, 0).read_text(encoding="utf-8") and not ask_path(tmp_path, 0).exists()


def test_a_profiler_that_is_taken_is_told(tmp_path: Path) -> None:
    from torch.profiler import profile

    from windtunnel.fleet.watch.answers import TraceTaker

    (tmp_path / FOLDER).mkdir()
    ask_path(tmp_path, 0).write_text('{"steps": 1}', encoding="utf-8")
    taker = TraceTaker(tmp_path, 0)
    with profile():
        for step in range(4):
            taker.end_step(step)
    assert failed_path(tmp_path, 0).exists() or list((tmp_path / FOLDER).glob("rank0-step*.json.gz"))
