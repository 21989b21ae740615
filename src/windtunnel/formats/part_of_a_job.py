"""Configurations that say only a part of a job: DeepSpeed's, and the execution or the system of a simulator, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats import calculon, kind_of, llm_analysis, simumax
from windtunnel.formats.deepspeed import implied_ranks
from windtunnel.formats.reading import Content, Reading
from windtunnel.spec.files import SUFFIXES, read_table

MOST_FACTS = 60


def part_alone(path: Path) -> Reading | None:
    """What a part of a job says, as facts; None for a file that is a whole job or a model, or that cannot be read."""
    if path.suffix.lower() not in SUFFIXES:
        return None
    try:
        table = read_table(path)
    except WindtunnelError:
        return None
    kind = kind_of(table)
    if kind == "deepspeed":
        ranks = implied_ranks(table)
        facts = ({} if ranks is None else {"data_parallel_ranks": ranks}) | dict(_leaves(table, ""))
        needs = "the model and the machine: windtunnel predict FILE --model MODEL --on CLUSTER"
        return Reading("DeepSpeed configuration", Content.SETTINGS, table, facts, assumed=(f"left open: {needs}",))
    for reader in (calculon.READER, simumax.READER, llm_analysis.READER):
        part = reader.part(table)
        if reader.name == kind and part in ("plan", "system"):
            needs = f"the model: windtunnel import MODEL.json {'FILE' if part == 'plan' else 'EXECUTION.json FILE'}"
            facts = {"part": part} | dict(_leaves(table, ""))
            return Reading(f"{reader.name} {part}", Content.SETTINGS, table, facts, assumed=(f"left open: {needs}",))
    return None


def _leaves(table: Mapping[str, Any], head: str) -> list[tuple[str, Any]]:
    return list(_walked(table, head))[:MOST_FACTS]


def _walked(table: Mapping[str, Any], head: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = f"{head}.{key}" if head else str(key)
        if isinstance(value, Mapping):
            yield from _walked(value, path)
        elif not isinstance(value, list):
            yield path, value
