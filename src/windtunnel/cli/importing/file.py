"""`windtunnel import FILE...`: what other tools wrote, as a job, a cluster, a run or a graph of ours."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.files import without_gz
from windtunnel.cli.importing.content import as_dict, save, show
from windtunnel.cli.shared.common import Json, On, Sets, writable, write_json
from windtunnel.formats.door import importer_of, read_files
from windtunnel.formats.head import head_of
from windtunnel.formats.importers import CONFIGURATIONS
from windtunnel.formats.jobs.recipes.names import is_recipe
from windtunnel.formats.jobs.scripts.script_call import SCRIPTS, file_of, is_file
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.spec.loading.files import SUFFIXES

if TYPE_CHECKING:
    from windtunnel.spec import Job

EXAMPLES = """\b
Examples:
  windtunnel import config.json
  windtunnel import pretrain.sh --on h100-ib --set cluster.gpus=64 -o job.toml
  windtunnel import "MODEL_SIZE=8B TP=2 run.sh" --on h100-ib -o job.toml
  windtunnel import trace-rank*.json.gz -o last-night
"""


def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Files of one source: a configuration, a trace of each rank, logs, a topology."),
    ],
    on: On = None,
    sets: Sets = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="CLUSTER", help="The cluster that measured calls belong to.")
    ] = None,
    form: Annotated[str | None, typer.Option("--as", metavar="FORMAT", help="The format, if the content does not show it.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE|-", help="Where the result goes.")] = "-",
    json: Json = None,
) -> None:
    writable(("--json", json))
    files = _as_call(files)
    if len(files) == 1 and _configuration(files[0], form):
        from windtunnel.formats.jobs.part_of_a_job import part_alone

        part = part_alone(Path(files[0])) if on is None and not sets else None
        if part is None:
            _job(files[0], on, sets, out, json)
            return
        _show_reading(part, files, out, json)
        return
    if len(files) > 1 and _parts(files):
        _job(files, on, sets, out, json)
        return
    job = None if on is None else _machine(on, sets)
    from windtunnel.cli.shared.progress import bar

    with bar("reading") as shown:
        context = Context(job, cluster, progress=lambda _, done, size: shown(done / max(1, size)))
        reading = read_files(files, context, form)
    if reading.content is Content.COLLECTIVES and cluster is not None:
        from windtunnel.cli.importing.calls import cluster_of

        reading = cluster_of(reading, cluster, sets if on is None else None, files)
    _show_reading(reading, files, out, json)


def _show_reading(reading: Reading, files: list[str], out: str, json: str | None) -> None:
    if json is not None:
        write_json(as_dict(reading), json)
    if json != "-":
        show(reading, files, None if out == "-" else out)
    if out != "-":
        save(reading, out)


def _as_call(files: list[str]) -> list[str]:
    """A shell script and the words behind it, typed without quotes, as one source; other files as they are."""
    script = Path(files[0])
    if len(files) == 1 or script.suffix not in SCRIPTS or any(is_file(Path(word)) for word in files[1:]):
        return files
    return [shlex.join(files)]


def _configuration(file: str, form: str | None) -> bool:
    """Whether a file describes a job or a model: what `job_of` reads."""
    if is_recipe(file):
        return form is None
    path = Path(file_of(file))
    if path.is_dir():
        return (path / "config.json").is_file() and form is None
    return importer_of(head_of(path), form).name in CONFIGURATIONS


def _parts(files: list[str]) -> bool:
    """Whether every file is a part of one job. Only configurations are read whole: traces may be large, or cut off."""
    if not all(without_gz(file).suffix.lower() in SUFFIXES and Path(file).is_file() for file in files):
        return False
    if not all(importer_of(head_of(Path(file))).name in CONFIGURATIONS for file in files):
        return False
    from windtunnel.jobs.sources import leaves_model_open

    return all(leaves_model_open(file) for file in files)


def _machine(on: str, sets: list[str] | None) -> Job:
    from windtunnel.cli.shared.job import job_of

    return job_of(None, sets, on).job


def _job(source: str | list[str], on: str | None, sets: list[str] | None, out: str, json: str | None) -> None:
    from windtunnel.cli.importing.job import import_as_job  # here: a trace or a log needs no noun of a job

    import_as_job(source, on, sets, out, json)
