"""Checkpoints and samples on a file system: rates by hand on a clock of its own, bounds of time and room, real files."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest
from slow_disk import ABOUT, CASES, MIB, Bytes, Clock, OneAfterAnother, SlowFiles, made_rows, part_of

from windtunnel.measure.storage import figures_of, rows_of_saves
from windtunnel.profile.storage import run as storage_run
from windtunnel.profile.storage.place import DiskFiles, DiskPlace, place_of
from windtunnel.profile.storage.pool import NoTimeLeftError, RankPool
from windtunnel.profile.storage.rank import SampleCase, sample_places
from windtunnel.profile.storage.run import (
    LEAST,
    MOST,
    ROUNDS,
    SaveCase,
    StorageRows,
    measure_samples,
    measure_saves,
    measure_storage,
    room_of,
    save_cases,
)
from windtunnel.records import dataset, read, write


def test_seconds_of_saves_by_hand() -> None:
    clock = Clock()
    rows = StorageRows()
    measure_saves(OneAfterAnother(SlowFiles(clock)), save_cases(32 * MIB, 2, 10**9), 1e9, rows, clock, lambda: None)
    found = {(row["op"], row["library"], row["shape"]): row for row in rows.rows()}
    # two ranks that share the disk take twice as long as one; staging copies 1 GB/s a rank
    for ranks, size in ((1, 8 * MIB), (2, 8 * MIB), (1, 32 * MIB), (2, 32 * MIB)):
        shape = f"ranks={ranks} size={size}"
        assert found["write", "torch.save", shape]["seconds"] == pytest.approx(ranks * (size / 1e8 + 0.005))
        assert found["read", "torch.load", shape]["seconds"] == pytest.approx(ranks * size / 4e8)
        assert found["read", "O_DIRECT", shape]["seconds"] == pytest.approx(ranks * size / 5e8)
        assert found["stage", "aten", shape]["seconds"] == pytest.approx(ranks * size / 1e9)
    assert {row["repeats"] for row in found.values()} == {ROUNDS}
    assert {row["phase"] for row in found.values() if row["op"] != "stage"} == {"cold"}
    shown = {(one.what, one.at_once, one.each): one.rate for one in figures_of(dataset(ABOUT, rows.rows()))}
    assert shown["read, cold, torch.load", 2, 8 * MIB] == pytest.approx(4e8)


def test_samples_by_hand() -> None:
    clock, rows = Clock(), StorageRows()
    measure_samples(OneAfterAnother(SlowFiles(clock)), part_of(), 64 * 1024, 32 * MIB, 1e9, rows, clock)
    found = {(row["name"], row["phase"], row["batch"]): row for row in rows.rows()}
    assert set(found) == {
        (order, phase, count) for order in ("random", "sequential") for phase in ("cold", "warm") for count in (1, 2)
    }
    one = found["random", "cold", 1]
    assert (one["seconds"], one["bytes"], one["n"]) == (pytest.approx(1e-3), 257 * 4, 256)
    assert one["repeats"] == -(-(32 * MIB - 257 * 4 + 1) // (64 * 1024 + 257 * 4))  # one in each stretch of the file
    assert found["random", "warm", 1]["seconds"] == pytest.approx(1e-6)


def test_where_samples_begin() -> None:
    alone = SampleCase("random", 2, 3, 2, 100, True)
    assert alone.sample_bytes == 8 and sorted(sample_places(alone, 330)) == [0, 108, 216]  # 324 + 8 is beyond the end
    assert sample_places(alone, 10**4) == sample_places(alone, 10**4) != sorted(sample_places(alone, 10**4))
    assert sample_places(alone._replace(order="sequential"), 33) == [0, 8, 16, 24]
    assert sorted(sample_places(alone._replace(cold=False), 33)) == [0, 8, 16, 24]


def test_no_case_begins_that_the_time_does_not_hold() -> None:
    """At 1 MB/s 8 MiB take 8.4 s: sixteen times as much is never begun, and the clock ends the run."""
    clock, rows = Clock(), StorageRows()
    ranks = OneAfterAnother(SlowFiles(clock, rate=1e6))
    measure_saves(ranks, save_cases(2**40, 4, 10**9), 60.0, rows, clock, lambda: None)
    sizes = {row["shape"] for row in rows.rows() if row["op"] == "write"}
    assert clock.now <= 60.0 and sizes == {f"ranks=1 size={8 * MIB}"}
    assert max(count for name, count in ranks.asked if name == "write") == 4  # the first file is not counted


def test_room_is_a_tenth_of_what_is_free_and_bounded() -> None:
    place = DiskPlace("/data", "xfs", "/dev/sdb", "rw", 10**9, 10**12)
    assert room_of(place, 1e12) == 10**8
    assert room_of(place, 2e8) == 5e7  # a state is in memory four times
    assert room_of(replace(place, free=10**15), 1e15) == MOST
    cases = save_cases(40 * MIB, 4, 70 * MIB)
    assert {(case.ranks, case.size // MIB) for case in cases} == {(1, 8), (2, 8), (4, 8), (1, 32), (2, 32)}
    assert [case.ranks * case.size for case in cases] == sorted(case.ranks * case.size for case in cases)
    assert save_cases(1.0, 1, LEAST) == [SaveCase(1, LEAST)]


def test_a_full_disk_is_named_and_the_smaller_cases_stay() -> None:
    clock, rows = Clock(), StorageRows()
    ranks = OneAfterAnother(SlowFiles(clock, room=20 * MIB))
    measure_saves(ranks, save_cases(512 * MIB, 4, 10**10), 1e9, rows, clock, lambda: None)
    assert rows.refused == {"1 rank of 32 MiB": "No space left on device"}
    assert {row["shape"] for row in rows.rows()} == {f"ranks={count} size={8 * MIB}" for count in (1, 2, 4)}
    # four ranks have as many bytes together as what was refused
    assert {(row["batch"], row["repeats"]) for row in rows.rows()} == {(1, ROUNDS), (2, ROUNDS), (4, 1)}
    assert all(rank.file is None or rank.file.closed for rank in ranks.ranks)  # the room is given back


def test_what_the_page_cache_kept_is_not_called_cold() -> None:
    clock, rows = Clock(), StorageRows()
    ranks = OneAfterAnother(SlowFiles(clock, stays=0.9))
    measure_saves(ranks, save_cases(32 * MIB, 4, 10**9), 1e9, rows, clock, lambda: None)
    measure_samples(ranks, part_of(), 64 * 1024, 32 * MIB, clock.now + 1e9, rows, clock)
    data = dataset(ABOUT, rows.rows())
    assert {row["phase"] for row in data.rows() if row["library"] == "torch.load"} == {"warm"}
    assert {row["library"] for row in rows_of_saves(data, "read")} == {"O_DIRECT"}  # what is left of the disk
    assert {row["phase"] for row in data.rows() if row["op"] == "samples"} == {"warm"}
    place = DiskPlace("/data", "nfs4", "server:/data", "rw", 10**9, 10**12)
    said = storage_run.about_storage(place, rows)["settings"]
    assert said["page_cache"] == "not dropped, 90 % of a file's pages stayed at most" and said["shared"] == "yes"
    memory = StorageRows(memory=True)
    measure_saves(OneAfterAnother(SlowFiles(clock)), save_cases(LEAST, 1, 10**9), clock.now + 1e9, memory, clock, lambda: None)
    assert {row["phase"] for row in memory.rows()} == {"warm"}
    assert storage_run.about_storage(replace(place, filesystem="tmpfs"), memory)["settings"]["page_cache"].startswith(
        "memory, no disk"
    )


def test_no_direct_reads_are_said_once() -> None:
    clock, rows = Clock(), StorageRows()
    ranks = OneAfterAnother(SlowFiles(clock, direct=False))
    measure_saves(ranks, save_cases(32 * MIB, 1, 10**9), 1e9, rows, clock, lambda: None)
    assert (
        rows.refused == {"O_DIRECT": "Invalid argument"}
        and len([name for name, _ in ranks.asked if name == "read_past_cache"]) == 2  # of the first file, and once
    )
    assert {row["op"] for row in rows.rows()} == {"write", "read", "stage"}


def test_files_have_no_names_whatever_ends_their_ranks(tmp_path: Path) -> None:
    """A rank that is killed with its file open leaves nothing, and the next call says that it is gone."""
    with RankPool(str(tmp_path), 2, time.monotonic() + 600.0, Clock()) as pool:
        assert [took.size for took in pool.ask_ranks("write", 2, MIB)] == [MIB, MIB]
        assert list(tmp_path.iterdir()) == []
        os.kill(pool.started[0][0], signal.SIGKILL)
        with pytest.raises(OSError, match="a rank was killed"):
            pool.ask_ranks("write", 2, MIB)
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_waits_for_its_disk_does_not_hold_the_clock_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskFiles, "sync", lambda self, file: time.sleep(3600.0))
    with pytest.raises(NoTimeLeftError), RankPool(str(tmp_path), 1, time.monotonic() + 0.1, Clock()) as pool:
        pool.ask_ranks("write", 1, MIB)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_one_rank_reaches_the_run_and_the_next_call_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(self: Clock, state: dict[str, Bytes], file: IO[bytes]) -> None:
        if sum(tensor.nbytes for tensor in state.values()) > MIB:
            try:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                raise RuntimeError("unexpected pos 960 vs 854")  # as PyTorch's writer does

    monkeypatch.setattr(Clock, "save", save)
    with RankPool(str(tmp_path), 2, time.monotonic() + 600.0, Clock()) as pool:
        with pytest.raises(OSError, match="No space left on device"):
            pool.ask_ranks("write", 2, 2 * MIB)
        assert len(pool.ask_ranks("write", 2, MIB)) == 2


def test_a_folder_that_takes_no_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**asked: Any) -> IO[bytes]:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    told: list[str] = []
    device: Any = SimpleNamespace(cuda=False, torch=Clock())
    measure_storage(part_of(str(tmp_path)), tmp_path / "storage.parquet", ABOUT, device, 60.0, told.append)
    assert told == [f"storage: not measured: {tmp_path}: Read-only file system"] and list(tmp_path.iterdir()) == []
    measure_storage(part_of(str(tmp_path / "none")), tmp_path / "storage.parquet", ABOUT, device, 60.0, told.append)
    assert told[1].endswith("No such file or directory")


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    rows = made_rows(0.01, 1e-9, 2e-9, CASES)
    write(dataset(ABOUT, rows), tmp_path / "storage.parquet")
    told: list[str] = []
    device: Any = SimpleNamespace(cuda=False, torch=Clock())
    part = part_of(str(tmp_path), classes=("checkpoint",))
    measure_storage(part, tmp_path / "storage.parquet", ABOUT, device, 60.0, told.append)
    assert told == ["storage: from before"]


def test_too_few_saves_are_gone_on_with(tmp_path: Path) -> None:
    """One rank's rows of a run that the clock ended stay until theirs are measured again; the next run has the folder's."""
    (tmp_path / "cell").mkdir()
    rows = made_rows(0.01, 1e-9, 2e-9, CASES[:1])
    write(dataset(ABOUT, rows), tmp_path / "cell" / "storage.parquet")
    told: list[str] = []
    device: Any = SimpleNamespace(cuda=False, torch=Clock())
    part = part_of(str(tmp_path / "none"), classes=("checkpoint",))
    measure_storage(part, tmp_path / "cell" / "storage.parquet", ABOUT, device, 60.0, told.append)
    assert "not measured" in told[0] and len(read(tmp_path / "cell" / "storage.parquet")) == 2


def test_the_file_system_of_a_folder(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    inside = tmp_path / "with space"
    inside.mkdir()
    root = str(tmp_path.resolve()).replace(" ", "\\040")
    mounts.write_text(
        "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
        f"40 22 0:50 / {root}/with\\040space rw,nosuid - nfs4 server:/data rw,vers=4.2\n"
        f"41 22 0:51 / {root}/with rw - tmpfs tmpfs rw\n",
        encoding="utf-8",
    )
    place = place_of(inside, mounts)
    assert (place.filesystem, place.device, place.options) == ("nfs4", "server:/data", "rw,nosuid,vers=4.2")
    assert place.is_shared and not place.is_memory and 0 < place.free <= place.size
    assert place_of(tmp_path, mounts).filesystem == "ext4" and not place_of(tmp_path, mounts).is_shared
    assert place_of(tmp_path, tmp_path / "none").filesystem == ""


def test_files_on_a_real_disk(tmp_path: Path) -> None:
    """What is written is read back, past the page cache too where the file system lets it."""
    files = DiskFiles(str(tmp_path))
    raw = np.random.default_rng(0).bytes(3 * MIB + 17)
    with files.create() as file:
        file.write(raw)
        files.sync(file)
        assert 0.0 <= files.forget(file) <= 1.0
        with files.reopen(file) as again:
            assert again.read() == raw
        assert files.map_file(file)[:] == raw
        try:
            assert files.read_direct(file) == len(raw)
        except OSError as error:
            assert error.errno == errno.EINVAL
