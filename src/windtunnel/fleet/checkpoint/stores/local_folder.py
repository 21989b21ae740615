"""Steps in a local folder, and which storage a path or a URL names.

Writing one file of a step to a local folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.fleet.checkpoint.commit import (
    Save,
    acknowledge,
    claim_folder,
    collect_acknowledgements,
    collect_garbage,
    commit,
    delete,
    latest_step,
    mark_gone,
    name_latest,
    owner_of,
    remove_leftovers,
)
from windtunnel.fleet.checkpoint.folder import (
    FoundStep,
    folder_problem,
    is_cut_url,
    is_url,
    steps_in,
    superseded_folder,
    torn_folders,
)
from windtunnel.fleet.checkpoint.manifest import PIECE, Hasher, ShardFile, hash_errors
from windtunnel.fleet.checkpoint.stores.object_store import ObjectStore
from windtunnel.fleet.checkpoint.stores.storage import StepStorage
from windtunnel.fleet.disk import sync


def storage_at(folder: str | Path) -> StepStorage:
    """The storage that a path, or a URL with a scheme, names. SpecError for a URL that cannot be opened."""
    text = os.fspath(folder)
    if is_url(text):
        return ObjectStore(text)
    if is_cut_url(text):
        raise SpecError(
            "folder", text, "a URL as text, with two slashes", 'A Path drops one: type Checkpointer("s3://bucket/run").'
        )
    return LocalFolder(Path(text).expanduser())


class LocalFolder(StepStorage):
    """A folder that all nodes see."""

    mending = "make room or mend the disk"

    def __init__(self, folder: Path) -> None:
        self.folder, self.where = folder, str(folder)

    def exists(self) -> bool:
        """Whether it is a folder."""
        return self.folder.is_dir()

    def steps(self) -> list[FoundStep]:
        """The steps, newest first. FileError if it is no folder."""
        return steps_in(self.folder)

    def problem(self) -> str:
        """Why it is no place to begin at step 0; empty for none."""
        return folder_problem(self.folder)

    def torn_steps(self) -> list[int]:
        """Steps that were begun and never committed."""
        return [step for step, _ in torn_folders(self.folder)]

    def claim(self, attempt: str, loaded: int | None, umask: int) -> None:
        """Claims the folder, which is made with the modes that `umask` leaves; steps after the loaded one are renamed. SpecError,
        OSError."""
        if not self.folder.parent.exists():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(0o777 & ~umask, exist_ok=True)
        found = [one for one in steps_in(self.folder) if one.state in ("committed", "damaged")]
        self.refuse_strange(found, loaded)
        claim_folder(self.folder, attempt)
        name_latest(self.folder, loaded)
        for one in found:
            if one.step > (loaded or 0):
                os.rename(self.folder / one.path.name, superseded_folder(self.folder, one.step, attempt))
        sync(self.folder)

    def owner(self) -> str:
        """The attempt that may commit. OSError."""
        return owner_of(self.folder)

    def latest(self) -> int:
        """The step that LATEST names; -1 for none. OSError, ValueError."""
        return latest_step(self.folder)

    def save_of(self, step: int, attempt: str, world: int, version: str, topology: dict[str, Any]) -> Save:
        """A save into this folder."""
        return Save(self.folder, step, attempt, world, version, topology)

    def begin(self, save: Save) -> None:
        """Makes the attempt's folder. OSError."""
        save.tmp.mkdir(parents=True, exist_ok=True)

    def write(self, save: Save, name: str, data: memoryview) -> str:
        """Writes a new file and fsyncs it; returns its hash. OSError."""
        return write_file(save.tmp / name, data)

    def unwrite(self, save: Save, name: str) -> None:
        """Removes a file. OSError."""
        (save.tmp / name).unlink(missing_ok=True)

    def acknowledge(self, save: Save, rank: int, shards: list[ShardFile], error: str = "") -> None:
        """Writes the acknowledgement of `rank`. OSError."""
        acknowledge(save, rank, shards, error)

    def collect(self, save: Save, within: float) -> list[ShardFile]:
        """The shards of all ranks. SaveError."""
        return collect_acknowledgements(save, within)

    def commit(self, save: Save, shards: list[ShardFile]) -> bool:
        """Renames the attempt's folder. SaveError, OSError."""
        return commit(save, shards)

    def is_committed(self, save: Save) -> bool:
        """Whether the step's folder is there."""
        return save.final.exists()

    def abandon(self, save: Save) -> None:
        """Removes the attempt's folder."""
        shutil.rmtree(save.tmp, ignore_errors=True)

    def mark_gone(self, attempt: str, rank: int) -> None:
        """Records that `rank` was killed. OSError."""
        mark_gone(self.folder, attempt, rank)

    def collect_garbage(self, keep: int, interval: int | None, attempt: str, saving: Iterable[int] = ()) -> None:
        """Deletes old steps. OSError."""
        collect_garbage(self.folder, keep, interval, attempt, saving)

    def remove_leftovers(self, attempt: str, rank: int, failed: int, others: bool) -> None:
        """Removes this rank's files of saves that failed; what the disk refuses is passed over."""
        with suppress(OSError):
            remove_leftovers(self.folder, attempt, rank, failed, others)

    def delete(self, one: FoundStep) -> None:
        """Deletes the folder of a step. OSError."""
        delete(self.folder / one.path.name)

    def hash_errors(self, one: FoundStep) -> list[str]:
        """Missing or damaged files of a step with a manifest."""
        assert one.manifest is not None
        return hash_errors(self.folder / one.path.name, one.manifest)


def storage_of_job(folder: str | Path) -> StepStorage:
    """The storage that all processes of a job find under the same name. SpecError for a store that each process has for itself."""
    text = os.fspath(folder)
    if text.lower().startswith("memory://"):
        hint = "Name a folder under /dev/shm for checkpoints in memory."
        raise SpecError("folder", text, "a store that other processes see: the process beside a rank writes", hint)
    storage = storage_at(folder)
    return LocalFolder(storage.folder.resolve()) if isinstance(storage, LocalFolder) else storage


def write_file(path: Path, data: memoryview) -> str:
    """Writes a new file, fsyncs it and returns its hash. FileExistsError if it exists: nothing is written twice."""
    hasher, done = Hasher(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        while done < len(data):
            written = os.write(descriptor, data[done : done + PIECE])
            hasher.update(data[done : done + written])
            done += written
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return hasher.hexdigest()
