"""What an importer returns: what it built, what it left out, what it had to assume."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.spec import Job, Model, Plan, Runtime


@dataclass(frozen=True)
class Imported:
    """The outcome of an import.

    `format` is what the source was taken for. `job` is there where a machine was known (see `import_job`), `plan` and `runtime`
    where the source states them. `built` names the fields that were read from the source, `ignored` every key of the source that
    changes nothing here, `assumed` every field that the source left open, with the value taken.
    """

    format: str
    model: Model
    plan: Plan | None = None
    runtime: Runtime | None = None
    job: Job | None = None
    built: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
