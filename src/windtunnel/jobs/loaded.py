"""A loaded job with what its importer had to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.spec import Job

if TYPE_CHECKING:
    from windtunnel.formats.jobs.imported import Imported


def summarise_ignored(ignored: Sequence[str], form: str) -> list[str]:
    """Ignored keys: first those that may matter, one a line; those without effect are in one line at the end."""
    if not ignored:
        return []
    from windtunnel.formats.jobs.keys import split as split_ignored

    matter, without = split_ignored(ignored, form)
    line = [f"{', '.join(without)} (without effect on time or memory)"] if without else []
    return [f"{key} (may matter)" for key in matter] + line


@dataclass(frozen=True)
class LoadedJob:
    """A checked job, and what was said of its source."""

    job: Job
    format: str = ""
    """What the source was taken for; empty for a job of the catalogue or a file of ours."""
    built: tuple[str, ...] = ()
    """Keys of the source that the job is made of."""
    ignored: tuple[str, ...] = ()
    """Keys of the source that change nothing, or are not modelled."""
    assumed: tuple[str, ...] = ()
    """What the source leaves open, and what was put there."""
    changed: tuple[str, ...] = ()
    """Fields that follow an override, such as dp after tp."""
    imported: Imported | None = None
    """What an importer made of the source, before overrides; None for a job of the catalogue or a file of ours."""
