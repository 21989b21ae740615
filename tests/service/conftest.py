"""A service for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.served import ServedProcess

pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """It has no tokens, as on one's own machine."""
    with ServedProcess(tmp_path_factory.mktemp("service"), ["--per-minute", "1000000"]) as served:
        yield served.ready()
