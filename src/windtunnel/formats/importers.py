"""The registry of importers: one line each, asked in this order which of them knows a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Importer:
    """An importer: its name, its module (see `reading.ImporterModule`), and what it reads, for `windtunnel import --help`."""

    name: str
    module: str
    what: str


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        "configuration",
        "configuration",
        "configurations of models and frameworks: Hugging Face, Megatron-LM, torchtitan, DeepSpeed, NeMo, Axolotl, Calculon, …",
    ),
)

CONFIGURATIONS = frozenset({"configuration"})
"""Readers whose files describe a job or a model, so that `windtunnel predict FILE` takes them too."""
