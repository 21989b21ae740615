"""Who holds up a job that stands still though all its processes live: what the agents say of their ranks, judged as
`windtunnel fleet hang` does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from windtunnel.base.comm import Comm
from windtunnel.fleet.driver.snapshot import SeenFault
from windtunnel.fleet.findings.hang import PendingCall, RankState, hang_report
from windtunnel.fleet.wire.messages import OrderAnswer, RankStand

SILENCE = 5.0
"""Seconds without a beat after which a process counts as silent."""


def name_silent(fault: SeenFault, answers: Mapping[str, OrderAnswer]) -> SeenFault:
    """`fault` with its culprits where the answers (by node) tell them from those that wait for them. Where all are in one call that
    none finishes, it is the link that they wait for; else it stays as it is, with what they tell."""
    states: dict[int, RankState] = {}
    groups: dict[str, tuple[int, ...]] = {}
    home: dict[int, str] = {}
    for node, answer in answers.items():
        for stand in answer.stands:
            states[stand.rank], home[stand.rank] = _state(stand), node
        groups.update(answer.groups)
    if not states:
        return fault
    known = {label: ranks for label, ranks in groups.items() if all(rank in states for rank in ranks)}
    report = hang_report(states, known, silence=SILENCE)
    text = f"{fault.evidence}; {report.text.replace(chr(10), '; ')}"
    if not report.culprits:
        return replace(fault, what="link" if report.stuck else fault.what, evidence=text)
    nodes = tuple(dict.fromkeys(home[rank] for rank in report.culprits))
    return replace(fault, nodes=nodes, ranks=tuple(report.culprits), evidence=text, separable=True)


def _state(stand: RankStand) -> RankState:
    pending = tuple(PendingCall(one.group, one.number, Comm(one.comm), one.name, one.peer, one.sends) for one in stand.pending)
    since = stand.since if stand.since >= 0 else math.nan
    return RankState(stand.rank, pending, stand.begun, stand.finished, stand.silent, stand.process, stand.doing, since)
