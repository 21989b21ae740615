"""Model files, which `windtunnel import` writes of a source without a machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.spec import Job, load_model

FORMAT = "a model file"


def recognises_table(table: Mapping[str, Any]) -> bool:
    """A model and nothing else."""
    return set(table) == {"model"} and isinstance(table["model"], Mapping)


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """The model."""
    return Imported(FORMAT, load_model(table["model"]))
