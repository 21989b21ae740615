"""Deletion of old steps, of which the newest two committed, intact ones always stay, and of what failed saves left: it would keep
a full disk full."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from windtunnel.fleet.checkpoint.folder import FoundStep, is_tmp_of, steps_in, torn_folders
from windtunnel.fleet.disk import sync

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
