"""Contents of a checkpoint folder, by name.

LATEST                          the name of the newest committed step
OWNER                           the attempt that may commit here
step-00000100/                  committed: shards of DCP, .metadata, manifest.json
step-00000200.4f1c.tmp/         being written by attempt 4f1c, or left over after it was killed
step-00000300.4f1c.superseded/  was committed; attempt 4f1c continued from an earlier step
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.fleet.checkpoint.manifest import Manifest, read_manifest, size_errors

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
    """A folder of a step."""

    step: int
    path: Path
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


def committed_steps(folder: Path) -> list[FoundStep]:
    """Committed steps with correct manifest and file sizes, newest first; empty if there is no folder."""
    if not folder.is_dir():
        return []
    return [one for one in steps_in(folder) if one.state == "committed"]


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
