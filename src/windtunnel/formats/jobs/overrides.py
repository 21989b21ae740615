"""What a user says beside a source, with `--set` and `--on`: it beats the source, and fills what the source leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windtunnel.spec import Job, Model

NO_GPUS = "Or say on how many GPUs: --on CLUSTER, with --set cluster.gpus=N for a part of it."
"""The hint where a batch follows from the number of GPUs and neither is said."""


@dataclass(frozen=True)
class Stated:
    """`fields` by their path in a job ("plan.seq"); `gpus`: those of the machine, which a source's own number beats; `model`: what
    `--model` names, for sources that name theirs on a hub; `arguments` and `environment`: what a launch script is started with;
    `script`: where it lies, for the files that it names itself."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    gpus: int | None = None
    model: Model | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    script: Path | None = None

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

    def gpus_on(self, on: Job | None, assumed: list[str]) -> int | None:
        """GPUs that the user typed, else all that the machine has, which `assumed` says then."""
        if self.own_gpus is not None or on is None:
            return self.own_gpus or self.gpus
        note = f"{on.cluster.gpus:,} GPUs, all of the machine: --set cluster.gpus=N says how many"
        if note not in assumed:
            assumed.append(note)
        return on.cluster.gpus


def _leaves(table: Mapping[str, Any], head: str) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in table.items():
        path = f"{head}.{key}" if head else str(key)
        leaves += _leaves(value, path) if isinstance(value, Mapping) else [(path, value)]
    return leaves
