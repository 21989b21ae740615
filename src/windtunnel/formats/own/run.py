"""Measured runs as `windtunnel import` writes them: a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.records.run_file import is_run, read_run


def recognises_folder(path: Path) -> bool:
    """Whether the folder has a run's files."""
    return is_run(path)


def read(files: Sequence[Path], context: Context) -> Reading:
    """The run. FileError for a broken one."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} runs", "one run")
    run = read_run(files[0])
    return Reading("run", Content.RUN, run, {"ranks": len(run.ranks), "steps": len(run.steps)})
