"""Removal of what saves left that were never committed: they would keep a full disk full."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from windtunnel.fleet.checkpoint.folder import is_tmp_of, torn_folders


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
