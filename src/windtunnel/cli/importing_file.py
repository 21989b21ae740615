"""`windtunnel import FILE...`: what other tools wrote, as a job, a cluster, a run or a graph of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from windtunnel.cli.common import Json, On, Sets, writable, write, write_json
from windtunnel.cli.importing_calls import cluster_of
from windtunnel.cli.importing_content import as_dict, save, show
from windtunnel.cli.progress import bar
from windtunnel.cli.source import LoadedJob, folded, is_part, job_of, job_of_files
from windtunnel.formats import Imported, import_job
from windtunnel.formats.door import importer_of, read_files
from windtunnel.formats.head import head_of
from windtunnel.formats.importers import CONFIGURATIONS
from windtunnel.formats.part_of_a_job import part_alone
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.recipes import is_recipe
from windtunnel.formats.several import together
from windtunnel.report.words import tokens
from windtunnel.spec import Model, dump_job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.toml import toml_lines
from windtunnel.workload import active_parameters, parameter_count

EXAMPLES = """\b
Examples:
  windtunnel import config.json
  windtunnel import pretrain.sh --on h100-ib --set cluster.gpus=64 -o job.toml
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
    form: Annotated[str | None, typer.Option("--as", metavar="FORMAT", help="The format, where content does not tell.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE|-", help="Where the result goes.")] = "-",
    json: Json = None,
) -> None:
    writable(("--json", json))
    if len(files) == 1 and _configuration(files[0], form):
        part = part_alone(Path(files[0])) if on is None and not sets else None
        if part is None:
            _job(files[0], on, sets, out, json)
            return
        _shown(part, files, out, json)
        return
    if len(files) > 1 and all(is_part(file) for file in files):
        _job(files, on, sets, out, json)
        return
    job = None if on is None else job_of(None, sets, on).job
    with bar("reading") as shown:
        context = Context(job, cluster, lambda _, done, size: shown(done / max(1, size)))
        reading = read_files(files, context, form)
    if reading.content is Content.COLLECTIVES and cluster is not None:
        reading = cluster_of(reading, cluster, sets if on is None else None, files)
    _shown(reading, files, out, json)


def _shown(reading: Reading, files: list[str], out: str, json: str | None) -> None:
    if json is not None:
        write_json(as_dict(reading), json)
    if json != "-":
        show(reading, files, None if out == "-" else out)
    if out != "-":
        save(reading, out)


def _configuration(file: str, form: str | None) -> bool:
    """Whether a file describes a job or a model: what `job_of` reads."""
    if is_recipe(file):
        return form is None
    path = Path(file)
    if path.is_dir():
        return (path / "config.json").is_file() and form is None
    return importer_of(head_of(path), form).name in CONFIGURATIONS


def _job(source: str | list[str], on: str | None, sets: list[str] | None, out: str, json: str | None) -> None:
    writable(("--out", out))
    if on is None and not sets:
        imported: Imported | LoadedJob = import_job(together(source) if isinstance(source, list) else Path(source))
        job = dump_job(imported.job) if imported.job is not None else None
    else:
        imported = job_of_files(source, sets, on) if isinstance(source, list) else job_of(source, sets, on)
        job = dump_job(imported.job)
    if json is not None:
        model = imported.model if isinstance(imported, Imported) else imported.job.model
        facts = {"model": getattr(model, "name", ""), "parameters": parameter_count(model)}
        write_json(
            as_dict(Reading(imported.format, Content.JOB, None, facts, imported.built, imported.ignored, imported.assumed)), json
        )
    if json != "-":
        what = ", ".join(source) if isinstance(source, list) else source
        written(f"{what} ({imported.format})", imported, job, out)


def written(what: str, imported: Imported | LoadedJob, job: str | None, out: str) -> None:
    """Writes what an importer found, with its notes as comments: the text of a `job`, or the nouns that the source states."""
    missing = () if job is not None else ("the machine: add --on JOB or --on CLUSTER",)
    if job is None and isinstance(imported, Imported):
        nouns: dict[str, Any] = {"model": imported.model, "plan": imported.plan, "runtime": imported.runtime}
        tables = {k: v.model_dump(mode="json", exclude_none=True) for k, v in nouns.items() if v is not None}
        job = "\n".join(toml_lines(tables)).lstrip() + "\n"
    model = imported.model if isinstance(imported, Imported) else imported.job.model
    notes = {
        "parameters": (counted(model),),
        "ignored": folded(imported.ignored, imported.format),
        "assumed": imported.assumed,
        "missing": missing,
    }
    lines = [f"# from {_flat(what)}"] + [f"# {word}: {_flat(line)}" for word, listed in notes.items() for line in listed]
    write("\n".join(lines) + "\n\n" + (job or ""), out, "--out")


def counted(model: Model | GraphModel) -> str:
    """Parameters of a model, and of a mixture those that a token meets."""
    total = parameter_count(model)
    text = f"{tokens(total)}"
    if not isinstance(model, GraphModel):
        if (active := active_parameters(model)) < total:
            text += f", {tokens(active)} of them active"
        if model.mtp_layers:
            text += f"; without the {model.mtp_layers} MTP layers, which published counts leave out too"
    return text


def _flat(text: str) -> str:
    """One line of printable characters, as a comment must be."""
    return "".join(c if c.isprintable() else " " for c in text)
