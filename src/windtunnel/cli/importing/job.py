"""`windtunnel import` of a configuration: a job, or the nouns that the source states."""

from __future__ import annotations

from typing import Any

from windtunnel.cli.shared.common import writable, write
from windtunnel.formats import Imported
from windtunnel.formats.reading import Reading
from windtunnel.jobs.loaded import LoadedJob, summarise_ignored
from windtunnel.sheet.numbers import tokens
from windtunnel.spec import Model, dump_job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.files import toml_lines
from windtunnel.workload import active_parameters, parameter_count


def write_configuration(source: str, reading: Reading, out: str) -> None:
    """Writes the job, or the nouns, of a configuration's reading."""
    writable(("--out", out))
    found: Imported | LoadedJob = reading.value
    job = dump_job(found.job) if found.job is not None else None
    write_job(f"{source} ({reading.format})", found, job, out)


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
