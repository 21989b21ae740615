"""Self-tests over torch: a CPU says that it is one, and ranks of an all-reduce agree."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from windtunnel.fleet.diagnose.registry import run_test
from windtunnel.fleet.diagnose.result import SelfTestOptions
from windtunnel.fleet.wire.ports import free_port

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
CPU = SelfTestOptions(seconds=0.05, size=1 << 20, device="cpu")


@pytest.mark.parametrize("name", ["gpu-burn", "gpu-copy-in", "gpu-copy-out", "gpu-copy-within"])
def test_a_cpu_says_that_it_is_no_gpu(name: str) -> None:
    found = run_test(name, CPU)
    assert found.passed is True
    assert found.backend == "torch on the CPU, no GPU"


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
@pytest.mark.parametrize("name", ["gpu-burn", "gpu-copy-out", "gpu-peer"])
def test_without_a_gpu_it_does_not_apply(name: str) -> None:
    assert run_test(name, SelfTestOptions(seconds=0.05)).status == 3


def test_ranks_measure_an_all_reduce_over_gloo() -> None:
    master = f"127.0.0.1:{free_port()}"
    options = [
        "all-reduce",
        "--json",
        "--device",
        "cpu",
        "--master",
        master,
        "--world",
        "3",
        "--size",
        "1048576",
        "--seconds",
        "0.2",
    ]
    ranks = [
        subprocess.Popen([sys.executable, "-m", "windtunnel.fleet.diagnose", *options, "--rank", str(rank)], stdout=subprocess.PIPE)
        for rank in range(3)
    ]
    found = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert len({one["measured"] for one in found}) == 1  # of the slowest rank
    assert all(one["backend"] == "gloo over TCP, no GPU, 3 ranks" for one in found)
