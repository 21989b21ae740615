"""What tests of the monitor in one process share, and tests of captures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: threads of one would spin where another computes


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A group of one rank, and the folder of its ring; the monitor is off before and after."""
    import torch.distributed as dist  # here: a machine without torch collects these tests too

    from windtunnel.fleet import watch

    monkeypatch.setenv("RANK", "0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield tmp_path
    watch.stop()
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def loaded_once() -> Iterator[None]:
    """Ranks of all captures are forked from one process that has loaded PyTorch."""
    from windtunnel.capture.run import kept_servers

    with kept_servers():
        yield


@pytest.fixture(scope="session")
def keepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keepers of jobs under a driver are forked from one process that has loaded PyTorch."""
    from tests.faults.recovery.forked_keepers import forked_keepers
    from tests.faults.recovery.kept import PRELOAD

    with forked_keepers(tmp_path_factory.mktemp("keepers"), PRELOAD):
        yield
