"""`windtunnel import SOURCE`: prints TOML; what was ignored and assumed stands in its comments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from windtunnel.cli.common import On, Sets, writable, write
from windtunnel.cli.source import job_of
from windtunnel.formats import import_job
from windtunnel.spec import dump_job
from windtunnel.spec.toml import toml_lines


def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A Hugging Face config.json, or a file with Megatron-LM flags.")],
    on: On = None,
    sets: Sets = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE|-", help="Where the TOML goes.")] = "-",
) -> None:
    writable(("--out", out))
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    if on is None and not sets:
        made = import_job(Path(source))
        nouns: dict[str, Any] = {"model": made.model, "plan": made.plan, "runtime": made.runtime}
        tables = {k: v.model_dump(mode="json", exclude_none=True) for k, v in nouns.items() if v is not None}
        text = "\n".join(toml_lines(tables)).lstrip() + "\n"
        notes = (("ignored", made.ignored), ("assumed", made.assumed), ("missing", ("the machine: add --on JOB or --on CLUSTER",)))
        what = made.format
    else:
        loaded = job_of(source, sets, on)
        text, what = dump_job(loaded.job), loaded.format
        notes = (("ignored", loaded.ignored), ("assumed", loaded.assumed), ("missing", ()))
    lines = [f"# from {_flat(source)} ({what})"] + [f"# {word}: {_flat(line)}" for word, listed in notes for line in listed]
    write("\n".join(lines) + "\n\n" + text, out, "--out")


def _flat(text: str) -> str:
    """One line of printable characters, as a comment must be."""
    return "".join(c if c.isprintable() else " " for c in text)
