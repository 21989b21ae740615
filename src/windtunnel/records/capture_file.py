"""What a captured rank did, entry by entry, as one Parquet file: operators, calls, allocations and waits in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError

KEY = b"windtunnel.capture"
"""Key of the metadata of a file that holds a captured rank."""

ENTRY = np.dtype([
    ("a", "i8"), ("b", "i8"), ("c", "i8"), ("sequence", "i8"), ("host", "i8"), ("name", "i4"), ("signature", "i4"),
    ("stream", "i4"), ("module", "i4"), ("kind", "u1"), ("backward", "u1"), ("flag", "u1"), ("thread", "u1"), ("unused", "u4"),
])  # fmt: skip
"""One entry, as the recorder writes it (`capture/device/log.hpp`)."""


class EntryKind(IntEnum):
    """What an entry says; `a`, `b` and `c` as written there."""

    OPERATOR = 0
    ALLOCATE = 1  # address, bytes
    FREE = 2  # address, bytes
    RECORD = 3  # event
    BLOCK = 4  # event, for which the stream waits
    HOST_WAIT = 5  # event, or -1 the stream, -2 the device
    CALL = 6  # number, bytes, group << 32 | peer + 1; `signature`: the stream that it begins after
    CALL_WAIT = 7  # number of the call, for which the stream waits
    COPY = 8  # -, bytes, whether the host waits; `flag` 1 to the device, 2 from it
    READ = 9  # `signature`: by which rule, and where
    MARK = 10


REPLAYED = 4
"""Bit of `flag`: an operator or a call of a CUDA graph's replay, which the host does not launch."""


@dataclass(frozen=True)
class CapturedRank:
    """Entries of a rank in their order; `name`, `signature` and `module` are numbers of `texts`, -1 none."""

    entries: npt.NDArray[Any]
    texts: tuple[str, ...]
    about: dict[str, Any]
    """`rank`, `world`, `groups` with `number`, `name` and `ranks`, `steps`, `card`, `command`, `notes`."""


def write_captured(rank: CapturedRank, path: Path) -> None:
    """One Parquet file. FileError if it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: np.ascontiguousarray(rank.entries[name]) for name in ENTRY.names or () if name != "unused"}
    metadata = {KEY: json.dumps(rank.about | {"texts": rank.texts}).encode()}
    try:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, compression="zstd")
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


def captured_files(sources: Sequence[str | Path]) -> list[Path]:
    """Files of captured ranks that the sources name or, as folders, hold; none where one of them is anything else."""
    files: list[Path] = []
    for path in map(Path, sources):
        try:
            inside = sorted(path.glob("rank-*.parquet")) if path.is_dir() else [path]
            if not inside or not all(is_captured(file) for file in inside):
                return []
        except (OSError, ValueError):  # a text that is no path
            return []
        files += inside
    return files


def is_captured(path: Path) -> bool:
    """Whether a file holds a captured rank."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return KEY in (pq.read_schema(path).metadata or {})
    except (OSError, ValueError, pa.ArrowException):
        return False


def read_captured(path: Path) -> CapturedRank:
    """A captured rank from its file. FileError if it is missing, broken or another kind of file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {})[KEY])
        entries = np.zeros(table.num_rows, ENTRY)
        for name in ENTRY.names or ():
            if name != "unused":
                entries[name] = table[name].to_numpy()
        texts = tuple(about.pop("texts"))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise FileError(str(path), "no captured rank", "a file that `windtunnel capture` wrote") from error
    return CapturedRank(entries, texts, about)


STEP, OPTIMIZER, OPTIMIZER_END = "step", "optimizer", "optimizer end"
"""Marks: a step of training begins; an optimizer updates; it has."""

COMPILED, COMPILED_END = "compiled", "compiled end"
"""Marks: a function that torch.compile would compile begins, and ends."""


def steps_of(rank: CapturedRank) -> list[slice]:
    """Entries of each step: from the end of one update to that of the next, so that ranks agree; the first from its first forward.
    All entries where no step is marked."""
    marks = np.flatnonzero(rank.entries["kind"] == EntryKind.MARK).tolist()
    named = [(mark, rank.texts[int(rank.entries["name"][mark])]) for mark in marks]
    begins = [mark for mark, name in named if name == STEP]
    if not begins:
        return [slice(0, len(rank.entries))]
    steps, first = [], begins[0]
    for begin, after in zip(begins, [*begins[1:], len(rank.entries)], strict=True):
        ends = [mark for mark, name in named if name == OPTIMIZER_END and begin < mark < after]
        end = ends[-1] + 1 if ends else after
        steps.append(slice(first, end))
        first = end
    return steps
