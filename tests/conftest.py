"""Fixtures for every suite, and the folder of this file on the path, for the helpers that lie in it (`jobs`, `random_jobs`)."""

from __future__ import annotations

import functools
import gc
import random
import shlex
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyStrategyDefinition, UnsatisfiedAssumption

sys.path.insert(0, str(Path(__file__).parent))

_BEGAN = pytest.StashKey[float]()
SHARE = 0.1
"""Of the seconds of --for-seconds, for one test at most."""
IN_TIME = "no failure in its share of the time"
"""Why a test of random examples that was ended is skipped."""

# The same examples in every run, so that a change is judged and not a draw. `make laws` (fresh) draws new ones, deep many more.
# CI draws new ones by the commit's day as well (daily): as many as in other runs, with a seed that it prints; `again` draws the
# same and shrinks what fails.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("stable", derandomize=True, deadline=None, max_examples=40, suppress_health_check=_SLOW)
settings.register_profile(
    "deep", derandomize=False, deadline=None, max_examples=2000, suppress_health_check=[*_SLOW, HealthCheck.filter_too_much]
)
settings.register_profile("fresh", derandomize=False, deadline=None, print_blob=True, suppress_health_check=_SLOW)
_DAILY = settings(derandomize=False, deadline=None, max_examples=40, print_blob=True, suppress_health_check=_SLOW)
settings.register_profile("daily", _DAILY, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # there is no time to shrink
settings.register_profile("again", _DAILY)
settings.load_profile("stable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--for-seconds",
        type=float,
        metavar="S",
        help="run tests in an order drawn by --hypothesis-seed, and begin none after S seconds",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the garbage collector: nothing of what is collected is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins at another file of a folder: it reads what the others have compiled, and compiles only its share."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Directory) and report.passed:
        first = len(report.result) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # every worker has them in one order
        items.sort(key=lambda item: item.path)
    if config.getoption("--for-seconds") is not None:
        items.sort(key=lambda item: item.nodeid)
        random.Random(str(config.getoption("--hypothesis-seed"))).shuffle(items)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_BEGAN] = time.monotonic()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """With --for-seconds, a test ends as skipped when its share of the time is up: what it has tried by then did not fail."""
    seconds = item.config.getoption("--for-seconds")
    if seconds is None:
        return (yield)
    left = seconds - (time.monotonic() - item.config.stash[_BEGAN])
    if left <= 0:
        pytest.skip("out of time: another day's turn")

    until = time.monotonic() + min(left, seconds * SHARE)
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    if handle is None:
        return (yield)
    inner = handle.inner_test
    failed = ended = False

    @functools.wraps(inner)
    def timed(*arguments: object, **named: object) -> object:
        nonlocal failed, ended
        if time.monotonic() > until and not failed:  # between two examples: hypothesis cannot be interrupted amid a draw
            ended = True
            pytest.skip(IN_TIME)
        try:
            return inner(*arguments, **named)
        except UnsatisfiedAssumption:
            raise
        except Exception:
            failed = True  # hypothesis runs the example again, to show it
            raise

    handle.inner_test = timed
    try:
        return (yield)
    except FlakyStrategyDefinition:
        # An example that draws as it runs, ended where an earlier one with the same beginning drew more.
        if failed or not ended:
            raise
        pytest.skip(IN_TIME)
    finally:
        handle.inner_test = inner


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What to type to draw a failing example again."""
    seed = config.getoption("--hypothesis-seed")
    failed = terminalreporter.stats.get("failed", [])
    if seed is not None and failed:
        terminalreporter.section("to draw the failing examples again")
        profile = config.getoption("--hypothesis-profile") or "stable"
        how = f"--hypothesis-profile={'again' if profile == 'daily' else profile} --hypothesis-seed={seed}"
        for report in failed:
            terminalreporter.line(f".venv/bin/python -m pytest {shlex.quote(report.nodeid)} {how}")


def pytest_collection_finish() -> None:
    """Thousands of tests live to the end: without this, the garbage collector walks over them for an eighth of the suite's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory of published measurements beside the project root; the test is skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "reality").is_dir():
        pytest.skip("no ../shared/reality beside the project")
    return folder
