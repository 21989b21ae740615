"""Checkpoints and samples on a file system: rates by hand on a clock of its own, bounds of time and room, laws, and their use."""

from __future__ import annotations

import errno
import io
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError, SpecError
from windtunnel.goodput.run import STOP, checkpoint_cost
from windtunnel.measure.cells import cell_of, job_with_files
from windtunnel.measure.storage import SURE, figures_of, law_of, measured_files, rows_of_saves, unseen_case
from windtunnel.predict.runs.setting import Loading
from windtunnel.profile.plan_slice import PlanSlice, slice_of, slice_table
from windtunnel.profile.storage import run as storage_run
from windtunnel.profile.storage.place import DiskFiles, DiskPlace, place_of
from windtunnel.profile.storage.pool import NoTimeLeftError, RankPool, finish
from windtunnel.profile.storage.rank import DiskRank, SampleCase, Took, sample_places
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
from windtunnel.records import About, Dataset, dataset, read, write
from windtunnel.spec import MeasuredFiles, load_job

MIB = 2**20
JOB = str(Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml")
ABOUT = About("cpu-made-up", architecture="x86_64", licence="Apache-2.0", source="made up", settings={"cores": "2"})


class Bytes:
    """A tensor of PyTorch, as far as a rank of a disk uses one."""

    def __init__(self, raw: Any, clock: Clock) -> None:
        self.raw, self.clock, self.nbytes = raw, clock, len(raw)

    def clone(self) -> Bytes:
        return self

    def copy_(self, other: Bytes) -> None:
        self.clock.now += other.nbytes / 1e9

    def __getitem__(self, part: slice) -> Bytes:
        return self

    def contiguous(self) -> Bytes:
        return self


class Clock:
    """A clock that moves where bytes do; it is PyTorch too."""

    def __init__(self) -> None:
        self.now = 0.0
        self.uint8, self.threads = "uint8", 0

    def __call__(self) -> float:
        return self.now

    def frombuffer(self, raw: Any, dtype: str) -> Bytes:
        return Bytes(raw, self)

    def from_numpy(self, raw: Any) -> Bytes:
        return Bytes(raw, self)

    def set_num_threads(self, count: int) -> None:
        self.threads = count

    def save(self, state: dict[str, Bytes], file: IO[bytes]) -> None:
        for tensor in state.values():
            file.write(tensor.raw)

    def load(self, stream: IO[bytes], map_location: str, weights_only: bool) -> None:
        self.now += len(stream.read()) / 4e8


class Written(io.BytesIO):
    """A file in memory, and how much of it is on the disk."""

    synced = 0


class SlowFiles(DiskFiles):
    """A disk with 100 MB/s and 5 ms for each write, 500 MB/s past the page cache, 1 ms for a sample that is not in it."""

    def __init__(self, clock: Clock, room: float = 1e12, stays: float = 0.0, direct: bool = True, rate: float = 1e8) -> None:
        self.clock, self.room, self.stays, self.takes_direct, self.rate, self.cold = clock, room, stays, direct, rate, False

    def create(self) -> IO[bytes]:
        return Written()

    def sync(self, file: IO[bytes]) -> None:
        size = file.seek(0, 2)
        if size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        assert isinstance(file, Written)
        self.clock.now += (size - file.synced) / self.rate + 0.005
        file.synced = size

    def forget(self, file: IO[bytes]) -> float:
        self.cold = self.stays == 0.0
        return self.stays

    def reopen(self, file: IO[bytes]) -> IO[bytes]:
        assert isinstance(file, io.BytesIO)
        return io.BytesIO(file.getvalue())

    def read_direct(self, file: IO[bytes]) -> int:
        if not self.takes_direct:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        size = file.seek(0, 2)
        self.clock.now += size / 5e8
        return size

    def map_file(self, file: IO[bytes]) -> Any:
        assert isinstance(file, io.BytesIO)
        return file.getvalue()


class OneAfterAnother:
    """Ranks that take turns on the disk of one clock, as ranks that share it do; a sample moves it, too."""

    def __init__(self, files: SlowFiles, count: int = 4) -> None:
        self.files, self.asked = files, list[tuple[str, int]]()
        tokens = files.create()
        self.ranks = [DiskRank(files, files.clock, files.clock, rank, tokens) for rank in range(count)]

    def ask_ranks(self, name: str, ranks: int, *asked: Any) -> list[Took]:
        self.asked.append((name, ranks))
        works = [getattr(rank, name)(*asked) for rank in self.ranks[:ranks]]
        for work in works:
            next(work)
        took = [finish(work) for work in works]
        if name == "samples":
            each = 1e-3 if self.files.cold else 1e-6
            took = [one._replace(times=(each,) * len(one.times)) for one in took]
            self.files.cold = False
        return took


def part_of(folder: str = "", shard: float = 64 * MIB, classes: tuple[str, ...] = ("checkpoint", "loader")) -> PlanSlice:
    case = wt.measure.plan(JOB, gpu="h100-sxm-80gb", budget="60s").slices[0].case
    return PlanSlice("storage", "storage", case, 0.1, "", classes, ranks=4, folder=folder, shard_bytes=shard, workers=2)


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


def made_rows(fixed: float, own: float, disk: float, cases: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Writes and reads that a law of two cores says exactly; reads are twice as fast."""
    rows = []
    for ranks, size in cases:
        seconds = fixed + own * size * max(1.0, ranks / 2) + disk * ranks * size
        for op, library, factor in (("write", "torch.save", 1.0), ("read", "torch.load", 0.5)):
            rows.append(
                {
                    "level": "file",
                    "op": op,
                    "name": "checkpoint",
                    "phase": "cold",
                    "dtype": "fp32",
                    "mode": "eager",
                    "library": library,
                    "shape": f"ranks={ranks} size={size}",
                    "batch": ranks,
                    "bytes": float(ranks * size),
                    "seconds": factor * seconds,
                    "status": "ok",
                    "source": "made up",
                }  # fmt: skip
            )
    return rows


CASES = [(ranks, size * MIB) for size in (8, 32) for ranks in (1, 2, 4)]


def test_a_law_says_sizes_and_ranks_that_no_row_has() -> None:
    rows = rows_of_saves(dataset(ABOUT, made_rows(0.01, 1e-9, 2e-9, CASES)), "write")
    law = law_of(rows, 2)
    assert law is not None
    assert (law.fixed, law.own, law.disk) == (pytest.approx(0.01), pytest.approx(1e-9), pytest.approx(2e-9))
    assert law.seconds(3, 16 * MIB) == pytest.approx(0.01 + 16 * MIB * (1e-9 * 1.5 + 2e-9 * 3)) and law.stated == SURE
    case, near = unseen_case(rows, 1e12)
    assert case == SaveCase(3, 16 * MIB) and (case.ranks, case.size) not in CASES
    assert near == [SaveCase(2, 32 * MIB), SaveCase(4, 8 * MIB), SaveCase(1, 32 * MIB)]  # 64, 32 and 32 MiB beside 48
    assert unseen_case(rows, 30 * MIB)[0].size == 10 * MIB
    assert law_of(rows[:3], 2) is None
    disk = law_of(rows_of_saves(dataset(ABOUT, made_rows(0.0, 0.0, 2e-9, CASES)), "write"), 2)
    assert disk is not None and disk.slope(8) == pytest.approx(16e-9)


def test_an_error_is_stated_that_rows_have() -> None:
    rows = made_rows(0.01, 1e-9, 2e-9, CASES)[::2]
    for place, factor in enumerate((1.0, 1.8, 1.0, 0.6, 1.0, 1.7)):
        rows[place]["seconds"] *= factor
    law = law_of(rows, 2)
    assert law is not None and law.stated > 2 * SURE


def test_predictions_of_a_job_take_the_rates() -> None:
    """By hand: a save of 80 GB on two nodes with their own disks, or on one file system that gives 5 GB/s to all."""
    job = wt.load(
        "llama3-8b-8xh100",
        overrides=["cluster.gpus=16", "plan.global_batch=32", "reliability=llama3-2024", "reliability.checkpoint.size=80e9",
                   "reliability.checkpoint.write=5GB/s per storage each way"],
    )  # fmt: skip
    table = {
        "write": "1GB/s per node each way", "read": "4GB/s per node each way", "latency": 0.5, "sample": 0.002,
        "stage": "10GB/s per GPU each way",
    }  # fmt: skip

    def on(**other: Any) -> Any:
        files = MeasuredFiles.model_validate({**table, **other})
        node = job.cluster.node.model_copy(update={"files": files})
        return job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})})

    own, shared, plain = on(), on(shared=True), job
    assert own.reliability is not None
    policy = own.reliability.checkpoint
    cost = checkpoint_cost(own, policy)
    assert cost.flush == pytest.approx(80e9 / 2e9 + 0.5) and cost.save == pytest.approx(STOP + 5e9 / 10e9)
    assert cost.drag == pytest.approx(0.03)  # no NIC lies between
    assert checkpoint_cost(shared, policy).flush == pytest.approx(80e9 / 2e9 + 0.5)
    fast = on(shared=True, write="100GB/s per node each way")
    assert checkpoint_cost(fast, policy).flush == pytest.approx(80e9 / 5e9 + 0.5)
    assert checkpoint_cost(own, policy).load >= 80e9 / 8e9 > checkpoint_cost(plain, policy).load
    before, after = Loading.of(plain), Loading.of(own)
    assert after.reading == pytest.approx(before.reading + 0.002 * after.readers_of_node * job.plan.micro_batch)


def test_files_of_a_cell_are_the_node_s() -> None:
    rows = made_rows(0.01, 1e-9, 2e-9, CASES)
    clock, samples = Clock(), StorageRows()
    measure_samples(OneAfterAnother(SlowFiles(clock)), part_of(), 64 * 1024, 32 * MIB, 1e9, samples, clock)
    data = dataset(replace(ABOUT, settings={"cores": "2", "filesystem": "xfs", "shared": "no"}), [*rows, *samples.rows()])
    files = measured_files(data, 2, "measured on a machine")
    assert files is not None and files.write == pytest.approx(2 / (1e-9 + 4e-9)) and files.read == pytest.approx(4 / (1e-9 + 4e-9))
    assert files.latency == pytest.approx(0.01) and files.sample == pytest.approx(0.5e-3 - 257 * 4 / files.read)
    assert files.source == "measured on a machine; files of up to 32 MiB on xfs"
    job = job_with_files(load_job(JOB), data, "measured")
    assert job.runtime.data.sample == pytest.approx(1e-6) and job.runtime.data.storage == job.cluster.node.files.read  # type: ignore[union-attr]
    assert measured_files(dataset(ABOUT, rows[:4]), 2, "") is None


def test_a_damaged_row_is_refused(tmp_path: Path) -> None:
    data = dataset(ABOUT, made_rows(0.01, 1e-9, 2e-9, CASES))
    write(data, tmp_path / "storage.parquet")
    assert cell_of(tmp_path).storage[0].at_once == 1
    table = pq.read_table(tmp_path / "storage.parquet")
    seconds = table["seconds"].to_pylist()
    seconds[3] *= 0.5
    place = table.column_names.index("seconds")
    pq.write_table(table.set_column(place, table.field(place), pa.array(seconds, pa.float64())), tmp_path / "storage.parquet")
    with pytest.raises(FileError, match="sealed"):
        cell_of(tmp_path)
    with pytest.raises(SpecError, match="write, read, stage, samples"):
        dataset(ABOUT, [{**data.rows()[0], "op": "delete"}])


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


@pytest.mark.parametrize(
    ("asked", "classes"),
    [
        ({"job": JOB}, ("loader",)),
        ({"job": JOB, "checkpoints": "/data"}, ("checkpoint", "loader")),
        ({"job": JOB, "sets": ["reliability=llama3-2024"]}, ("checkpoint", "loader")),
        ({"model": "llama3.2-1b"}, ()),
        ({"model": "llama3.2-1b", "checkpoints": "/data"}, ("checkpoint",)),
    ],
)
def test_a_plan_has_what_the_job_reads_and_writes(asked: dict[str, Any], classes: tuple[str, ...]) -> None:
    made = wt.measure.plan(**asked, gpu="h100-sxm-80gb", budget="8m")
    names = [part.name for part in made.slices]
    assert sum(part.share for part in made.slices) == pytest.approx(1.0)
    if not classes:
        assert "storage" not in names
        return
    part = made.slices[names.index("storage")]
    assert part.classes == classes and names[names.index("storage") + 1 :] == ["collectives"] and part.share == pytest.approx(0.05)
    assert part.folder == asked.get("checkpoints", "") and slice_of(slice_table(part)) == part
    if asked.get("job"):
        assert part.shard_bytes == pytest.approx(5_048_576 * 12, rel=0.01)  # fp32 weights and Adam's two moments, one GPU


def test_datasets_of_files_are_no_kernels() -> None:
    data = dataset(ABOUT, made_rows(0.01, 1e-9, 2e-9, CASES))
    assert isinstance(data, Dataset) and not len(data.where(level="kernel"))
