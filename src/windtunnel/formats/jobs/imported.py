"""The result of an import: model, plan and runtime, ignored keys, assumed values. What a user says beside a source, with `--set`
and `--on`: it beats the source, and fills what the source leaves open.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.formats.jobs.launched import Launched
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


NO_GPUS = "Or say on how many GPUs: --on CLUSTER, with --set cluster.gpus=N for a part of it."
"""The hint where a batch follows from the number of GPUs and neither is said."""


@dataclass(frozen=True)
class Stated:
    """`fields` by their path in a job ("plan.seq"); `gpus`: those of the machine, which a source's own number beats; `model`: what
    `--model` names, for sources that name theirs on a hub; `node`: GPUs of one node of the machine, where that is a cluster of the
    catalogue, of which a source or the user takes a part; `machine`: its name; `arguments` and `environment`: what a launch script
    is started with; `script`: where it lies, for the files that it names itself."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    gpus: int | None = None
    model: Model | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    script: Path | None = None
    node: int | None = None
    machine: str = ""

    @classmethod
    def of(cls, table: Mapping[str, Any], gpus: int | None = None, model: Model | None = None) -> Stated:
        """From the nested table that `--set`s add up to."""
        return cls(dict(_leaves(table, "")), gpus, model)

    def whole_number(self, path: str) -> int | None:
        """The whole number that is stated at a path."""
        value = self.fields.get(path)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**12 else None

    @property
    def own_gpus(self) -> int | None:
        """GPUs that the user typed, which beat a source's launcher."""
        return self.whole_number("cluster.gpus")

    def gpus_of(self, launcher: Launched, on: Job | None, assumed: list[str], copy: int = 1) -> int | None:
        """GPUs that the user typed, else those that a launcher starts, else what `gpus_on` takes."""
        if self.own_gpus is not None:
            return self.own_gpus
        if launcher.total is not None:
            return launcher.total
        if self.node is None and on is not None:
            return self.gpus_on(on, assumed, copy)
        if launcher.per_node is not None:
            _say(assumed, f"{launcher.per_node:,} GPUs, one node: {_unset(launcher, '--set cluster.gpus=N')}")
            return launcher.per_node
        return self.gpus_on(on, assumed, copy, launcher)

    def gpus_on(self, on: Job | None, assumed: list[str], copy: int = 1, launcher: Launched | None = None) -> int | None:
        """GPUs where a source says none, which `assumed` says then: those that the user typed, those of a job that is the machine,
        or of a cluster of the catalogue one node; more nodes only where a `copy` of the model is on more GPUs, or the launcher
        names them."""
        if self.own_gpus is not None:
            return self.own_gpus
        if self.node is None:
            if on is not None:
                _say(assumed, f"{on.cluster.gpus:,} GPUs, all of the machine: --set cluster.gpus=N says how many")
            return self.gpus if on is None else on.cluster.gpus
        nodes = launcher.nodes if launcher is not None and launcher.nodes else 1
        count, where = self.node * nodes, "one node" if nodes == 1 else f"{nodes:,} nodes"
        open_count = _unset(launcher or Launched(), "--set cluster.gpus=N")
        if count % copy:
            least = math.lcm(self.node, copy) if copy > count else count // copy * copy
            count = min(least, max(self.gpus or least, count)) if copy > count else least
            where = f"the fewest nodes that hold one copy of the model, of {copy:,}" if copy > self.node * nodes else "of one node"
        _say(assumed, f"{count:,} GPUs, {where} of {self.machine or 'the machine'}: {open_count}")
        return count


def _unset(launcher: Launched, typed: str) -> str:
    """Why a count is not known, and what to type."""
    if launcher.unset:
        return f"{' and '.join(launcher.unset)} is not set in the file ({typed})"
    return f"the file says no more ({typed})" if launcher.nodes else f"the file does not say how many ({typed})"


def _say(assumed: list[str], note: str) -> None:
    """Puts a note of GPUs in front of the others, once."""
    if note not in assumed:
        assumed.insert(0, note)


def _leaves(table: Mapping[str, Any], head: str) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in table.items():
        path = f"{head}.{key}" if head else str(key)
        leaves += _leaves(value, path) if isinstance(value, Mapping) else [(path, value)]
    return leaves
