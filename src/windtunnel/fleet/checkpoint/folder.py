"""Contents of a checkpoint folder, by name.

LATEST                          the name of the newest committed step
OWNER                           the attempt that may commit here
step-00000100/                  committed: shards of DCP, .metadata, manifest.json
step-00000200.4f1c.tmp/         being written by attempt 4f1c, or left over after it was killed
step-00000300.4f1c.superseded/  was committed; attempt 4f1c continued from an earlier step

Paths in a store that fsspec opens. Whatever a store raises becomes an OSError of one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError
from windtunnel.fleet.checkpoint.manifest import Hasher, Manifest, read_manifest, size_errors

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_CUT_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?=[^/])")
PART = 32 << 20
"""Bytes that are sent or asked for at a time."""
AT_ONCE = 4
"""Parts of a file that are asked for together; a store that cannot do so sends one after the other."""
_MOST_PARTS = 9000
"""Parts of an upload; S3 takes 10,000."""


class StoreError(OSError):
    """A store that does not answer, or refuses: its own error in one line."""


def is_url(text: str) -> bool:
    """Whether `text` names a place in a store, and no local folder."""
    return bool(_URL.match(text))


def open_store(text: str) -> StorePath:
    """The place that a URL names, without a slash at its end. SpecError if fsspec, or the package for this scheme, is missing, or
    the URL names nothing."""
    _, path = _file_system(text, os.getpid())
    scheme = text.partition("://")[0]
    if not path.strip("/"):
        raise SpecError("folder", text, "a bucket or a folder in the store", f"Type for example {scheme}://NAME/run.")
    return StorePath(text.rstrip("/"), path.rstrip("/"))


def is_cut_url(text: str) -> bool:
    """Whether `text` is a URL that lost a slash, as in Path("s3://bucket/run")."""
    cut = _CUT_URL.match(text)
    return cut is not None and not os.path.exists(f"{cut[1]}:")


@lru_cache(maxsize=16)
def _file_system(url: str, process: int) -> tuple[Any, str]:
    """fsspec's file system for a URL in this process, and the path in it."""
    scheme = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        hint = "Type: pip install 'windtunnel[stores]'"
        raise SpecError("folder", url, "a local folder, as fsspec is not installed", hint) from error
    try:
        files, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise SpecError("folder", url, f"a store whose package is installed ({_line(error)})", "") from error
    except ValueError as error:
        raise SpecError("folder", url, f"a scheme that fsspec knows ({_line(error)})", "") from error
    except Exception as error:
        raise SpecError("folder", url, f"a store that {scheme} can open ({_line(error)})", "") from error
    return files, str(path)


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def _store_errors(url: str) -> Iterator[None]:
    """Raises whatever a store raises as FileNotFoundError or StoreError."""
    try:
        yield
    except (FileNotFoundError, StoreError):
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(_line(error)) from error
    except Exception as error:  # stores raise errors of their own libraries
        raise StoreError(f"{url}: {_line(error)}") from error


