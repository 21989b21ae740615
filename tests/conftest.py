"""Fixtures for every suite, and the folder of this file on the path, for the helpers that lie in it (`jobs`, `random_jobs`)."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# The same examples in every run, so that a change is judged and not a draw. `make laws` (fresh) draws new ones, deep many more.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("stable", derandomize=True, deadline=None, max_examples=40, suppress_health_check=_SLOW)
settings.register_profile(
    "deep", derandomize=False, deadline=None, max_examples=2000, suppress_health_check=[*_SLOW, HealthCheck.filter_too_much]
)
settings.register_profile("fresh", derandomize=False, deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile("stable")


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
