"""Deletion of old steps. The newest two committed, intact steps are never deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from windtunnel.fleet.checkpoint.folder import FoundStep, steps_in
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
        elif one.state == "torn" and f".{attempt}." in one.path.name:
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
    for one in gone:
        delete(one.path)
    return [one.path for one in gone]
