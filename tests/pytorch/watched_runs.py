"""Runs of `windtunnel fleet run` around the example of two ranks, for the tests that start one: gloo on loopback, no torch here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "training" / "fleet_ddp.py"
LONG = 240
"""Seconds for what takes ten on an idle machine."""


def started(folder: Path, *rest: str, options: tuple[str, ...] = ("--collect",)) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "windtunnel", "fleet", "run", "--dir", str(folder), "--run", "job", *options, "--", *rest]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def training(*arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE), *arguments
    ]  # fmt: skip


def ended(child: subprocess.Popen[str], timeout: float = LONG) -> tuple[int, str, str]:
    try:
        said, errors = child.communicate(timeout=timeout)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)  # what it started holds its pipes open
            child.communicate()
    return child.returncode, said, errors
