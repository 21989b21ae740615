"""A predicted step as a GOAL schedule of all ranks: kernels as calculations, collectives as the sends and receives of a ring."""

from __future__ import annotations

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.exports.chakra import JobGroups, StepNode, stage_of_ranks, step_nodes
from windtunnel.exports.exporters import Written
from windtunnel.formats.traces.goal.schedule import GoalKind, GoalRank, GoalSchedule, schedule_lines
from windtunnel.spec import Job

MOST_OPERATIONS = 4_000_000
"""Operations beyond which an export is refused: 150 MB of text."""
COMPUTE, CALLS, HOST = 0, 1, 2
"""CPUs of a rank: kernels, communication, and what the host does."""


def export(job: Job, options: dict[str, str]) -> Written:
    """A file for all ranks; it has no options."""
    for name in options:
        raise SpecError("--option", name, "nothing: GOAL has no options")
    schedule, seconds = schedule_of_job(job)
    assumed = (
        f"calculations take what kernels take in the step predicted in closed form, {seconds:.6g} s",
        "reductions and gathers as rings, all-to-alls as direct messages; cpu 0 computes, cpu 1 communicates, cpu 2 is the host",
    )
    left = ("groups, streams and names", "the library's protocols and channels: LogGOPS has one rate for all messages")
    return Written({"step.goal": "\n".join(schedule_lines(schedule)) + "\n"}, left, assumed)


def schedule_of_job(job: Job) -> tuple[GoalSchedule, float]:
    """The schedule, and the predicted step's seconds. SpecError where it would have more than MOST_OPERATIONS."""
    stages, seconds = step_nodes(job)
    owners, groups = stage_of_ranks(job), JobGroups(job)
    count = sum(_operations(node, groups, rank) for rank in range(len(owners)) for node in stages[int(owners[rank])])
    if count > MOST_OPERATIONS:
        raise SpecError("cluster.gpus", job.cluster.gpus, f"a step of at most {MOST_OPERATIONS:,} operations; this has {count:,}")
    tags: dict[tuple[object, ...], int] = {}
    ranks = [_Writer(rank, groups, tags).write(stages[int(owners[rank])]) for rank in range(len(owners))]
    return GoalSchedule(ranks), seconds


def _group(node: StepNode, groups: JobGroups, rank: int) -> tuple[int, ...]:
    return groups.groups_of(node.axis).get(rank) or groups.twins(rank)


def _operations(node: StepNode, groups: JobGroups, rank: int) -> int:
    if node.kind != "COMM_COLL":
        return 1
    others = len(_group(node, groups, rank)) - 1
    return 1 + others * (4 if node.call == Comm.ALL_REDUCE else 2)


class _Writer:
    """Operations of one rank. `last` are those that a node ends with."""

    def __init__(self, rank: int, groups: JobGroups, tags: dict[tuple[object, ...], int]) -> None:
        self.rank, self.groups, self.tags = rank, groups, tags
        self.out = GoalRank()
        self.calls: dict[tuple[int, ...], int] = {}

    def write(self, nodes: list[StepNode]) -> GoalRank:
        """All nodes: each waits for those that it names and for the one before it on its stream."""
        ends: list[int] = []
        streams: dict[int, int] = {}
        for at, node in enumerate(nodes):
            before = sorted({*node.deps, *([streams[node.stream]] if node.stream in streams else [])})
            ends.append(self._node(node, [ends[one] for one in before]))
            streams[node.stream] = at
        return self.out

    def _add(self, kind: GoalKind, size: float, waits: list[int], peer: int = 0, tag: int = 0, cpu: int = CALLS) -> int:
        made = self.out.add(kind, round(size), peer, tag, cpu)
        self.out.requires += [(made, one) for one in waits]
        return made

    def _tag(self, *key: object) -> int:
        return self.tags.setdefault(key, len(self.tags) + 1)

    def _node(self, node: StepNode, waits: list[int]) -> int:
        if node.kind == "COMP":
            return self._add(GoalKind.CALC, node.seconds * 1e9, waits, cpu=HOST if node.on_host else COMPUTE)
        if node.kind == "COMM_COLL":
            return self._collective(node, waits)
        sends = node.kind == "COMM_SEND"
        peer = self.groups.stage_peer(self.rank, node.to)
        ends = (self.rank, peer) if sends else (peer, self.rank)
        kind = GoalKind.SEND if sends else GoalKind.RECEIVE
        return self._add(kind, max(1.0, node.size), waits, peer, self._tag("message", *ends, node.key))

    def _collective(self, node: StepNode, waits: list[int]) -> int:
        group = _group(node, self.groups, self.rank)
        number = self.calls[group] = self.calls.get(group, 0) + 1
        tag, ranks, place = self._tag(group, number), len(group), group.index(self.rank)
        part = max(1.0, node.size / ranks)
        ends: list[int] = []
        if node.call == Comm.ALL_TO_ALL:
            for step in range(1, ranks):
                ends.append(self._add(GoalKind.SEND, part, waits, group[(place + step) % ranks], tag))
                ends.append(self._add(GoalKind.RECEIVE, part, waits, group[(place - step) % ranks], tag))
        else:
            received = waits
            for _ in range((ranks - 1) * (2 if node.call == Comm.ALL_REDUCE else 1)):
                ends.append(self._add(GoalKind.SEND, part, received, group[(place + 1) % ranks], tag))
                received = [self._add(GoalKind.RECEIVE, part, received, group[(place - 1) % ranks], tag)]
                ends.append(received[0])
        return self._add(GoalKind.CALC, 0.0, ends or waits)
