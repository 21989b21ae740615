"""What a self-test is asked, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

NOT_APPLICABLE = 3
"""Exit status of a test that does not apply to the machine."""


@dataclass(frozen=True)
class SelfTestOptions:
    """`expect`: the figure that is expected, in the test's unit, None for none; `share`: the least share of it that passes.
    `seconds`: to measure; `limit`: to do all of it in. `size`: bytes of a buffer. `device`: `cpu`, or a torch device.

    `listen`, `peer`: HOST:PORT of the two sides of a pair; `rank`, `world`, `master`: of a group. `key`: a word that both sides of
    a pair know, or a stranger is refused.
    """

    expect: float | None = None
    share: float = 0.8
    seconds: float = 1.0
    limit: float = 60.0
    size: int = 64 << 20
    device: str = "cuda"
    listen: str = ""
    peer: str = ""
    rank: int = 0
    world: int = 1
    master: str = ""
    key: str = ""


@dataclass(frozen=True)
class TestResult:
    """`passed`: None where the test does not apply here; `measured` and `expected` in `unit`. `backend`: what was measured, so
    that a test over loopback is not taken for one of a NIC. `seconds`: of the whole test."""

    __test__ = False  # no class of tests, for pytest

    test: str
    backend: str
    passed: bool | None
    measured: float | None
    unit: str
    expected: float | None
    seconds: float
    why: str

    @property
    def status(self) -> int:
        """Exit status: 0 passed, 1 failed, 3 not applicable."""
        return NOT_APPLICABLE if self.passed is None else 0 if self.passed else 1


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure and where it comes from. `wrong`: what makes it fail whatever the figure, like data that came back changed.
    `stands_in`: the backend is not the one that a figure is expected of, so that nothing can be said of it."""

    value: float
    backend: str
    wrong: str = ""
    note: str = ""
    stands_in: bool = False


class NotApplicableError(Exception):
    """The test does not apply to this machine: why not."""


def run_and_judge(name: str, unit: str, options: SelfTestOptions, measure: Callable[[SelfTestOptions], MeasuredFigure]) -> TestResult:
    """Runs a measurement and judges it: a figure of at least `share` of the expected one passes, and without one a test that
    ran."""
    begun = time.monotonic()
    try:
        figure = measure(options)
    except NotApplicableError as error:
        return TestResult(name, "none", None, None, unit, options.expect, time.monotonic() - begun, str(error))
    except (OSError, RuntimeError) as error:  # a device or a connection that fails is what the test is for
        return TestResult(name, "unknown", False, None, unit, options.expect, time.monotonic() - begun, f"{error}".strip()[:500])
    passed: bool | None = not figure.wrong
    why = figure.wrong
    if passed and options.expect is not None and figure.stands_in:
        passed, why = None, f"{figure.backend} cannot be compared with {options.expect:.4g} {unit}"
    elif passed and options.expect is None:
        why = "it ran; no figure was expected"
    elif passed and options.expect is not None:
        passed = figure.value >= options.share * options.expect
        why = f"{figure.value:.4g} for {options.expect:.4g} {unit}, {options.share:.0%} of it passes"
    note = f"; {figure.note}" if figure.note else ""
    return TestResult(name, figure.backend, passed, figure.value, unit, options.expect, time.monotonic() - begun, why + note)
