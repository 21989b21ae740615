"""Checkpoints and samples of one node, measured within a time and a room, as rows of a dataset."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any, Protocol

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.processes import count_cores
from windtunnel.base.units import show_size
from windtunnel.profile.device import host_memory
from windtunnel.profile.plan_slice import PlanSlice
from windtunnel.profile.session import Session, key_of
from windtunnel.profile.storage.place import DiskPlace, place_of
from windtunnel.profile.storage.pool import NoTimeLeftError, RankPool, span_of
from windtunnel.profile.storage.rank import SampleCase, Took
from windtunnel.records import About, write_shape

ROOM = 0.1
"""Share of the free bytes that files take at most, all together."""

MOST = 4 * 2**30
"""B that they take at most."""

LEAST = 8 * 2**20
"""B of a rank's smallest checkpoint."""

STEP = 4
"""Times that the next one is larger."""

RANKS = (1, 2, 4, 8)
"""Ranks that write at once."""

ROUNDS = 5
"""Times that a case is measured at most."""

TOKENS = 512 * 2**20
"""B of the file of tokens at most."""

WRITING = 0.4
"""Share of a loader's time in which its tokens are written."""

APART = 512 * 2**10
"""B between two samples that are read at random at least."""

SAMPLES = 4000
"""Samples that a worker reads at a time at most."""

STAYED = 0.05
"""Share of a file's pages in the page cache above which a read was not cold."""

WRITES_ROWS = 0.1
"""Share of the time that is kept for the rows and the end of the processes."""

LOADER = 0.3
"""Share of the time that samples get where checkpoints are measured too."""

FIRST = 2**20
"""B of a file of each rank that is not counted."""

ENOUGH = {"loader": ("samples", 1), "checkpoint": ("write", 4)}
"""Class of a slice -> the op of its rows, and how many it has where it is not measured again."""

SOURCE = "windtunnel measure run"

Clock = Callable[[], float]


class SaveRanks(Protocol):
    """`RankPool`, or what stands in for it."""

    def ask_ranks(self, name: str, ranks: int, *asked: Any) -> list[Took]: ...


@dataclass(frozen=True)
class SaveCase:
    """Checkpoints of `size` B of `ranks` ranks at once."""

    ranks: int
    size: int

    def in_words(self) -> str:
        """Such as: `4 ranks of 8 MiB`."""
        return f"{self.ranks} rank{'s' * (self.ranks > 1)} of {show_size(self.size)}"


@dataclass
class StorageRows:
    """Seconds that were seen of each row, by what it is. `memory`: the files are in memory, not on a disk; `stayed`: shares of
    files that the page cache kept; `refused`: what the disk refused, and why."""

    memory: bool = False
    seen: dict[str, tuple[dict[str, Any], list[float]]] = field(default_factory=dict)
    stayed: list[float] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def add_save(self, op: str, case: SaveCase, took: Sequence[Took], library: str) -> None:
        """One execution of all ranks of a case."""
        read_past = library == "O_DIRECT" and not self.memory
        cold = read_past or (op != "stage" and self._is_cold(max(one.stayed for one in took)))
        row = {
            "op": op, "name": "checkpoint", "phase": "cold" if cold else "warm", "dtype": "fp32", "library": library,
            "shape": write_shape({"ranks": case.ranks, "size": case.size}), "batch": case.ranks,
            "bytes": float(case.ranks * case.size),
        }  # fmt: skip
        self._add(row, [span_of(list(took))])

    def add_samples(self, case: SampleCase, took: Sequence[Took]) -> None:
        """Samples that workers have read at once; a row is of one of them. Those that were to be cold and were not are no row."""
        if case.cold and not self._is_cold(max(one.stayed for one in took)):
            return
        row = {
            "op": "samples", "name": case.order, "phase": "cold" if case.cold else "warm", "dtype": "fp32", "library": "mmap",
            "shape": write_shape({"tokens": case.tokens, "width": case.width, "workers": case.workers}), "batch": case.workers,
            "n": case.tokens, "bytes": float(case.sample_bytes),
        }  # fmt: skip
        self._add(row, [second for one in took for second in one.times])

    def _add(self, row: dict[str, Any], seconds: Sequence[float]) -> None:
        whole = {**row, "level": "file", "mode": "eager", "status": "ok", "source": SOURCE}
        self.seen.setdefault(key_of(whole), (whole, []))[1].extend(seconds)

    def _is_cold(self, stayed: float) -> bool:
        self.stayed.append(stayed)
        return stayed <= STAYED and not self.memory

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the schema: medians of what was seen."""
        for row, times in self.seen.values():
            yield {
                **row, "seconds": median(times), "seconds_min": min(times), "seconds_max": max(times),
                "seconds_mean": fmean(times), "seconds_std": pstdev(times), "repeats": len(times),
            }  # fmt: skip


def room_of(place: DiskPlace, memory: float) -> int:
    """B that files may take together; a state is in memory up to four times: `memory` B are free."""
    return int(min(MOST, ROOM * place.free, memory / 4))


def save_cases(shard: float, ranks: int, room: int) -> list[SaveCase]:
    """Cases from small to large: up to a rank's shard of the job, and to `room` B of all ranks together."""
    sizes = [LEAST]
    while sizes[-1] * STEP <= shard:
        sizes.append(sizes[-1] * STEP)
    cases = [SaveCase(count, size) for size in sizes for count in RANKS if count <= ranks and count * size <= room]
    return sorted(cases, key=lambda case: case.ranks * case.size)


