"""The registry of importers: one line each in `importers.toml`, asked in its order which of them knows a file."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import UnknownName
from windtunnel.base.files import table_beside
from windtunnel.base.registry import offered_by_packages


@dataclass(frozen=True)
class Importer:
    """An importer: its name, its module, and what it reads, for `windtunnel catalog formats`. A module is below
    `windtunnel.formats`; that of another package is stated whole, with a colon behind it."""

    name: str
    module: str
    what: str
    reads: str = "file"
    """"table": a configuration in TOML, YAML or JSON, by a `jobs.import_job.TableImporterModule`. "kernels": kernel times, by
    a `reading.ImporterModule` that `windtunnel profile import` asks too. "folder": a whole folder, by a
    `reading.FolderImporterModule`. "file": anything else, by a `reading.ImporterModule`."""


IMPORTERS = tuple(Importer(name, *said) for name, said in table_beside(__file__).items())

TOGETHER: dict[str, str] = {"pytorch-et": "kineto"}
"""Readers whose files and those of another one, given together, become one thing: the first one's `read_with`."""

OWN_PREFIXES = frozenset(
    {"nccl-watchdog", "nccl-ras", "out-of-memory", "last-words", "training-log", "mlperf", "nccl-tests", "nccl-debug", "goal"}
)
"""Readers that find their lines behind any prefix, and may tell ranks by it; in GOAL, what stands before a line is its label."""

CONFIGURATIONS = frozenset({*(importer.name for importer in IMPORTERS if importer.reads == "table"), "recipe", "command-line"})
"""Readers whose files describe a job or a model, so that `windtunnel predict FILE` takes them too."""

OWN = frozenset({"run", "graph", "dataset", "model", "cluster", "job"})
"""Readers of what windtunnel writes."""

MODEL_APART = frozenset({"calculon", "simumax", "llm-analysis", "trainer", "llm-foundry", "primus"})
"""Configurations that leave the model to a file or a name beside them."""

ANYTHING = CONFIGURATIONS | {"not-read"}
"""Readers of texts that may lie beside the traces and logs of a run, without being a part of it."""


@cache
def importers_of_packages() -> tuple[Importer, ...]:
    """Importers that other packages offer, as entry points of the group `windtunnel.importers`. They are asked about files that
    none of the project's own knows, or that only those of any text do."""
    return tuple(offered_by_packages("importers").values())


def describe_importers(name: str | None = None) -> dict[str, str]:
    """What each importer reads, in words by its name; of the one called `name` alone. UnknownName for a name that none has."""
    what = {reader.name: reader.what for reader in (*IMPORTERS, *importers_of_packages()) if reader.name != "not-read"}
    if name is not None and name not in what:
        raise UnknownName("format", name, list(what))
    return what if name is None else {name: what[name]}


def module_of(importer: Importer) -> Any:
    """The module of an importer, imported when it is first asked."""
    whole, other, _ = importer.module.partition(":")
    return import_module(whole if other else f"windtunnel.formats.{importer.module}")
