"""Reads a configuration of a framework or a model, whatever its format, as the door does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.overrides import Stated
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.spec import Job


class TableImporterModule(Protocol):
    """What the module of a configuration offers that is a table (TOML, YAML or JSON): `reads="table"` in the registry."""

    def recognises_table(self, table: Mapping[str, Any]) -> bool:
        """Whether a table is of the format: by its keys."""

    def import_table(self, table: Mapping[str, Any], on: Job | None, stated: Stated | None) -> Imported:
        """The nouns that the table states; with `on`, also a job on that job's machine. What is `stated` beats the table."""


def read(files: Sequence[Path], context: Context) -> Reading:
    """The model, and the plan and runtime where they are stated, of one configuration."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} files", "one configuration at a time")
    imported = import_job(files[0], context.on)
    return Reading(imported.format, Content.JOB, imported, {}, imported.built, imported.ignored, imported.assumed)