def measure_saves(
    ranks: SaveRanks, cases: Sequence[SaveCase], ends: float, rows: StorageRows, clock: Clock, keep: Callable[[], None],
    staged: bool = True,
) -> None:  # fmt: skip
    """Writes, reads and staging copies of `cases` in turn until `ends`, each `ROUNDS` times, as far as a third of the time that is
    left holds one by the rate of the case before. What the disk refuses is named, and it and larger ones are not tried again."""
    chosen, rate, done = list(cases), 0.0, Counter[SaveCase]()  # s for each B, of all that a case does
    for turn in range(ROUNDS + len(cases)):
        before = done.total()
        for case in [case for case in chosen if done[case] < ROUNDS]:
            whole, began = case.ranks * case.size, clock()
            if began >= ends or rate * whole > (ends - began) / 3:
                continue
            try:
                if not done:  # a first file takes longer
                    measure_save(ranks, SaveCase(max(one.ranks for one in cases), FIRST), StorageRows(), staged)
                    began = clock()
                measure_save(ranks, case, rows, staged)
            except OSError as error:
                rows.refused[case.in_words()] = error.strerror or str(error)
                ranks.ask_ranks("clear", case.ranks)
                chosen = [one for one in chosen if one.ranks * one.size < whole]
                break
            rate, done[case] = (clock() - began) / whole, done[case] + 1
        if not turn:
            keep()
        if done.total() == before and not rows.refused:
            break


def measure_save(ranks: SaveRanks, case: SaveCase, rows: StorageRows, staged: bool) -> tuple[float, float]:
    """One execution of a case into `rows`; seconds of its write and of its read. OSError of the disk."""
    written = ranks.ask_ranks("write", case.ranks, case.size)
    read = ranks.ask_ranks("read", case.ranks, case.size)
    rows.add_save("write", case, written, "torch.save")
    rows.add_save("read", case, read, "torch.load")
    if "O_DIRECT" not in rows.refused:
        try:
            rows.add_save("read", case, ranks.ask_ranks("read_past_cache", case.ranks, case.size), "O_DIRECT")
        except OSError as error:
            rows.refused["O_DIRECT"] = error.strerror or str(error)
    if staged:
        rows.add_save("stage", case, ranks.ask_ranks("stage", case.ranks, case.size), "aten")
    ranks.ask_ranks("clear", case.ranks)
    return span_of(written), span_of(read)


def measure_samples(ranks: SaveRanks, part: PlanSlice, apart: int, room: int, ends: float, rows: StorageRows, clock: Clock) -> None:
    """Samples as long as the plan's sequences by one worker and by all of them, in order and at random, cold and warm, until
    `ends`."""
    allowed = ends - clock()
    try:
        written = ranks.ask_ranks("write_tokens", 1, min(TOKENS, room), clock() + WRITING * allowed)
    except OSError as error:
        rows.refused["tokens"] = error.strerror or str(error)
        return
    size = written[0].size
    cases = [
        SampleCase(order, count, part.case.seq, part.token_bytes, apart, cold)
        for order in ("random", "sequential")
        for count in sorted({1, min(part.workers, part.ranks)})
        for cold in (True, False)
    ]
    if size < cases[0].sample_bytes:
        rows.refused["tokens"] = f"a sample is larger than the {show_size(size)} that were written"
        return
    for place, case in enumerate(cases):
        left = ends - clock()
        if left <= 0:
            return
        took = ranks.ask_ranks("samples", case.workers, case, size, SAMPLES, clock() + left / (len(cases) - place))
        if all(one.times for one in took):
            rows.add_samples(case, took)


