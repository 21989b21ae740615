"""Finds the culprit of a job that is stalled although all its processes are alive: the agents' rank status, judged as `windtunnel
fleet hang` does.

The faulty end of a broken link: the node whose own port went down. If no port did, the pair of nodes that lost its
connection.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.roster import AgentNode
from windtunnel.fleet.findings.hang import Mismatch, PendingCall, RankState, find_mismatches, hang_report
from windtunnel.fleet.wire.messages import OrderAnswer, RankStatus
from windtunnel.records.sections import Section, Sections

_OF_COLLECTIVES = re.compile("SIGABRT|gloo|nccl|collective|process ?group", re.IGNORECASE)
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
    report = hang_report(states, known, silence=SILENCE, mismatches=_mismatches(answers))
    told = report.text.replace(chr(10), "; ")
    if not report.culprits:
        return replace(fault, what="link" if report.stuck else fault.what, evidence=f"{fault.evidence}; {told}")
    nodes = tuple(dict.fromkeys(home[rank] for rank in report.culprits))
    return replace(fault, nodes=nodes, ranks=tuple(report.culprits), evidence=f"{told}; {fault.evidence}", separable=True)


def may_be_mismatch(fault: DetectedFault) -> bool:
    """Whether ranks that call different collectives may be behind a fault: all that ended have lost a connection, or a library of
    collectives has raised or aborted.
    """
    return fault.what in ("link", "nccl") or (fault.what == "crash" and _OF_COLLECTIVES.search(fault.evidence) is not None)


def name_differing_ranks(fault: DetectedFault, answers: Mapping[str, OrderAnswer]) -> DetectedFault:
    """`fault`, which ended ranks, with those first that called something else than the other ranks of their group, if any did."""
    reasons = {rank: why for one in _mismatches(answers) for rank, why in one.reasons.items()}
    if not reasons:
        return fault
    home = {status.rank: node for node, answer in answers.items() for status in answer.rank_status}
    text = "; ".join(f"rank {rank}: {why}" for rank, why in reasons.items())
    nodes = tuple(dict.fromkeys(home[rank] for rank in reasons))
    what = "crash" if fault.what == "link" else fault.what
    return replace(fault, what=what, nodes=nodes, ranks=tuple(reasons), evidence=f"{text}; {fault.evidence}", separable=True)


def _mismatches(answers: Mapping[str, OrderAnswer]) -> list[Mismatch]:
    """The collectives in which the answering ranks do not agree."""
    groups: dict[str, tuple[int, ...]] = {}
    for answer in answers.values():
        groups.update(answer.groups)
    labels = list(groups)
    places = {label: place for place, label in enumerate(labels)}
    rows = [
        (status.rank, places[call.group], call) for answer in answers.values()
        for status in answer.rank_status for call in status.calls if call.group in places
    ]  # fmt: skip
    names = tuple(dict.fromkeys(call.name or Comm(call.comm).name.lower() for _, _, call in rows))
    index = {name: place for place, name in enumerate(names)}
    count = len(rows)
    sections = Sections.of(
        [rank for rank, _, _ in rows], np.zeros(count), np.full(count, int(Section.CALL)), np.zeros(count), np.full(count, np.nan),
        group=[group for _, group, _ in rows], call=[call.number for _, _, call in rows],
        comm=[call.comm for _, _, call in rows], bytes=[call.size if call.size >= 0 else np.nan for _, _, call in rows],
        name=[index[call.name or Comm(call.comm).name.lower()] for _, _, call in rows],
        names=names, groups=tuple(groups.values()), group_names=tuple(labels),
    )  # fmt: skip
    return find_mismatches(sections, labels)


def _to_rank_state(status: RankStatus) -> RankState:
    pending = tuple(PendingCall(one.group, one.number, Comm(one.comm), one.name, one.peer, one.sends) for one in status.pending)
    since = status.since if status.since >= 0 else math.nan
    return RankState(
        status.rank, pending, status.begun, status.finished, status.silent, status.process, status.doing, since,
        threads=status.threads,
    )  # fmt: skip


_PEER = re.compile(r"\[([0-9A-Fa-f:.]+)(?:%\w+)?\]:\d+")
"""The other end of a connection, as gloo prints it."""


def name_faulty_node(fault: DetectedFault, nodes: Sequence[AgentNode], since: float) -> DetectedFault:
    """Names the culprits of a fault of class `link`: those of the job's `nodes` whose ports lost their link after `since`
    (monotonic seconds). If none did, or all did, no node is named; the evidence then says which pair lost its connection, if known,
    and that the faulty side is unknown.
    """
    if fault.what != "link" or not nodes:
        return fault
    down = [node for node in nodes if node.dropped >= since]
    if 0 < len(down) < len(nodes):
        ranks = tuple(rank.rank for node in down for rank in node.ranks)
        names = tuple(node.name for node in down)
        evidence = f"a port of {' and of '.join(names)} has lost its link; {fault.evidence}"
        return replace(fault, nodes=names, ranks=ranks, evidence=evidence, separable=True)
    pair = broken_pair(nodes)
    where = f"it broke between {' and '.join(pair)}; " if pair else ""
    ports = "the ports of all nodes have lost their link" if down else "no port has lost its link"
    return replace(fault, evidence=f"{where}{ports}, so which side is at fault is not known; {fault.evidence}")


def broken_pair(nodes: Sequence[AgentNode]) -> tuple[str, ...]:
    """The two nodes whose ranks each lost a connection to the other one, or the only two nodes of a job in which any did. Empty if
    there is no such pair, or more than one.

    A rank that ends because others have ended also reports lost connections, but those others did not lose theirs to it. Clocks are
    not compared.
    """
    owners: dict[str, set[str]] = {}
    for node in nodes:
        for address in node.addresses:
            owners.setdefault(address, set()).add(node.name)
    lost = set()
    lines = {
        node.name: [one.text for rank in node.ranks if rank.code for one in rank.found if one.kind == "peer"] for node in nodes
    }
    if len(nodes) == 2 and any(lines.values()):
        return tuple(sorted(lines))
    for node in nodes:
        for address in {text for line in lines[node.name] for text in _PEER.findall(line)}:
            if len(owner := owners.get(address, set())) == 1:  # nodes on one machine share its addresses
                lost.add((node.name, *owner))
    pairs = [(one, other) for one, other in lost if one < other and (other, one) in lost]
    return pairs[0] if len(pairs) == 1 else ()
