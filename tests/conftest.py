"""Fixtures for every suite, and the folder of this file on the path, for the helpers that lie in it (`jobs`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory of published measurements beside the project root; the test is skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "reality").is_dir():
        pytest.skip("no ../shared/reality beside the project")
    return folder
