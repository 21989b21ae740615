"""Self-tests over torch: a CPU says that it is one, and ranks of an all-reduce agree."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from windtunnel.fleet.diagnose import collectives
from windtunnel.fleet.diagnose.registry import DiagnosedDevice, SelfTestOptions, run_test
from windtunnel.fleet.wire.sockets import free_port

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


def test_ranks_measure_a_collective_over_gloo() -> None:
    """An all-reduce; the ranks of the next test measure an all-to-all by the same command."""
    master = ["--master", f"127.0.0.1:{free_port()}", "--world", "3"]
    options = ["all-reduce", "--json", "--device", "cpu", *master, "--size", "1048576", "--seconds", "0.2"]
    ranks = [
        subprocess.Popen([sys.executable, "-m", "windtunnel.fleet.diagnose", *options, "--rank", str(rank)], stdout=subprocess.PIPE)
        for rank in range(3)
    ]
    found = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert len({one["measured"] for one in found}) == 1  # of the slowest rank
    assert all(one["backend"] == "gloo over TCP, no GPU, 3 ranks" for one in found)


def test_a_node_is_tested_by_a_rank_for_each_device() -> None:
    result = run_test("gpu-all-to-all", replace(CPU, seconds=0.2))
    assert (result.passed, result.backend) == (True, "gloo over TCP, no GPU, 4 ranks of this node")


def test_data_that_arrives_changed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk from rank 1 of 4 has one wrong value, in a group whose exchange is a stand-in."""

    def exchange(received: Any, sent: Any) -> None:
        length = len(sent) // 4
        for rank in range(4):
            received[rank * length : (rank + 1) * length] = 4 * rank + 2
        received[length] += 1

    monkeypatch.setattr("torch.distributed.all_to_all_single", exchange)
    call, check = collectives._all_to_all(DiagnosedDevice(torch, "cpu"), replace(CPU, rank=2, world=4))
    call()
    assert check() == "data from rank 1 arrived changed"
