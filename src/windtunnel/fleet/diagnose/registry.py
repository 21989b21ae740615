"""Registry of self-tests by name; a module is imported when its test runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from windtunnel.base.errors import UnknownName
from windtunnel.fleet.diagnose.result import MeasuredFigure, SelfTestOptions, TestResult, run_and_judge


@dataclass(frozen=True)
class SelfTest:
    """A self-test: module and function that measure, unit, and description."""

    module: str
    function: str
    unit: str
    about: str
    single_node: bool = True
    """Whether one node can run it on its own."""


TESTS: dict[str, SelfTest] = {
    "memory-copy": SelfTest("memory_copy", "measure", "B/s", "host memory, all cores; reads and writes"),
    "gpu-burn": SelfTest("gpu", "burn", "FLOP/s", "products of matrices in bfloat16, equal ones compared"),
    "gpu-copy-in": SelfTest("gpu", "copy_in", "B/s", "pinned host memory to the GPU"),
    "gpu-copy-out": SelfTest("gpu", "copy_out", "B/s", "the GPU to pinned host memory"),
    "gpu-copy-within": SelfTest("gpu", "copy_within", "B/s", "within the GPU's memory; reads and writes"),
    "gpu-peer": SelfTest("gpu", "copy_to_peers", "B/s", "each GPU of the node to the next, one direction"),
    "gpu-all-to-all": SelfTest("collectives", "within_node", "B/s", "between all GPUs of the node, bus bandwidth, NCCL"),
    "nic-loopback": SelfTest("network", "loopback", "B/s", "each RDMA device to itself"),
    "pair": SelfTest("network", "between_nodes", "B/s", "two nodes over TCP, the slower direction", single_node=False),
    "all-reduce": SelfTest("collectives", "all_reduce", "B/s", "neighbours, bus bandwidth, NCCL or gloo", single_node=False),
    "all-to-all": SelfTest("collectives", "all_to_all", "B/s", "neighbours, bus bandwidth, NCCL or gloo", single_node=False),
}


def run_test(name: str, options: SelfTestOptions) -> TestResult:
    """Runs a self-test. UnknownName for another name, SpecError for missing options."""
    if name not in TESTS:
        raise UnknownName("test", name, list(TESTS))
    test = TESTS[name]
    measure: Callable[[SelfTestOptions], MeasuredFigure] = getattr(
        import_module(f"windtunnel.fleet.diagnose.{test.module}"), test.function
    )
    return run_and_judge(name, test.unit, options, measure)
