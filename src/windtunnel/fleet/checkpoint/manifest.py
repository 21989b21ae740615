"""Manifest of a committed step: `manifest.json`, the last file that is written into its folder.

Hash of checkpoint files: XXH3, 128 bits. It detects damage, not deliberate forgery.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.checkpoint.pickles import metadata_error

MANIFEST = "manifest.json"
METADATA = ".metadata"
FORMAT = 1


@dataclass(frozen=True)
class ShardFile:
    """A file of a step: name, size in bytes, hash, and the rank that wrote it."""

    name: str
    bytes: int
    hash: str
    rank: int


@dataclass(frozen=True)
class Manifest:
    """Contents of a committed step."""

    step: int
    attempt: str
    """Start of the job that saved it."""
    world: int
    written: float
    """Unix seconds."""
    version: str
    shards: tuple[ShardFile, ...]
    topology: dict[str, Any]
    """Description of the parallel plan, given by the job."""

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(shard.bytes for shard in self.shards)

    def text(self) -> str:
        """The file's contents, including a hash of everything else."""
        fields = {"format": FORMAT, **asdict(self)}
        fields["shards"] = [asdict(shard) for shard in self.shards]
        return json.dumps({**fields, "hash": hash_of_json(fields)}, indent=1) + "\n"


def manifest_from(text: str, where: str = MANIFEST) -> Manifest:
    """Parses a manifest. FileError if it is malformed or its hash does not match."""
    try:
        fields = json.loads(text)
        stated_hash = fields.pop("hash")
        intact = stated_hash == hash_of_json(fields) and fields.pop("format") == FORMAT
        fields["shards"] = tuple(ShardFile(**one) for one in fields["shards"])
        manifest = Manifest(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(where, str(error), "the manifest that a save wrote", _TRY) from error
    if not intact:
        raise FileError(where, "another hash than it states", "the manifest that a save wrote", _TRY)
    for shard in manifest.shards:
        if not is_plain_name(shard.name):
            raise FileError(where, shard.name, "names of files in its own folder", _TRY)
    return manifest


_TRY = "Type `windtunnel fleet checkpoints ls FOLDER` for the steps that are intact."


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a file in the folder itself, so that no manifest or message can refer to another place."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def read_manifest(step_folder: Path) -> Manifest:
    """The manifest of a committed step. FileError if it is missing or damaged."""
    path = step_folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(str(path), str(error), "a manifest", _TRY) from error
    return manifest_from(text, str(path))


def size_errors(step_folder: Path, manifest: Manifest) -> list[str]:
    """Missing files of a step and files of the wrong size; does not read them."""
    wrong = []
    for shard in manifest.shards:
        try:
            size = (step_folder / shard.name).stat().st_size
        except OSError as error:
            wrong.append(f"{shard.name}: {error.strerror}")
            continue
        if size != shard.bytes:
            wrong.append(f"{shard.name}: {size} bytes, {shard.bytes} were written")
    return wrong


def hash_errors(step_folder: Path, manifest: Manifest) -> list[str]:
    """Missing or damaged files of a step, and a `.metadata` that names what no checkpoint needs; reads all of them."""
    wrong = size_errors(step_folder, manifest)
    if wrong:
        return wrong
    for shard in manifest.shards:
        try:
            digest = hash_of_file(step_folder / shard.name)
        except OSError as error:
            wrong.append(f"{shard.name}: {error.strerror}")
            continue
        if digest != shard.hash:
            wrong.append(f"{shard.name}: its bytes are not those that were written")
        elif shard.name == METADATA and (why := metadata_error((step_folder / shard.name).read_bytes())):
            wrong.append(why)
    return wrong


PIECE = 8 << 20
"""Bytes that are read, hashed and written at a time."""


def hash_of(data: Any) -> str:
    """Hash of a buffer as 32 hex digits."""
    return str(xxhash.xxh3_128_hexdigest(data))


def hash_of_json(value: object) -> str:
    """The hash of `value` as JSON with sorted keys and no spaces."""
    return hash_of(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


class Hasher:
    """Incremental hash."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, data: Any) -> None:
        """Adds the bytes of a buffer."""
        self._state.update(data)

    def hexdigest(self) -> str:
        """The same as `hash_of` of all bytes so far."""
        return str(self._state.hexdigest())


def hash_of_file(path: Path) -> str:
    """Hash of a file's bytes. OSError if it cannot be read."""
    hasher = Hasher()
    for piece in _pieces(path):
        hasher.update(piece)
    return hasher.hexdigest()


def _pieces(path: Path) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(PIECE))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]
