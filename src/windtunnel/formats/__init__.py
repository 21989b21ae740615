"""Other people's descriptions of a job: read in, with everything ignored or assumed said."""

from __future__ import annotations

from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.huggingface import from_config
from windtunnel.formats.imported import Imported
from windtunnel.formats.megatron import from_arguments
from windtunnel.formats.source import parse_json, read_source
from windtunnel.spec import Job, check

__all__ = ["Imported", "from_arguments", "from_config", "import_job"]


def import_job(source: str | Path, on: Job | None = None) -> Imported:
    """Whatever `source` is: a Hugging Face config.json, or Megatron-LM flags (a command line or a launch script); a path or text.

    `on` gives what the source does not say: its cluster, and for a config.json also plan and runtime. Without it `job` is None.
    Raises `FileError` for what cannot be read, `SpecError` for what cannot be understood or is not modelled.
    """
    text, where = read_source(source)
    if not text.strip():
        raise SpecError(where, "", "a config.json or Megatron-LM flags")
    if text.lstrip()[0] in "{[":
        made = from_config(parse_json(text, where))
        if on is None:
            return made
        job = check(Job(name=made.model.name, model=made.model, plan=on.plan, runtime=on.runtime, cluster=on.cluster,
                        tokens=on.tokens, seed=on.seed, source=made.model.source))
        return Imported(made.format, made.model, job.plan, job.runtime, job, made.built, made.ignored, made.assumed)
    if "--" in text:
        return from_arguments(text, where, on)
    raise SpecError(where, text.strip()[:60], "a Hugging Face config.json (model_type), or Megatron-LM flags (--num-layers)")
