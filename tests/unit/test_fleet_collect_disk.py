"""A collector whose disk is full: it refuses, loses nothing that it acknowledged, and goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fleet_collectors import batch_of, collecting, rows_of

from windtunnel.fleet.batch import encode
from windtunnel.fleet.collect import open_run

SIZE = 4 << 20
STEPS, EACH = 40, 50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of `SIZE` bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if made.returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path, left: int) -> None:
    """A file that leaves so many bytes of its file system."""
    room = os.statvfs(path.parent)
    size = room.f_bavail * room.f_frsize - left
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    batches = [
        encode(batch_of(0, number + 1, range(number * STEPS, (number + 1) * STEPS), introduce=number == 0, each=EACH))
        for number in range(12)
    ]
    with collecting(small_disk / "run", policy={"segment_bytes": 4 * len(batches[0])}) as server:
        assert server.ask("POST", "/v1/batches", batches[0])[0] == 200
        fill(small_disk / "ballast", 3 * len(batches[0]))
        taken, refused = 1, 0
        for batch in batches[1:]:
            status, answer = server.ask("POST", "/v1/batches", batch)
            if status != 200:
                assert status == 503 and "the disk" in answer["error"]
                refused += 1
                break
            taken += 1
        assert refused == 1 and taken < len(batches)  # the disk was full before the batches ended
        assert server.ask("POST", "/v1/batches", batches[taken])[0] == 503  # as long as it is
        (small_disk / "ballast").unlink()
        until = time.monotonic() + 60
        while server.ask("POST", "/v1/batches", batches[taken])[0] != 200:  # a shipper repeats what was refused
            assert time.monotonic() < until
            time.sleep(0.2)
        for batch in batches[taken + 1 :]:
            assert server.ask("POST", "/v1/batches", batch)[0] == 200
    store = open_run(small_disk / "run")
    found = store.sections()
    store.close()
    expected = np.sort(np.tile(rows_of(range(12 * STEPS), EACH)["nanos"], 2))
    assert np.array_equal(np.sort(np.round(found.seconds * 1e9).astype(np.int64)), expected)
