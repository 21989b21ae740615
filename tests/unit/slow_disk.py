"""A disk on a clock of its own, ranks that share it, and rows that a law says exactly."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import IO, Any

import windtunnel as wt
from windtunnel.profile.plan_slice import PlanSlice
from windtunnel.profile.storage.place import DiskFiles
from windtunnel.profile.storage.pool import finish
from windtunnel.profile.storage.rank import DiskRank, Took
from windtunnel.records import About

MIB = 2**20


JOB = str(Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml")


ABOUT = About("cpu-made-up", architecture="x86_64", licence="Apache-2.0", source="made up", settings={"cores": "2"})


CASES = [(ranks, size * MIB) for size in (8, 32) for ranks in (1, 2, 4)]


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
