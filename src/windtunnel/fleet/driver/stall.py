"""Finds the culprit of a job that is stalled although all its processes are alive: the agents' rank status, judged as `windtunnel
fleet hang` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from windtunnel.base.comm import Comm
from windtunnel.fleet.driver.snapshot import DetectedFault
from windtunnel.fleet.findings.hang import PendingCall, RankState, hang_report
from windtunnel.fleet.wire.messages import OrderAnswer, RankStatus

SILENCE = 5.0
"""Seconds without a heartbeat after which a process counts as silent."""


def name_stall_culprits(fault: DetectedFault, answers: Mapping[str, OrderAnswer]) -> DetectedFault:
    """`fault` with its culprits, if the answers (by node) distinguish them from the ranks that wait for them. If all ranks are in
    one call that none finishes, the fault becomes a `link` fault; otherwise only the evidence is extended.
    """
    states: dict[int, RankState] = {}
    groups: dict[str, tuple[int, ...]] = {}
    home: dict[int, str] = {}
    for node, answer in answers.items():
        for status in answer.rank_status:
            states[status.rank], home[status.rank] = _to_rank_state(status), node
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


def _to_rank_state(status: RankStatus) -> RankState:
    pending = tuple(PendingCall(one.group, one.number, Comm(one.comm), one.name, one.peer, one.sends) for one in status.pending)
    since = status.since if status.since >= 0 else math.nan
    return RankState(status.rank, pending, status.begun, status.finished, status.silent, status.process, status.doing, since)
