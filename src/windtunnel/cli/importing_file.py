"""`windtunnel import SOURCE`: prints TOML; what was ignored and assumed stands in its comments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from windtunnel.cli.common import On, Sets, writable, write
from windtunnel.cli.source import LoadedJob, folded, job_of
from windtunnel.formats import Imported, import_job
from windtunnel.report.words import tokens
from windtunnel.spec import Model, dump_job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.toml import toml_lines
from windtunnel.workload import active_parameters, parameter_count

EXAMPLES = """\b
Examples:
  windtunnel import config.json
  windtunnel import pretrain.sh --on h100-ib --set cluster.gpus=64 -o job.toml
"""


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A Hugging Face config.json, Megatron-LM flags, or a DeepSpeed or torchtitan configuration."
        ),
    ],
    on: On = None,
    sets: Sets = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE|-", help="Where the TOML goes.")] = "-",
) -> None:
    writable(("--out", out))
    if on is None and not sets:
        imported = import_job(Path(source))
        written(f"{source} ({imported.format})", imported, None, out)
    else:
        loaded = job_of(source, sets, on)
        written(f"{source} ({loaded.format})", loaded, dump_job(loaded.job), out)


def written(what: str, imported: Imported | LoadedJob, job: str | None, out: str) -> None:
    """Writes what an importer found, with its notes as comments: the text of a `job`, or the nouns that the source states."""
    missing = () if job is not None else ("the machine: add --on JOB or --on CLUSTER",)
    if job is None and isinstance(imported, Imported):
        nouns: dict[str, Any] = {"model": imported.model, "plan": imported.plan, "runtime": imported.runtime}
        tables = {k: v.model_dump(mode="json", exclude_none=True) for k, v in nouns.items() if v is not None}
        job = "\n".join(toml_lines(tables)).lstrip() + "\n"
    model = imported.model if isinstance(imported, Imported) else imported.job.model
    notes = {"parameters": (counted(model),), "ignored": folded(imported.ignored), "assumed": imported.assumed, "missing": missing}
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