@dataclass(frozen=True)
class StorePath:
    """A place in a store: `url` as it is shown, `path` as its file system has it. Can be sent to other processes."""

    url: str
    path: str
    root: str = ""
    """URL by which the file system is opened; empty: `url`."""

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(f"{self.url}/{name}", f"{self.path}/{name}", self.root or self.url)

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def files(self) -> Any:
        """fsspec's file system."""
        return _file_system(self.root or self.url, os.getpid())[0]

    def names(self) -> list[str] | None:
        """Names below this place, in order; None if nothing is there. StoreError."""
        with _store_errors(self.url):
            try:
                self.files.invalidate_cache()
                found = self.files.ls(self.path, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return sorted({str(one).rstrip("/").rsplit("/", 1)[-1] for one in found if str(one).strip("/") != self.path.strip("/")})

    def sizes(self) -> dict[str, int]:
        """Bytes of the objects below this place, by name. StoreError."""
        with _store_errors(self.url), suppress(FileNotFoundError):
            self.files.invalidate_cache()
            return {str(one["name"]).rsplit("/", 1)[-1]: int(one["size"] or 0) for one in self.files.ls(self.path, detail=True)}
        return {}

    def size(self) -> int | None:
        """Bytes of this object; None if it is not there. StoreError."""
        with _store_errors(self.url), suppress(FileNotFoundError):
            return int(self.files.info(self.path)["size"] or 0)
        return None

    def is_file(self) -> bool:
        """Whether this is an object, and no place of objects. StoreError."""
        with _store_errors(self.url):
            return bool(self.files.isfile(self.path))

    def read_bytes(self) -> bytes:
        """The object's bytes. FileNotFoundError, StoreError."""
        with _store_errors(self.url):
            return bytes(self.files.cat_file(self.path))

    def read_text(self) -> str:
        """The object's text; what is no text is replaced. FileNotFoundError, StoreError."""
        return self.read_bytes().decode("utf-8", "replace")

    def read_each(self, names: Iterable[str]) -> dict[str, bytes]:
        """Those of the named objects below this place that are there, asked for together. StoreError."""
        paths = {f"{self.path}/{name}": name for name in names}
        if not paths:
            return {}
        with _store_errors(self.url):
            read = self.files.cat(list(paths), on_error="return")
        for answer in read.values():
            if isinstance(answer, Exception) and not isinstance(answer, FileNotFoundError):
                raise StoreError(f"{self.url}: {_line(answer)}") from answer
        by_path = {str(path).strip("/"): name for path, name in paths.items()}
        return {by_path[path.strip("/")]: bytes(data) for path, data in read.items() if not isinstance(data, Exception)}

    def pieces(self, size: int) -> Iterator[bytes]:
        """The first `size` bytes of this object in order, in parts, a few of them asked for at once. FileNotFoundError,
        StoreError."""
        for at in range(0, size, PART * AT_ONCE):
            starts = list(range(at, min(size, at + PART * AT_ONCE), PART))
            ends = [min(one + PART, size) for one in starts]
            with _store_errors(self.url):
                for part in self.files.cat_ranges([self.path] * len(starts), starts, ends, on_error="return"):
                    if isinstance(part, Exception):
                        raise part
                    yield bytes(part)

    def write_text(self, text: str) -> None:
        """Puts a small object whole, over what is there. StoreError."""
        with _store_errors(self.url):
            if not _has_renames(self.files):
                self._within_folder(lambda: self.files.pipe_file(self.path, text.encode()))
                return
            beside = f"{self.path}.tmp"
            self._within_folder(lambda: self.files.pipe_file(beside, text.encode()))
            self.files.mv(beside, self.path)

    def write_data(self, data: memoryview) -> str:
        """Puts a large object in parts; returns its hash. StoreError, also if the store then has another number of bytes."""
        hasher, part = Hasher(), max(PART, -(-len(data) // _MOST_PARTS >> 20) << 20)
        with _store_errors(self.url):
            file = self._within_folder(lambda: self.files.open(self.path, "wb", block_size=part))
            try:
                for at in range(0, len(data), part):
                    piece = data[at : at + part]
                    file.write(piece)
                    hasher.update(piece)
            except BaseException:
                with suppress(Exception):
                    file.discard()
                raise
            file.close()
            there = int(self.files.info(self.path)["size"])
        if there != len(data):
            raise StoreError(f"{self.url}: {there} bytes, {len(data)} were written")
        return hasher.hexdigest()

    def _within_folder(self, write: Any) -> Any:
        """`write`, with the folders above made where a store needs them; never a bucket."""
        try:
            return write()
        except FileNotFoundError:
            levels = self.path.rsplit("/", 1)[0].split("/")
            first = 3 if not levels[0] else 2  # neither a bucket nor a folder of the root
            for count in range(first, len(levels) + 1):
                with suppress(FileExistsError):
                    self.files.mkdir("/".join(levels[:count]), create_parents=False)
            return write()

    def remove(self) -> None:
        """Removes this object; nothing if it is not there. StoreError."""
        with _store_errors(self.url), suppress(FileNotFoundError):
            self.files.rm_file(self.path)

    def remove_all(self) -> None:
        """Removes everything below this place. StoreError."""
        with _store_errors(self.url), suppress(FileNotFoundError):
            self.files.rm(self.path, recursive=True)


def _has_renames(files: Any) -> bool:
    """Whether objects become visible as they are written, and a rename shows them whole."""
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(files, LocalFileSystem)


LATEST = "LATEST"
OWNER = "OWNER"
_COMMITTED = re.compile(r"step-(\d{8,})")
_OTHER = re.compile(r"step-(\d{8,})\.([0-9a-f]+)\.(tmp|superseded)")


def step_folder(folder: Path, step: int) -> Path:
    """Path of a committed step."""
    return folder / f"step-{step:08d}"


def tmp_folder(folder: Path, step: int, attempt: str) -> Path:
    """Path under which an attempt writes a step."""
    return folder / f"step-{step:08d}.{attempt}.tmp"


def superseded_folder(folder: Path, step: int, attempt: str) -> Path:
    """Path of a committed step after `attempt` continued from an earlier one."""
    return folder / f"step-{step:08d}.{attempt}.superseded"


@dataclass(frozen=True)
class FoundStep:
    """A folder of a step, or its place in a store."""

    step: int
    path: Path | StorePath
    state: str
    """committed, damaged, torn (never committed) or superseded."""
    manifest: Manifest | None = None
    why: tuple[str, ...] = ()
    """Reasons why it is damaged."""


def steps_in(folder: Path) -> list[FoundStep]:
    """The steps in `folder`, newest first, judged by names, manifests and file sizes; no shard is read. FileError if `folder` is
    not a folder.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise FileError(str(folder), error.strerror, "a folder of checkpoints") from error
    found = [one for name in names if (one := _classify(folder / name)) is not None]
    return sorted(found, key=lambda one: (one.step, one.state == "committed"), reverse=True)


def torn_folders(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of the folders that were never committed; no file is read. Empty if `folder` cannot be listed."""
    try:
        names = [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    except OSError:
        return []
    return [(int(named[1]), path) for path in names if (named := _OTHER.fullmatch(path.name))]


def is_tmp_of(path: Path, attempt: str) -> bool:
    """Whether a folder that was never committed belongs to `attempt`."""
    return path.name.endswith(f".{attempt}.tmp")


def committed_steps(folder: Path) -> list[FoundStep]:
    """Committed steps with correct manifest and file sizes, newest first; empty if there is no folder."""
    if not folder.is_dir():
        return []
    return [one for one in steps_in(folder) if one.state == "committed"]


FOREIGN = (
    (".metadata", "a checkpoint of torch.distributed.checkpoint"),
    ("*.distcp", "a checkpoint of torch.distributed.checkpoint"),
    ("*.ckpt", "a checkpoint of Lightning"),
    ("checkpoint-*/trainer_state.json", "checkpoints of the Hugging Face Trainer"),
    ("latest_checkpointed_iteration.txt", "checkpoints of Megatron"),
    ("global_step*/", "checkpoints of DeepSpeed"),
    ("*.pt", "a file of torch.save"),
    ("*.pth", "a file of torch.save"),
    ("*.safetensors", "a file of safetensors"),
    ("step-*/", "step folders that windtunnel did not write"),
)
"""Names of checkpoints that others write, and what they are."""


def folder_problem(folder: Path) -> str:
    """Why a folder without a step of ours is no place to begin at step 0: it is a file, another library's checkpoints are there,
    or the step that LATEST names is gone. Empty if nothing speaks against it.
    """
    if folder.exists() and not folder.is_dir():
        return "a file, and no folder of windtunnel's steps"
    if not folder.is_dir() or steps_in(folder):
        return _lost_latest(folder)
    for pattern, what in FOREIGN:
        if found := next(iter(sorted(folder.glob(pattern))), None):
            return f"{what} ({found.relative_to(folder)}), which windtunnel does not read"
    return _lost_latest(folder)


def _lost_latest(folder: Path) -> str:
    """Says so if LATEST names a step that is not there, also under no other state."""
    try:
        newest = (folder / LATEST).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    there = {step_folder(folder, one.step).name for one in steps_in(folder) if one.state != "torn"}
    return "" if newest in there else f"LATEST with {newest[:40]}, whose folder is gone"


def _classify(path: Path) -> FoundStep | None:
    if other := _OTHER.fullmatch(path.name):
        state = "torn" if other[3] == "tmp" else "superseded"
        return FoundStep(int(other[1]), path, state)
    named = _COMMITTED.fullmatch(path.name)
    if named is None:
        return None
    step = int(named[1])
    try:
        manifest = read_manifest(path)
    except FileError as error:
        return FoundStep(step, path, "damaged", why=(str(error),))
    if manifest.step != step:
        return FoundStep(step, path, "damaged", manifest, (f"its manifest is of step {manifest.step}",))
    wrong = size_errors(path, manifest)
    return FoundStep(step, path, "damaged" if wrong else "committed", manifest, tuple(wrong))
