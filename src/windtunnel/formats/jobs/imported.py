"""The result of an import: model, plan and runtime, ignored keys, assumed values."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

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

    def with_notes(self, ignored: Collection[str], assumed: Iterable[str]) -> Imported:
        """The same, with further keys that change nothing, in alphabetical order then, and further values that were taken."""
        keys = tuple(sorted({*self.ignored, *ignored})) if ignored else self.ignored
        return replace(self, ignored=keys, assumed=(*self.assumed, *assumed))