def measure_storage(
    part: PlanSlice, path: Path, described: About, device: Any, allowed: float, tell: Callable[[str], None]
) -> None:  # fmt: skip
    """Measures the slice `part` into `path` for at most `allowed` s; what is there stays. A folder that takes no file is said."""
    began = time.monotonic()
    ends = began + (1 - WRITES_ROWS) * allowed
    folder = Path(part.folder or path.parent)
    session = Session(path, described, resume=True)
    before = Counter(row["op"] for row in session.rows.values())
    wanted = [what for what, (op, enough) in ENOUGH.items() if what in part.classes and before[op] < enough]
    if not wanted:
        tell(f"{part.name}: from before")
        return
    try:
        place = place_of(folder)
        rows = StorageRows(memory=place.is_memory)

        def keep() -> None:
            session.about = replace(described, datasheet={}, **about_storage(place, rows))
            session.rows |= {key_of(row): row for row in rows.rows()}
            session.dirty = bool(session.rows)
            session.save()

        room = room_of(place, host_memory("MemAvailable") or MOST)
        if room < LEAST:
            tell(f"{part.name}: not measured: of {show_size(place.free)} that are free a tenth holds no file of {show_size(LEAST)}")
            return
        try:
            if device.cuda and "checkpoint" in wanted:
                stage_on_device(device, part.shard_bytes, rows, ends)
            with RankPool(str(folder), part.ranks, ends, device.torch) as pool:
                if "loader" in wanted:
                    until = ends if "checkpoint" not in wanted else time.monotonic() + LOADER * allowed
                    measure_samples(pool, part, max(APART, place.read_ahead), room // 2, until, rows, time.monotonic)
                    keep()
                if "checkpoint" in wanted:
                    cases = save_cases(part.shard_bytes, part.ranks, room // 2)
                    measure_saves(pool, cases, ends, rows, time.monotonic, keep, staged=not device.cuda)
        except NoTimeLeftError:
            pass  # what was seen until then counts
        finally:
            keep()
    except OSError as error:
        tell(f"{part.name}: not measured: {folder}: {error.strerror or error}")
        return
    tell(f"{part.name}: {len(rows.seen)} measured on {place.filesystem or 'a file system'}, {time.monotonic() - began:.0f} s")
    for what, why in rows.refused.items():
        tell(f"  {what}: {why}")


def stage_on_device(device: Any, shard: float, rows: StorageRows, ends: float) -> None:
    """Copies of a GPU's state into pinned host memory."""
    torch = device.torch
    for case in save_cases(shard, 1, MOST // 4):
        here = torch.empty(case.size, dtype=torch.uint8, device=device.place)
        there = torch.empty(case.size, dtype=torch.uint8, pin_memory=True)
        for turn in range(ROUNDS + 1):
            device.synchronize()
            begin = time.monotonic()
            if begin > ends:
                return
            there.copy_(here, non_blocking=True)
            device.synchronize()
            if turn:
                rows.add_save("stage", case, [Took(begin, time.monotonic(), case.size)], "aten")


def about_storage(place: DiskPlace, rows: StorageRows) -> dict[str, Any]:
    """What the description of a dataset says of the file system."""
    stayed = max(rows.stayed, default=0.0)
    dropped = "memory, no disk" if place.is_memory else "dropped before reads" if stayed <= STAYED else "not dropped"
    direct = "O_DIRECT: " + rows.refused.get("O_DIRECT", "yes")
    settings = {
        "folder": place.folder, "filesystem": place.filesystem or "not said", "block_device": place.device or "not said",
        "mount_options": place.options or "not said", "read_ahead_bytes": str(place.read_ahead or "not said"),
        "free_bytes": str(place.free), "size_bytes": str(place.size),
        "shared": "yes" if place.is_shared else "no",
        "page_cache": f"{dropped}, {100 * stayed:.0f} % of a file's pages stayed at most",
        "direct_reads": direct, "cores": str(count_cores()),
    }  # fmt: skip
    notes = "files: no power, clock, memory and FLOP; caches of the device, of a server and of a host below are not known"
    return {"settings": settings, "notes": notes}
