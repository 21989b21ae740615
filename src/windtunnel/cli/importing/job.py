"""`windtunnel import` of a configuration: a job, or the nouns that the source states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from windtunnel.cli.importing.content import as_dict
from windtunnel.cli.shared.common import writable, write, write_json
from windtunnel.cli.shared.job import job_of
from windtunnel.formats import Imported, import_job
from windtunnel.formats.jobs.several import merge_texts
from windtunnel.formats.reading import Content, Reading
from windtunnel.jobs.load import load_parts
from windtunnel.jobs.loaded import LoadedJob, summarise_ignored
from windtunnel.report.words.numbers import tokens
from windtunnel.spec import Model, dump_job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.toml import toml_lines
from windtunnel.workload import active_parameters, parameter_count


def import_as_job(source: str | list[str], on: str | None, sets: list[str] | None, out: str, json: str | None) -> None:
    """Writes the job, or the nouns, of a configuration."""
    writable(("--out", out))
    if on is None and not sets:
        imported: Imported | LoadedJob = import_job(merge_texts(source) if isinstance(source, list) else Path(source))
        job = dump_job(imported.job) if imported.job is not None else None
    else:
        imported = load_parts(source, sets, on) if isinstance(source, list) else job_of(source, sets, on)
        job = dump_job(imported.job)
    if json is not None:
        model = imported.model if isinstance(imported, Imported) else imported.job.model
        facts = {"model": getattr(model, "name", ""), "parameters": parameter_count(model)}
        write_json(
            as_dict(Reading(imported.format, Content.JOB, None, facts, imported.built, imported.ignored, imported.assumed)), json
        )
    if json != "-":
        what = ", ".join(source) if isinstance(source, list) else source
        write_job(f"{what} ({imported.format})", imported, job, out)


def write_job(what: str, imported: Imported | LoadedJob, job: str | None, out: str) -> None:
    """Writes what an importer found, with its notes as comments: the text of a `job`, or the nouns that the source states."""
    missing = () if job is not None else ("the machine: add --on JOB or --on CLUSTER",)
    if job is None and isinstance(imported, Imported):
        nouns: dict[str, Any] = {"model": imported.model, "plan": imported.plan, "runtime": imported.runtime}
        tables = {k: v.model_dump(mode="json", exclude_none=True) for k, v in nouns.items() if v is not None}
        job = "\n".join(toml_lines(tables)).lstrip() + "\n"
    model = imported.model if isinstance(imported, Imported) else imported.job.model
    notes = {
        "parameters": (count_parameters(model),),
        "ignored": summarise_ignored(imported.ignored, imported.format),
        "assumed": imported.assumed,
        "missing": missing,
    }
    lines = [f"# from {_flat(what)}"] + [f"# {word}: {_flat(line)}" for word, listed in notes.items() for line in listed]
    write("\n".join(lines) + "\n\n" + (job or ""), out, "--out")


def count_parameters(model: Model | GraphModel) -> str:
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
