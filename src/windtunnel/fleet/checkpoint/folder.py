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
from windtunnel.fleet.checkpoint.paths import StorePath

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
