"""Registry of self-tests by name; a module is imported when its test runs.

Options and result of a self-test.

The devices of a test: this node's GPUs, or the CPU if it is requested by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import UnknownName

NOT_APPLICABLE = 3
"""Exit status of a test that does not apply to the machine."""


@dataclass(frozen=True)
class SelfTestOptions:
    """Options of a self-test."""

    expect: float | None = None
    """Expected figure in the test's unit; None: no expectation."""
    share: float = 0.8
    """Least share of the expected figure that passes."""
    seconds: float = 1.0
    """Duration of the measurement."""
    limit: float = 60.0
    """Time limit of the whole test, in seconds."""
    size: int = 64 << 20
    """Bytes of a buffer."""
    device: str = "cuda"
    """`cpu`, or a torch device."""
    listen: str = ""
    """HOST:PORT of this side of a pair."""
    peer: str = ""
    """HOST:PORT of the other side of a pair."""
    rank: int = 0
    """Rank of this node in a group."""
    world: int = 1
    """Nodes of the group."""
    master: str = ""
    """HOST:PORT of the group's rank 0."""
    key: str = ""
    """Secret that both sides of a pair share."""


@dataclass(frozen=True)
class TestResult:
    """Result of a self-test."""

    __test__ = False  # not a test class for pytest

    test: str
    backend: str
    """What was measured, so that a test over loopback is not taken for one of a NIC."""
    passed: bool | None
    """None if the test does not apply here."""
    measured: float | None
    """Measured figure in `unit`."""
    unit: str
    expected: float | None
    """Expected figure in `unit`."""
    seconds: float
    """Duration of the whole test."""
    why: str

    @property
    def status(self) -> int:
        """Exit status: 0 passed, 1 failed, 3 not applicable."""
        return NOT_APPLICABLE if self.passed is None else 0 if self.passed else 1


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure and its origin."""

    value: float
    backend: str
    wrong: str = ""
    """Makes the test fail whatever the figure is, for example corrupted data."""
    note: str = ""
    stands_in: bool = False
    """The backend is a substitute: the figure says nothing of the device, and the test counts as one that did not run."""


class NotApplicableError(Exception):
    """The test does not apply to this machine; the message says why."""


def run_and_judge(
    name: str, unit: str, options: SelfTestOptions, measure: Callable[[SelfTestOptions], MeasuredFigure]
) -> TestResult:
    """Runs a measurement and judges it. A figure of at least `share` of the expected one passes; without an expectation, any
    completed measurement passes. One on a substitute neither passes nor fails.
    """
    begun = time.monotonic()
    try:
        figure = measure(options)
    except NotApplicableError as error:
        return TestResult(name, "none", None, None, unit, options.expect, time.monotonic() - begun, str(error))
    except (OSError, RuntimeError) as error:  # a failing device or connection is a test result, not an error
        return TestResult(name, "unknown", False, None, unit, options.expect, time.monotonic() - begun, f"{error}".strip()[:500])
    passed: bool | None = not figure.wrong
    why = figure.wrong
    if passed and figure.stands_in:
        passed, why = None, "the device itself was not tested"
    elif passed and options.expect is None:
        why = "it ran; no figure was expected"
    elif passed and options.expect is not None:
        passed = figure.value >= options.share * options.expect
        why = f"{figure.value:.4g} for {options.expect:.4g} {unit}, {options.share:.0%} of it passes"
    note = f"; {figure.note}" if figure.note else ""
    return TestResult(name, figure.backend, passed, figure.value, unit, options.expect, time.monotonic() - begun, why + note)


@dataclass(frozen=True)
class DiagnosedDevice:
    """One torch device."""

    torch: ModuleType
    name: str

    @property
    def gpu(self) -> bool:
        return self.name != "cpu"

    @property
    def backend(self) -> str:
        if not self.gpu:
            return "torch on the CPU, no GPU"
        return f"torch on {self.torch.cuda.get_device_name(self.name)} ({self.name})"

    def wait(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize(self.name)


@dataclass(frozen=True)
class Devices:
    """The devices to test, one after the other."""

    members: tuple[DiagnosedDevice, ...]

    def slowest(self, measure: Callable[[DiagnosedDevice], MeasuredFigure]) -> MeasuredFigure:
        """The measurement of the slowest device; a failed measurement takes precedence."""
        found = [measure(device) for device in self.members]
        wrong = [one for one in found if one.wrong]
        return wrong[0] if wrong else min(found, key=lambda one: one.value)


def device_of(options: SelfTestOptions) -> Devices:
    """All GPUs for `cuda`, one for `cuda:0`, the CPU for `cpu`. NotApplicableError without torch or such a GPU."""
    try:
        import torch
    except ImportError:
        raise NotApplicableError("torch is not installed") from None
    if options.device == "cpu":
        return Devices((DiagnosedDevice(torch, "cpu"),))
    if not torch.cuda.is_available():
        raise NotApplicableError("no GPU; --device cpu measures the CPU and says so")
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if options.device == "cuda" else [options.device]
    return Devices(tuple(DiagnosedDevice(torch, name) for name in names))


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
