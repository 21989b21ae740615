"""Configurations of frameworks and models, as the door reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.reading import Content, Context, Reading


def recognises(head: Head) -> bool:
    """Any text: the last of the registry, whose errors say what is known."""
    return bool(head.text.strip())


def read(files: Sequence[Path], context: Context) -> Reading:
    """The model, and the plan and runtime where they are stated, of one configuration."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} files", "one configuration at a time")
    imported = import_job(files[0], context.on)
    return Reading(imported.format, Content.JOB, imported, {}, imported.built, imported.ignored, imported.assumed)
