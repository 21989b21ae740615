"""What files of other tools hold, decided by their content: `windtunnel import FILE...` and `wt.read`.

A configuration becomes a job, or the nouns that it states; anything else goes through the one door of `formats`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.files import without_gz
from windtunnel.formats.door import importer_of, read_files
from windtunnel.formats.head import head_of
from windtunnel.formats.importers import CONFIGURATIONS
from windtunnel.formats.jobs.recipes.values import is_recipe
from windtunnel.formats.jobs.scripts.script_call import SCRIPTS, file_of, is_file
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.spec.loading.files import SUFFIXES

if TYPE_CHECKING:
    from windtunnel.formats import Imported
    from windtunnel.jobs.loaded import LoadedJob


def read_source(
    files: Sequence[str],
    overrides: Sequence[str] | None = None,
    context: Context | None = None,
    *,
    on: str | None = None,
    form: str | None = None,
) -> Reading:
    """What the files of one source hold.

    `on`: the machine of a configuration, or the job whose machine a trace or workload is read with; `overrides` change the job.
    `context`: what else is said beside the files; its `on` is the job of `on`. `form`: the format, where content does not show it.
    The value of a configuration's reading is a LoadedJob where `on` or `overrides` are stated, else an Imported. Raises as
    `read_files` and `load_described_job` do.
    """
    from dataclasses import replace

    files, changes = join_call(files), list(overrides or ())
    if len(files) == 1 and is_configuration(files[0], form):
        from windtunnel.formats.jobs.part_of_a_job import part_alone

        part = part_alone(Path(files[0])) if on is None and not changes else None
        return part if part is not None else _read_job(files[0], on, changes)
    if len(files) > 1 and are_parts_of_a_job(files):
        return _read_job(files, on, changes)
    if on is not None:
        from windtunnel.jobs.load import load_described_job

        context = replace(context or Context(), on=load_described_job(None, changes, on).job)
    return read_files(files, context, form)


def join_call(files: Sequence[str]) -> list[str]:
    """A shell script and the words behind it, typed without quotes, as one source; other files as they are."""
    script = Path(files[0])
    if len(files) == 1 or script.suffix not in SCRIPTS or any(is_file(Path(word)) for word in files[1:]):
        return list(files)
    return [shlex.join(files)]


def is_configuration(file: str, form: str | None = None) -> bool:
    """Whether a file describes a job or a model: what `load_described_job` reads."""
    if is_recipe(file):
        return form is None
    path = Path(file_of(file))
    if path.is_dir():
        return (path / "config.json").is_file() and form is None
    return importer_of(head_of(path), form).name in CONFIGURATIONS


def are_parts_of_a_job(files: Sequence[str]) -> bool:
    """Whether every file is a part of one job. Only configurations are read whole: traces may be large, or cut off."""
    if not all(without_gz(file).suffix.lower() in SUFFIXES and Path(file).is_file() for file in files):
        return False
    if not all(importer_of(head_of(Path(file))).name in CONFIGURATIONS for file in files):
        return False
    from windtunnel.jobs.sources import leaves_model_open

    return all(leaves_model_open(file) for file in files)


def _read_job(source: str | list[str], on: str | None, overrides: list[str]) -> Reading:
    """The job of a configuration, or of several files; without a machine and overrides the nouns that it states."""
    from windtunnel.formats import Imported, import_job  # here: a trace or a log needs no noun of a job
    from windtunnel.formats.jobs.several import merge_texts
    from windtunnel.jobs.load import load_described_job, load_parts
    from windtunnel.workload import parameter_count

    found: Imported | LoadedJob
    if on is None and not overrides:
        found = import_job(merge_texts(source) if isinstance(source, list) else Path(source))
    else:
        found = load_parts(source, overrides, on) if isinstance(source, list) else load_described_job(source, overrides, on)
    model = found.model if isinstance(found, Imported) else found.job.model
    facts = {"model": getattr(model, "name", ""), "parameters": parameter_count(model)}
    return Reading(found.format, Content.JOB, found, facts, found.built, found.ignored, found.assumed)


def progress_of(report: Callable[[float], object] | None) -> Callable[[str, int, int], None] | None:
    """A context's `progress` that tells `report` the share that is done."""
    if report is None:
        return None
    return lambda _, done, size: (report(done / max(1, size)), None)[1]
