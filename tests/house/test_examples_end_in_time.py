"""`--for-seconds` ends a test of random examples between two of them, as skipped, and hides no failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
LAW = """
import sys
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

SEEN = []
CONFTEST = sys.modules[{conftest!r}]
CONFTEST.time = SimpleNamespace(monotonic=lambda: 0.0 if len(SEEN) < {last} else 1e6)


@given(st.data(), st.sampled_from([1, 2]))
def test_law(data, of):
    SEEN.append(data.draw(st.lists(st.integers(0, 1), min_size=1)))
    assert len(SEEN) != {fails}
"""


def ended(folder: Path, *, last: int, fails: int) -> str:
    """What pytest prints of a law whose time is up after ``last`` examples, and whose example number ``fails`` fails."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_law.py").write_text(LAW.format(conftest="conftest", last=last, fails=fails))
    options = ("--hypothesis-profile=daily", "--hypothesis-seed=1", "--for-seconds=10", "-q", "-rs", "-p", "no:cacheprovider")
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins of others take longer to import than these laws
    command = [sys.executable, "-m", "pytest", "-p", "_hypothesis_pytestplugin", *options]
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize("last", [3, 5, 8, 13, 21])
def test_a_test_that_draws_as_it_runs_is_skipped(tmp_path: Path, last: int) -> None:
    said = ended(tmp_path, last=last, fails=-1)
    assert "1 skipped" in said, said
    assert "no failure in its share of the time" in said


def test_a_failure_before_the_end_is_a_failure(tmp_path: Path) -> None:
    """Its example is run again when the time is up, and is not skipped then."""
    said = ended(tmp_path, last=5, fails=5)
    assert "1 failed" in said, said
