"""Two real processes beside their prediction: gloo on loopback, CPU clock. Names, no times: a machine may be busy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
LONG = 300
SETS = ("cluster.gpus=2", "plan.global_batch=4", "runtime.overlap_grad_reduce=false", "runtime.reduce_with=all_reduce")


def windtunnel(*words: str) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "windtunnel", *words], cwd=ROOT, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_watched_run_is_put_beside_its_job(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [*torchrun, "examples/training/fleet_llama.py"]
    options = ["--steps", "6", "--seq", "64", "--between", "3"]  # the loop does thrice its work again outside of the sections
    windtunnel("fleet", "run", "--dir", str(tmp_path), "--run", "one", "--", *script, *options)
    sets = [word for change in (*SETS, "plan.seq=64") for word in ("--set", change)]
    said = json.loads(windtunnel("fleet", "compare", str(tmp_path / "one"), "examples/jobs/tiny-llama.toml", *sets, "--json", "-"))
    assert {part["name"] for part in said["sections"]} >= {"forward", "backward", "optimizer", "between"}
    reduced = next(call for call in said["calls"] if call["comm"] == "all_reduce" and call["bytes"] > 1e6)
    assert reduced["axis"] == "dp"
    assert reduced["bytes"] == pytest.approx(20_194_304)  # all gradients of the job's model, in one bucket
    assert reduced["measured_count"] == reduced["expected_count"] == 1
    # the job is predicted for H100s: a processor is slower in every section, and the loop's own work is there too
    longer = {part["name"] for part in said["sections"] if part["median"] > part["expected"]}
    assert longer >= {"forward", "backward", "between"} and said["causes"]
    assert all(cause["words"] and cause["test"] for cause in said["causes"])
    usual = ("fleet", "compare", str(tmp_path / "one"), "examples/jobs/tiny-llama.toml", *sets, "--usual", str(tmp_path / "one"))
    words = windtunnel(*usual)
    assert "the earlier run took" in words and "nothing: every section and call is within its error bar" in words
