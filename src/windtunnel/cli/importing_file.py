"""`windtunnel import SOURCE`: prints TOML; what was ignored and assumed stands in its comments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from windtunnel.cli.common import On, Sets, writable, write
from windtunnel.cli.source import Loaded, job_of
from windtunnel.formats import Imported, import_job
from windtunnel.spec import dump_job
from windtunnel.spec.toml import toml_lines

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
        made = import_job(Path(source))
        written(f"{source} ({made.format})", made, None, out)
    else:
        loaded = job_of(source, sets, on)
        written(f"{source} ({loaded.format})", loaded, dump_job(loaded.job), out)


def written(what: str, found: Imported | Loaded, job: str | None, out: str) -> None:
    """Writes what an importer found, with its notes as comments: the text of a `job`, or the nouns that the source states."""
    missing = () if job is not None else ("the machine: add --on JOB or --on CLUSTER",)
    if job is None and isinstance(found, Imported):
        nouns: dict[str, Any] = {"model": found.model, "plan": found.plan, "runtime": found.runtime}
        tables = {k: v.model_dump(mode="json", exclude_none=True) for k, v in nouns.items() if v is not None}
        job = "\n".join(toml_lines(tables)).lstrip() + "\n"
    notes = (("ignored", found.ignored), ("assumed", found.assumed), ("missing", missing))
    lines = [f"# from {_flat(what)}"] + [f"# {word}: {_flat(line)}" for word, listed in notes for line in listed]
    write("\n".join(lines) + "\n\n" + (job or ""), out, "--out")


def _flat(text: str) -> str:
    """One line of printable characters, as a comment must be."""
    return "".join(c if c.isprintable() else " " for c in text)
