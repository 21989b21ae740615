"""Evaluation of a run that makes progress: all findings from its sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.fleet.findings.beside import time_beside
from windtunnel.fleet.findings.decline import decline
from windtunnel.fleet.findings.finding import Finding
from windtunnel.fleet.findings.slow_links import Transfers, match_transfers, slow_links
from windtunnel.fleet.findings.slow_ranks import RankPace, pace_of, slow_ranks, starved_ranks
from windtunnel.fleet.findings.steps import StepTable, roles_of, roles_of_groups, step_table
from windtunnel.fleet.findings.waits import waited_for
from windtunnel.records.sections import Sections

LEAST_COST = 0.01
"""Share of a step that a finding on ranks has to cost to be named: twice as long for a hundredth of a step slows nothing down."""


@dataclass(frozen=True)
class Judgement:
    """The table behind the findings, the paces of the ranks, and the findings, most expensive first."""

    table: StepTable
    pace: RankPace
    transfers: Transfers
    findings: tuple[Finding, ...]


def judge(sections: Sections, meshes: Sequence[Mapping[str, Any]] = ()) -> Judgement:
    """Finds slow ranks, machines and links, ranks without a core, and the cause of a decline. Ranks must be on one clock.

    A rank whose work grows is both slower than its peers and the cause of the decline; it is reported once, as the cause.
    """
    world = int(sections.rank.max()) + 1 if len(sections) else 0
    table = step_table(sections, roles_of(meshes, world) or roles_of_groups(sections))
    transfers = match_transfers(sections)
    beside = time_beside(table, waited_for(sections, [int(rank) for rank in table.ranks], len(table.steps)))
    found = [*_worth_naming([*slow_ranks(table), *starved_ranks(table), *beside], table), *slow_links(transfers)]
    falling = decline(table, transfers, named=[rank for one in found for rank in one.ranks])
    if falling is not None:
        found = [one for one in found if not (one.ranks and set(one.ranks) <= set(falling.ranks))] + [falling]
    return Judgement(table, pace_of(table), transfers, tuple(sorted(found, key=lambda one: -one.cost)))


def _worth_naming(found: Sequence[Finding], table: StepTable) -> list[Finding]:
    known = table.step[np.isfinite(table.step)]
    least = LEAST_COST * float(np.median(known)) if len(known) else 0.0
    return [one for one in found if one.cost >= least]
