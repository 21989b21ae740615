"""All rings of a run as one table of sections."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.fleet.ring import RingReader, RowState
from windtunnel.records.sections import Sections

SUFFIX = ".ring"


def ring_path(folder: Path, rank: int) -> Path:
    """Path of the ring of `rank` in the folder of its run."""
    return folder / f"rank-{rank:06d}{SUFFIX}"


def ring_files(folder: Path) -> list[Path]:
    """Ring files in `folder`, ordered by rank."""
    return sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.stem)])


def stats_of(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """What the file system says of files and folders that others may delete meanwhile: of those that are there."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path, path.stat()


def unrecorded_work(fact: Any) -> list[str]:
    """Descriptions of work that the monitor cannot record, from a line of kind "fact"."""
    entries = fact.get("unseen", ()) if isinstance(fact, dict) else ()
    return [str(one) for one in entries] if isinstance(entries, (list, tuple)) else []


@contextmanager
def open_rings(folder: Path) -> Iterator[list[RingReader]]:
    """Readers of all rings in `folder`, ordered by rank. Rings that are still being created are skipped. FileError if there are
    none.
    """
    readers: list[RingReader] = []
    for path in ring_files(folder):
        with suppress(FileError):
            readers.append(RingReader(path))
    if not readers:
        raise FileError(str(folder), "no ring in it", "the folder of a run that `windtunnel fleet run` watched")
    try:
        yield sorted(readers, key=lambda reader: reader.meta.rank)
    finally:
        for reader in readers:
            reader.close()


def newest_run_of(readers: Sequence[RingReader]) -> list[RingReader]:
    """The rings of the run that wrote last, and of its last attempt: a run in a used folder may have fewer ranks than the one
    before it, and of ranks that a launcher starts again some may not have come yet.
    """
    last = max(readers, key=lambda reader: reader.read(1 << 62).beat_ns).meta
    of_run = [reader for reader in readers if reader.meta.run == last.run and reader.meta.rank < last.world]
    attempt = attempt_of(of_run)
    return [reader for reader in of_run if int(reader.meta.facts.get("attempt", 0)) == attempt]


def attempt_of(readers: Sequence[RingReader]) -> int:
    """How often the launcher has started those ranks again, at most."""
    return max((int(reader.meta.facts.get("attempt", 0)) for reader in readers), default=0)


def has_all_ranks(folder: Path) -> bool:
    """Whether every rank of the newest run in `folder` has its ring there: no other machine has a part of it."""
    with suppress(FileError, OSError), open_rings(folder) as found:
        readers = newest_run_of(found)
        return len({reader.meta.rank for reader in readers}) == readers[0].meta.world
    return False


def ring_sections(reader: RingReader, rows: Any) -> Sections:
    """Converts rows [n] of `ring.ROW` of one ring to sections; `begin` is relative to the first of them."""
    rows = rows[rows["state"] != RowState.EMPTY]
    lines = reader.lines()
    groups = [value for kind, value in lines if kind == "group"]
    zero_ns = int(rows["begin"].min()) if len(rows) else 0
    return Sections.of(
        reader.meta.rank, rows["step"], rows["section"], (rows["begin"] - zero_ns) * 1e-9, _with_nan(rows["nanos"], 1e-9),
        host_seconds=_with_nan(rows["host_nanos"], 1e-9), name=rows["name"], comm=rows["comm"], bytes=_with_nan(rows["bytes"], 1.0),
        group=rows["group"], call=rows["call"], peer=rows["peer"], sends=rows["sends"] != 0, micro_batch=rows["micro_batch"],
        names=tuple(str(value) for kind, value in lines if kind == "name"),
        groups=tuple(tuple(value["ranks"]) for value in groups), group_names=tuple(value["name"] for value in groups),
        hosts={reader.meta.rank: reader.meta.host}, zero=zero_ns * 1e-9,
    )  # fmt: skip


def _with_nan(values: Any, scale: float) -> Any:
    """Scales integers to floats; -1 becomes NaN."""
    return np.where(values < 0, np.nan, values * scale)
