"""A Chakra file as a sequence of messages: each is a varint length and that many bytes. Read piece by piece. Where the ranks of a
trace lie: files `PREFIX.<rank>.et`, or the members of a tar archive; gzip is unpacked on the way.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError

LARGEST = 2**28
"""Bytes of a message beyond which its length is taken for broken: a node of a real trace has a few hundred."""


class Bytes(Protocol):
    """What can be read piece by piece."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; fewer only at the end."""


class Frames:
    """Iterates over the messages of a stream; `cut` says why it stopped early, empty where the stream ended with a message."""

    def __init__(self, stream: Bytes) -> None:
        self.stream, self.cut, self.count = stream, "", 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (length := self._length()) is not None:
                data = self.stream.read(length)
                if len(data) < length:
                    self.cut = f"message {self.count} is cut off: {len(data)} of {length} bytes"
                    return
                self.count += 1
                yield data
        except (EOFError, OSError, zlib.error) as error:
            self.cut = f"the stream breaks off after {self.count} messages ({error})"

    def _length(self) -> int | None:
        value = shift = 0
        while True:
            byte = self.stream.read(1)
            if not byte:
                if shift:
                    self.cut = f"the length of message {self.count} is cut off"
                return None
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                break
            shift += 7
            if shift > 63:
                value = LARGEST + 1
                break
        if value > LARGEST:
            self.cut = f"message {self.count} has no plausible length"
            return None
        return value


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at a place and the place behind it. ValueError where the data ends or the number has more than 64 bits."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a varint that does not end")


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field, wire type, value) of a message, as the protobuf wire format has them. ValueError for bytes that are no message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("field 0")
        if wire == 0:
            value, at = varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            size, at = varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field that is cut off")
        yield number, wire, data[at : at + size]
        at += size


_NAME = re.compile(r"^(?P<prefix>.*?)[.](?P<rank>\d{1,9})[.](et|eg)(?P<packed>[.]gz)?$")
ARCHIVE_MEMBERS = 2**20
"""Members of an archive beyond which it is refused."""
KEPT = 2**28
"""Bytes of an archive's members that are kept from its one pass; the rest is sought again, which a packed archive makes slow."""


@dataclass(frozen=True)
class RankSource:
    """One rank's trace: a file, or a member of an archive. `prefix` names the trace that it belongs to."""

    rank: int
    prefix: str
    path: Path
    member: str = ""
    data: bytes = b""  # of a member that was kept

    @property
    def name(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)


@dataclass(frozen=True)
class TraceSource:
    """The ranks of one trace in order, and what lies beside them."""

    ranks: tuple[RankSource, ...]
    groups: bytes = b""  # a comm_group JSON of the archive or the folder


def sources(files: Sequence[Path]) -> list[TraceSource]:
    """The traces that the files hold: one for each prefix. SpecError for two files of the same rank."""
    ranks: list[RankSource] = []
    groups: dict[str, bytes] = {}
    looked: set[str] = set()
    for path in files:
        if is_archive(path):
            inside, beside = _members(path)
            ranks += inside
            groups |= beside
        else:
            found = _NAME.match(path.name)
            rank, prefix = (int(found["rank"]), str(path.parent / found["prefix"])) if found else (-1, str(path))
            ranks.append(RankSource(rank, prefix, path))
            if prefix not in looked:
                looked.add(prefix)
                groups |= _files_beside(prefix)
    unnamed = [one for one in ranks if one.rank < 0]
    if unnamed and len(ranks) > 1:
        raise SpecError(str(unnamed[0].path), unnamed[0].path.name, "PREFIX.<rank>.et, where there are several files")
    by_prefix: dict[str, dict[int, RankSource]] = {}
    for one in ranks:
        seen = by_prefix.setdefault(one.prefix, {})
        rank = max(0, one.rank)
        if rank in seen:
            raise SpecError(one.name, f"rank {rank} again", f"one file for each rank; {seen[rank].name} is of rank {rank} too")
        seen[rank] = one
    return [
        TraceSource(tuple(seen[rank] for rank in sorted(seen)), _groups_json(prefix, groups)) for prefix, seen in by_prefix.items()
    ]


def is_archive(path: Path) -> bool:
    """Whether a file is a tar archive, packed or not."""
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error, ValueError):
        return False


@contextmanager
def open_source(source: RankSource) -> Iterator[BinaryIO]:
    """The bytes of one rank's trace. FileError where it cannot be read."""
    try:
        if source.data:
            yield io.BytesIO(source.data)
            return
        if source.member:
            with tarfile.open(source.path) as archive:
                member = archive.extractfile(source.member)
                if member is None:
                    raise FileError(source.name, "no regular file", "a Chakra trace")
                yield cast(BinaryIO, member)
            return
        with open(source.path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: IO[bytes] | Any = gzip.GzipFile(fileobj=raw) if packed else raw
            yield cast(BinaryIO, stream)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise FileError(source.name, getattr(error, "strerror", None) or str(error), "a Chakra trace that can be read") from None


def _members(path: Path) -> tuple[list[RankSource], dict[str, bytes]]:
    ranks: list[RankSource] = []
    groups: dict[str, bytes] = {}
    kept = 0
    try:
        with tarfile.open(path) as archive:
            for count, member in enumerate(archive):
                if count >= ARCHIVE_MEMBERS:
                    raise FileError(str(path), f"more than {ARCHIVE_MEMBERS} members", "an archive of one run's ranks")
                name = member.name.removeprefix("./")
                if not member.isfile():
                    continue
                if (found := _NAME.match(name)) is not None:
                    keep = kept + member.size <= KEPT
                    kept += member.size if keep else 0
                    content = archive.extractfile(member) if keep else None
                    data = content.read() if content is not None else b""
                    ranks.append(RankSource(int(found["rank"]), found["prefix"], path, member.name, data))
                elif name.endswith(".json") and member.size <= 2**24:
                    content = archive.extractfile(member)
                    groups[name] = content.read() if content is not None else b""
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise FileError(str(path), getattr(error, "strerror", None) or str(error), "a whole tar archive") from None
    if not ranks:
        raise FileError(str(path), "no member PREFIX.<rank>.et", "an archive of Chakra traces")
    return ranks, groups


def _files_beside(prefix: str) -> dict[str, bytes]:
    """The files that may describe the communicator groups of the traces `prefix`.N.et: `_groups_json` chooses among them."""
    beside = [Path(f"{prefix}.json"), Path(prefix).parent / "comm_group.json"]
    return {str(path): path.read_bytes() for path in beside if path.is_file() and path.stat().st_size <= 2**24}


def _groups_json(prefix: str, groups: dict[str, bytes]) -> bytes:
    """The JSON that belongs to a prefix: `PREFIX.json`, or `comm_group.json` in the same folder."""
    folder = prefix.rpartition("/")[0]
    for name in (f"{prefix}.json", f"{folder}/comm_group.json", "comm_group.json"):
        if name in groups:
            return groups[name]
    return b""
