"""Options and result of a self-test.

The devices of a test: this node's GPUs, or the CPU if it is requested by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

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
