"""The result of an import: model, plan and runtime, ignored keys, assumed values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windtunnel.spec import Job, Model, Plan, Runtime


@dataclass(frozen=True)
class CommandLine:
    """The flags of a command line or a launch script, by today's name without dashes, each with its words.

    `written`: as the text has them. `stated`: with what the user stated beside it. `spelled`: names of older releases,
    as typed, by today's. `program`: the file that takes them.
    """

    written: Mapping[str, tuple[str, ...]]
    stated: Mapping[str, tuple[str, ...]]
    spelled: Mapping[str, str]
    program: str = ""


@dataclass(frozen=True)
class Imported:
    """The outcome of an import."""

    format: str
    """What the source was taken for."""
    model: Model
    plan: Plan | None = None
    """There where the source states it."""
    runtime: Runtime | None = None
    """There where the source states it."""
    job: Job | None = None
    """There where a machine was known; see `import_job`."""
    built: tuple[str, ...] = ()
    """Names of the fields that were read from the source."""
    ignored: tuple[str, ...] = ()
    """Every key of the source that changes nothing here."""
    assumed: tuple[str, ...] = ()
    """Every field that the source left open, with the value taken."""

    command_line: CommandLine | None = None
    """What the source was, where it was flags; an export writes them again."""
    table: Mapping[str, Any] | None = None
    """What the source was, where it was a configuration that an export writes again."""

    def with_notes(self, ignored: Collection[str], assumed: Iterable[str]) -> Imported:
        """The same, with further keys that change nothing, in alphabetical order then, and further values that were taken."""
        keys = tuple(sorted({*self.ignored, *ignored})) if ignored else self.ignored
        return replace(self, ignored=keys, assumed=(*self.assumed, *assumed))
