"""The bytes of trace files, unpacked while they are read: plain, gzip, and tar of either."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.files import read_bytes

CHUNK = 4 * 1024 * 1024
_GZIP = b"\x1f\x8b"


@dataclass
class Source:
    """One trace: its name, its bytes in chunks, and what could not be unpacked (filled while the chunks are read)."""

    name: str
    chunks: Iterator[bytes]
    broken: list[str] = field(default_factory=list)


def sources(files: Sequence[Path], progress: Callable[[str, int, int], None] | None = None) -> Iterator[Source]:
    """The traces in the files, one after the other; each has to be read before the next. FileError for what is no file."""
    sizes = [read_bytes(path, 0, "a trace")[1] for path in files]
    done = 0
    for path, size in zip(files, sizes, strict=True):
        before = done
        with open(path, "rb") as raw:

            def tell(at: int, before: int = before, name: str = path.name) -> None:
                if progress is not None:
                    progress(name, before + at, sum(sizes))

            yield from _in_file(str(path), raw, tell)
        done += size


def _in_file(name: str, raw: BinaryIO, tell: Callable[[int], None]) -> Iterator[Source]:
    broken: list[str] = []
    chunks = _unpack_chunks(_read(raw, tell), broken)
    first = next(chunks, b"")
    if first[257:262] != b"ustar":
        yield Source(name, _after(first, chunks), broken)
        return
    try:
        with tarfile.open(fileobj=_Stream(_after(first, chunks)), mode="r|") as archive:
            for member in archive:
                inside = archive.extractfile(member) if member.isfile() else None
                if inside is None or Path(member.name).name.startswith("."):
                    continue
                own: list[str] = []
                yield Source(f"{name}/{member.name}", _unpack_chunks(_read(inside, lambda _: None, own), own), own)
    except tarfile.TarError as error:
        raise FileError(name, f"a broken tar file ({error})", "a whole tar file") from None


def _read(file: object, tell: Callable[[int], None], broken: list[str] | None = None) -> Iterator[bytes]:
    at = 0
    while True:
        try:
            data: bytes = file.read(CHUNK)  # type: ignore[attr-defined]
        except (OSError, EOFError, tarfile.TarError) as error:
            if broken is not None:
                broken.append(f"the file ends early ({error})")
            return
        if not data:
            return
        at += len(data)
        tell(at)
        yield data


def _unpack_chunks(chunks: Iterator[bytes], broken: list[str]) -> Iterator[bytes]:
    """The chunks as they are, or what their gzip stream holds up to where it breaks; no chunk is larger than CHUNK."""
    first = next(chunks, b"")
    if first[:2] != _GZIP:
        yield first
        yield from chunks
        return
    unpack, started = zlib.decompressobj(wbits=31), False
    for data in _after(first, chunks):
        rest = data
        while rest:
            started = True
            try:
                yield unpack.decompress(rest, CHUNK)
            except zlib.error as error:
                broken.append(f"the gzip stream is broken ({error})")
                return
            rest = unpack.unconsumed_tail
            if unpack.eof:  # a file may hold several streams, and zeros after the last
                rest = unpack.unused_data.lstrip(b"\0")
                unpack, started = zlib.decompressobj(wbits=31), False
    if started:
        broken.append("the gzip stream ends early")
        yield unpack.flush()


def _after(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from chunks


class _Stream(io.RawIOBase):
    """Chunks as the stream that tarfile reads."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.rest = chunks, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, wanted = [], size if size >= 0 else 1 << 62
        while wanted > 0:
            if not self.rest:
                self.rest = next(self.chunks, b"")
                if not self.rest:
                    break
            part, self.rest = self.rest[:wanted], self.rest[wanted:]
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)
