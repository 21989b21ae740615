"""What the verbs say of a run whose last saves of checkpoints were lost."""

from __future__ import annotations

from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.base.text import clean
from windtunnel.records.checkpoint_events import lost_saves


def lost_save_notes(run: str | Path) -> list[str]:
    """A line where the newest save of a run's folder was lost; none for a collector's address."""
    try:
        lost = lost_saves(run)
    except FileError as error:
        return [f"The events of its checkpoints cannot be read: {clean(str(error))}"]
    return [f"Its last checkpoints were lost: {clean(lost)}."] if lost else []
