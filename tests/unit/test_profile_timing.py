"""Times by a protocol, on a device whose clock is ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from windtunnel.profile.timing import Protocol, measure, measure_in_turn


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


class Turned:
    """Runs of a processor by name: what each of them did, in order."""

    cuda = False

    def __init__(self) -> None:
        self.now, self.did = 0.0, []

    def mark(self) -> float:
        return self.now

    def seconds_between(self, begin: float, end: float) -> float:
        return end - begin

    def synchronize(self) -> None: ...

    def run_of(self, name: str, seconds: float, warm: bool) -> Any:
        def run() -> None:
            self.did.append(name)
            self.now += seconds

        def touch() -> None:
            self.did.append(f"touch {name}")
            self.now += 7.0

        @contextmanager
        def holding() -> Iterator[None]:
            self.did.append(f"hold {name}")
            yield
            self.now += 5.0

        if warm:
            run.touch = touch  # type: ignore[attr-defined]
        return run, holding


def test_runs_in_turn_begin_with_what_was_just_written() -> None:
    """One repetition of each after the other, the first round to warm up; neither context nor operands are in the times. What
    takes long is repeated less often."""
    device: Any = Turned()
    found = measure_in_turn([device.run_of("a", 0.01, True), device.run_of("b", 1.0, False)], device, Protocol(repeats=5, least=2))
    one = ["hold a", "touch a", "a", "hold b", "b"]
    assert device.did == one * 3 + one[:3] * 3
    assert [timing and (timing.seconds, timing.repeats) for timing in found] == [(pytest.approx(0.01), 5), (pytest.approx(1.0), 2)]


def test_what_the_end_left_too_few_repetitions_of_is_no_time() -> None:
    device: Any = Turned()
    assert measure_in_turn([device.run_of("a", 0.01, True)], device, Protocol(), ends=0.0) == [None] and device.did.count("a") == 1
