"""Commit protocol: from shards written by all ranks to a committed step. The writer asks each rank by name instead of counting
files.

Each rank writes its files into the attempt's own folder, fsyncs them, and acknowledges with a file that contains the attempt and
the hashes. The writer (rank 0) reads all acknowledgements, writes the manifest, fsyncs, renames the folder, and only then updates
LATEST.

Event log of saves and loads of a rank, and what is said on the terminal.

Deletion of old steps, of which the newest two committed, intact ones always stay, and of what failed saves left: it would keep a
full disk full.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.base.text import clean
from windtunnel.fleet.checkpoint.folder import (
    LATEST,
    OWNER,
    FoundStep,
    StorePath,
    is_tmp_of,
    step_folder,
    steps_in,
    tmp_folder,
    torn_folders,
)
from windtunnel.fleet.checkpoint.manifest import MANIFEST, Manifest, ShardFile, read_manifest
from windtunnel.fleet.disk import sync, write_durably
from windtunnel.fleet.event_log import append_event


class SaveError(FileError):
    """A save that was not committed; committed steps are untouched."""


class LostSaveError(WindtunnelError):
    """The last save of a job was not committed: what it trained since the newest committed step is only in its memory."""

    exit_code = os.EX_IOERR

    def __init__(self, where: str, text: str, mending: str = "make room or mend the disk") -> None:
        super().__init__(f"{text}. The steps that were kept are in {where}; {mending}, and run again.")


@dataclass(frozen=True)
class Save:
    """One save: its folder or place in a store, step, attempt and number of ranks, and what the manifest contains besides."""

    folder: Path | StorePath
    step: int
    attempt: str
    world: int
    version: str
    topology: dict[str, Any]

    @property
    def tmp(self) -> Path:
        """Local folder into which it is written."""
        return tmp_folder(self.local, self.step, self.attempt)

    @property
    def final(self) -> Path:
        """Local folder under which it is committed."""
        return step_folder(self.local, self.step)

    @property
    def where(self) -> str:
        """What is said of where it is written."""
        return str(self.tmp) if isinstance(self.folder, Path) else str(self.folder)

    @property
    def local(self) -> Path:
        """The local folder; of a save into a store there is none."""
        assert isinstance(self.folder, Path)
        return self.folder


def acknowledge(save: Save, rank: int, shards: list[ShardFile], error: str = "") -> None:
    """Reports that the files of `rank` are on disk, or why they are not."""
    acknowledgement = {"attempt": save.attempt, "step": save.step, "error": error, "shards": [asdict(shard) for shard in shards]}
    write_durably(_ack_path(save, rank), json.dumps(acknowledgement))


def collect_acknowledgements(save: Save, within: float, pause: Callable[[float], None] = time.sleep) -> list[ShardFile]:
    """The shards of all ranks, after each has acknowledged. SaveError if a rank reports an error, or does not acknowledge for
    `within` seconds.
    """
    end, shards, wait = time.monotonic() + within, [], 0.002
    for rank in range(save.world):
        while (acknowledgement := _read_acknowledgement(save, rank)) is None:
            if _gone_marker(save.local, save.attempt, rank).exists() and _read_acknowledgement(save, rank) is None:
                raise SaveError(str(save.tmp), f"rank {rank} was killed before its part was staged", "all ranks to stage")
            if time.monotonic() > end:
                raise SaveError(str(save.tmp), f"no word of rank {rank}", f"all ranks within {within:g} s")
            pause(wait)
            wait = min(2 * wait, 0.25)
        if acknowledgement["error"]:
            raise SaveError(str(save.tmp), f"rank {rank}: {acknowledgement['error']}", "all ranks to write their shards")
        shards += [ShardFile(**one) for one in acknowledgement["shards"]]
    return shards


def mark_gone(folder: Path, attempt: str, rank: int) -> None:
    """Records that `rank` was killed and has acknowledged everything that it staged, so that nobody waits for it."""
    if folder.is_dir():
        _gone_marker(folder, attempt, rank).touch()


def _gone_marker(folder: Path, attempt: str, rank: int) -> Path:
    return folder / f"gone-{attempt}-{rank}"


def _ack_path(save: Save, rank: int) -> Path:
    return save.tmp / f"ack-{rank}.json"


def _read_acknowledgement(save: Save, rank: int) -> dict[str, Any] | None:
    try:
        acknowledgement: dict[str, Any] = json.loads(_ack_path(save, rank).read_text())
    except FileNotFoundError:
        return None
    return acknowledgement if acknowledgement["attempt"] == save.attempt and acknowledgement["step"] == save.step else None


def commit(save: Save, shards: list[ShardFile]) -> bool:
    """Makes a written step the newest one. False if an earlier attempt has committed the same step, which is left unchanged.

    SaveError if another attempt owns the folder by now; OSError from the disk.
    """
    for rank in range(save.world):
        _ack_path(save, rank).unlink()
    manifest = Manifest(save.step, save.attempt, save.world, time.time(), save.version, tuple(shards), save.topology)
    write_durably(save.tmp / MANIFEST, manifest.text())
    if owner_of(save.local) != save.attempt:
        raise SaveError(str(save.folder), f"attempt {owner_of(save.local)} saves here", f"attempt {save.attempt}")
    if save.final.exists():
        read_manifest(save.final)
        shutil.rmtree(save.tmp)
        return False
    os.rename(save.tmp, save.final)
    sync(save.local)
    write_durably(save.local / LATEST, save.final.name + "\n")
    return True


def claim_folder(folder: Path, attempt: str) -> None:
    """Allows only `attempt` to commit in `folder` from now on; commits of earlier attempts are refused."""
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / OWNER, attempt + "\n")
    for path in folder.glob("gone-*"):
        if not path.name.startswith(f"gone-{attempt}-"):
            path.unlink(missing_ok=True)


def name_latest(folder: Path, step: int | None) -> None:
    """Makes LATEST name a step that was loaded, from which training goes on; removes it for None or 0."""
    path = folder / LATEST
    if not step:
        path.unlink(missing_ok=True)
    elif path.exists() and path.read_text().strip() != step_folder(folder, step).name:
        write_durably(path, step_folder(folder, step).name + "\n")


def latest_step(folder: Path) -> int:
    """The step that LATEST names; -1 for none. ValueError for another text."""
    try:
        return int((folder / LATEST).read_text().strip().removeprefix("step-"))
    except FileNotFoundError:
        return -1


def owner_of(folder: Path) -> str:
    """The attempt that may commit; empty if nothing has been saved yet."""
    try:
        return (folder / OWNER).read_text().strip()
    except FileNotFoundError:
        return ""


def write_event(
    rank: int, event: str, step: int, *, blocking_seconds: float = 0.0, seconds: float = 0.0, bytes: int = 0,
    source: str = "storage", why: str = "",
) -> None:  # fmt: skip
    """`fleet.event_log.append_event`. A log that cannot be written, as on a full disk, fails no save."""
    with suppress(OSError):
        append_event(
            rank, event, step, blocking_seconds=blocking_seconds, seconds=seconds, bytes=bytes, source=source, why=why
        )  # fmt: skip


def tell(text: str) -> None:
    """A line on standard error, for the person who started the job."""
    with suppress(OSError, ValueError):
        print(f"windtunnel fleet: {clean(text)}", file=sys.stderr, flush=True)


SAFE = 2
"""Number of committed steps that are only deleted when requested by name."""


def deletable_steps(
    found: Sequence[FoundStep], keep: int, interval: int | None, attempt: str, saving: Iterable[int] = ()
) -> list[FoundStep]:
    """The steps in a folder that may be deleted now.

    The newest max(`keep`, 2) committed steps stay, and each committed step that is a multiple of `interval`. Torn, damaged and
    superseded steps are deleted once two committed steps are newer; torn steps of `attempt` itself only if they are not in
    `saving`.
    """
    committed = sorted((one.step for one in found if one.state == "committed"), reverse=True)
    stays = set(committed[: max(keep, SAFE)])
    if interval is not None:
        stays |= {step for step in committed if step % interval == 0}
    if len(committed) < SAFE:
        return []
    older_than = committed[SAFE - 1]
    busy = set(saving)
    gone = []
    for one in found:
        if one.state == "committed":
            if one.step not in stays:
                gone.append(one)
        elif one.state == "torn" and f".{attempt}." in f"{one.path.name}.":
            if one.step not in busy and one.step < older_than:
                gone.append(one)
        elif one.step < older_than or one.state == "superseded" and one.step <= committed[0]:
            gone.append(one)
    return gone


def delete(path: Path) -> None:
    """Deletes the folder of a step. It is renamed first, so that a partly deleted step never looks committed."""
    if not path.name.endswith(".tmp"):
        aside = path.with_name(f"{path.name.split('.')[0]}.0.tmp")
        if aside.exists():
            shutil.rmtree(aside)
        os.rename(path, aside)
        sync(path.parent)
        path = aside
    shutil.rmtree(path)


def collect_garbage(folder: Path, keep: int, interval: int | None, attempt: str, saving: Iterable[int] = ()) -> list[Path]:
    """Deletes the `deletable_steps`; returns their paths. OSError if a file cannot be deleted."""
    gone = deletable_steps(steps_in(folder), keep, interval, attempt, saving)
    paths = [folder / one.path.name for one in gone]
    for path in paths:
        delete(path)
    return paths


def remove_leftovers(folder: Path, attempt: str, rank: int, failed: int, others: bool) -> list[Path]:
    """Removes the files of `rank` from folders of saves that can no longer be committed, and on rank 0 the folders with all that
    is in them; returns these folders.

    They are those of `attempt` up to step `failed` and, with `others`, those of all other attempts, of which none may commit any
    more. Ranks race harmlessly: what another one has removed, or what the disk refuses, is passed over.
    """
    gone = []
    for step, path in torn_folders(folder):
        own = is_tmp_of(path, attempt)
        if step > failed if own else not others:
            continue
        gone.append(path)
        if rank == 0:
            shutil.rmtree(path, ignore_errors=True)
            continue
        for name in _files_of_rank(path, rank):
            with suppress(OSError):
                name.unlink()
        with suppress(OSError):  # whoever empties the folder removes it
            path.rmdir()
    return gone


def _files_of_rank(path: Path, rank: int) -> list[Path]:
    try:
        return [*path.glob(f"__{rank}_*"), *path.glob(f"ack-{rank}.json*")]
    except OSError:
        return []
