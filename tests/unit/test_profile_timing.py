"""Times by a protocol, on a device whose clock is ours."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.profile.timing import Protocol, measure


class Fake:
    """A device on which each execution takes the next of `times`, the last one again and again."""

    cuda = True

    def __init__(self, *times: float) -> None:
        self.times, self.now, self.runs, self.flushed, self.slept = list(times), 0.0, 0, 0, 0

    def run(self) -> None:
        self.runs += 1
        self.now += self.times.pop(0) if len(self.times) > 1 else self.times[0]

    def mark(self) -> float:
        return self.now

    def seconds_between(self, begin: float, end: float) -> float:
        return end - begin

    def flush(self) -> None:
        self.flushed += 1
        self.now += 1e-3

    def sleep(self, seconds: float) -> None:
        self.slept += seconds > 0
        self.now += seconds

    def synchronize(self) -> None: ...

    def restart_peak(self) -> None: ...

    def peak(self) -> tuple[float, float]:
        return 5.0, 8.0


def timed(device: Any, **protocol: Any) -> Any:
    return measure(device.run, device, Protocol(**protocol))


def test_flush_and_sleep_are_outside_of_the_times() -> None:
    device = Fake(2e-3)
    found = timed(device)
    assert found.seconds == pytest.approx(2e-3) and found.seconds_std == pytest.approx(0.0, abs=1e-12)
    assert (found.repeats, found.loops, device.flushed) == (20, 1, 20)
    assert device.runs >= 1 + 10 + 20 and found.peak == (5.0, 8.0)


def test_warm_up_does_not_count() -> None:
    assert timed(Fake(*[1.0e-3] * 9, 1e-4)).seconds_max == pytest.approx(1e-4)


def test_short_executions_are_repeated_between_two_marks() -> None:
    found = timed(Fake(5e-6), flush=False)
    assert found.loops in (20, 21) and found.seconds == pytest.approx(5e-6)
    assert timed(Fake(21e-6)).loops == 1


def test_long_executions_are_repeated_less_often() -> None:
    device = Fake(0.5)
    found = timed(device)
    assert found.repeats == 3 and device.runs < 12
    assert found.fields()["seconds"] == pytest.approx(0.5) and found.fields()["reserved_bytes"] == 8.0


def test_statistics() -> None:
    before = 1 + 3 + 1  # the first, three to find out how long, the warm-up
    found = timed(Fake(*[2e-3] * before, 2e-3, 4e-3, 6e-3, 12e-3), warmup=1, repeats=4, flush=False)
    assert (found.seconds, found.seconds_min, found.seconds_max, found.seconds_mean) == pytest.approx((5e-3, 2e-3, 12e-3, 6e-3))
    assert found.seconds_std == pytest.approx(3.7417e-3, rel=1e-4)


def test_expected_duration() -> None:
    # 10 warm-ups, 4 to find out, 20 repetitions of 2 ms, 20 flushes of 1 ms and marks of 50 µs
    assert Protocol().lasts(2e-3, 1e-3) == pytest.approx(34 * 2e-3 + 20 * 1.05e-3)
