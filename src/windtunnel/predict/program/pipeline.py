"""Pipeline transfers: activations to the next virtual stage, gradients to the one before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.engine import HOST_SYNC
from windtunnel.engine.turns import Actions, Meetings, Tasks, Turns, write_turns
from windtunnel.predict.category import Category, Task
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program import demands, keys
from windtunnel.predict.program.calls import NetworkCall, NetworkCalls
from windtunnel.predict.program.demands import WAITING
from windtunnel.predict.program.recorded import NumberedPasses, StoppedPass, number_passes
from windtunnel.predict.program.stage import PASSES, Stage
from windtunnel.workload import Axis, Stream, Workload
from windtunnel.workload.schedules import Action, Pass

Streams = tuple[tuple[int, int], tuple[int, int]]
"""[whether stages are passed in reverse][whether it is a gradient]"""

_SEND: Streams = (
    (int(Stream.SEND_FORWARD), int(Stream.SEND_BACKWARD)),
    (int(Stream.SEND_FORWARD_BACK), int(Stream.SEND_BACKWARD_BACK)),
)
_RECEIVE: Streams = (
    (int(Stream.RECV_FORWARD), int(Stream.RECV_BACKWARD)),
    (int(Stream.RECV_FORWARD_BACK), int(Stream.RECV_BACKWARD_BACK)),
)
_SENT, _RECEIVED = int(Task.SEND), int(Task.RECEIVE)
_TASKS = Tasks(PASSES, int(Task.FORWARD_AND_BACKWARD), _SENT, _RECEIVED)
_WAYS = np.array([{Pass.FORWARD: 0, Pass.WEIGHT_GRADIENT: -1}.get(way, 1) for way in Pass], np.int64)
"""By `Pass`: whether it moves a gradient, -1 for nothing."""
_WAITING, _MOVING = int(Category.PIPELINE_BUBBLE), int(Category.PIPELINE_TRANSFER)


class PipelineTransfers:
    """Posts sends and receives. Boundary k lies between parts k and k + 1 of the model; nothing is sent over a boundary inside a
    stage. Parts that follow each other on stages in reverse order (a V's second leg, a second copy) use streams of their own."""

    def __init__(
        self,
        workload: Workload,
        costs: Costs,
        live: NetworkCalls | None = None,
        group: int = 0,
        only: tuple[int, ...] | None = None,
    ) -> None:
        """`group`: number of the group of equal replicas; `only`: replicas these transfers belong to, if replicas differ."""
        self.group, self.only, self.workload = group, only, workload
        job, runtime = workload.job, workload.job.runtime
        self.stages, self.micro_batches = job.plan.pp, job.micro_batches
        self.boundaries = job.plan.pp * job.plan.vpp - 1
        self.places = np.array(job.places, np.int64)  # [stage, chunk]
        self.backs = np.zeros(self.places.shape[1], np.int64)  # by chunk: whether its parts run from the last stage to the first
        if self.stages > 1:
            self.backs = (self.places[0] > self.places[1]).astype(np.int64)
        self.copies = job.copies
        self.crosses = np.array(demands.crossed_boundaries(job), np.bool_)
        # plain lists: faster to index one by one than arrays
        self._places, self._backs, self._crosses = self.places.tolist(), self.backs.tolist(), self.crosses.tolist()
        self.waits = demands.sender_waits(job.plan.schedule_name, runtime.overlap_p2p)
        # a host that waits for one transfer before it posts the next would deadlock if neighbours send to each other at the same
        # time
        self.sync = runtime.p2p_sync and self.waits and job.plan.schedule_name in (*WAITING, "interleaved")
        # A host that waits inside of a pass for its device would keep back the receive of the next one, for which the pass of a
        # neighbour waits. Frameworks post what a turn sends and what its neighbours send in one call; see post_turn. The host waits
        # inside of the passes then, not for transfers.
        self.ahead = self.waits and job.plan.schedule_name not in WAITING and bool(workload.ops.sync.any())
        self.sync = self.sync and not self.ahead
        # a look at a message that is sent right away comes too early: each costs one sleep
        self.polls = tuple(messages * runtime.p2p_poll for messages in runtime.p2p_messages)
        self.gathered, self.sent = (
            None if row.axis is Axis.NONE else CallKey(row.comm, row.axis, row.size(workload.boundary))
            for row in demands.transfers(job, job.plan.sequence_parallel)
        )
        self.seconds = 0.0 if self.gathered is None else costs.calls.price_of(self.gathered).seconds
        if self.sent is not None:
            self.seconds += costs.calls.price_of(self.sent).seconds
            if live is not None and live.runs(self.sent.axis):
                self._announce(live, self.sent)

    def _announce(self, live: NetworkCalls, sent: CallKey) -> None:
        """Registers every transfer with its source and destination stage, and the gather behind it."""
        half = self.micro_batches // self.copies
        senders = sorted(
            (part, chunk, stage)
            for stage, parts_of_stage in enumerate(self.places.tolist())
            for chunk, part in enumerate(parts_of_stage)
        )
        for boundary, chunk, stage in senders:
            if boundary == self.boundaries or not self.crosses[boundary]:
                continue
            first = chunk * half if self.copies > 1 else 0
            for gradient in (0, 1):
                transfer_keys = keys.transfer(boundary, gradient, first, self.micro_batches, self.group) + np.arange(half)
                back = bool(gradient) != bool(self.backs[chunk])
                first_stage = stage - int(self.backs[chunk])
                call = NetworkCall(*sent, first_stage, back, self.polls[gradient], self.only)
                live.bind(transfer_keys, call)
                if self.gathered is not None:
                    receiver = first_stage if back else (first_stage + 1) % self.stages
                    comm, axis, size = self.gathered
                    live.follow(transfer_keys, NetworkCall(comm, axis, size, receiver, only=self.only))

    def _boundary_of(self, stage: Stage, action: Action, ahead: bool) -> int | None:
        """The boundary over which the action's result is sent (with `ahead`: over which its input is received), or None."""
        gradient = int(action.direction != Pass.FORWARD)
        boundary: int = self._places[stage.index][action.chunk] - (1 - gradient if ahead else gradient)
        inside = action.direction != Pass.WEIGHT_GRADIENT and 0 <= boundary < self.boundaries and self._crosses[boundary]
        return boundary if inside else None

    def send(self, stage: Stage, action: Action, after: int) -> int | None:
        """Append the transfer after `action`; None if the result stays on the stage."""
        boundary = self._boundary_of(stage, action, ahead=False)
        if boundary is None:
            return None
        stage.sent += 1
        return self._meet(stage, action, boundary, _SENT, _SEND, (after,), False)

    def receive(self, stage: Stage, action: Action) -> int | None:
        """Append the transfer that `action` needs first; None if it needs none. It is posted as soon as the host reaches it."""
        boundary = self._boundary_of(stage, action, ahead=True)
        if boundary is None:
            return None
        stage.received += 1
        return self._meet(stage, action, boundary, _RECEIVED, _RECEIVE, (), self.sync)

    def post_turn(self, stage: Stage, action: Action, turn: int) -> int:
        """With `ahead`: the turn of the stage before which it posts the receive for `action`, of its turn `turn`: one sooner than
        it needs it, and no later than behind the turn in which the neighbour sends, however long the message waits here."""
        boundary = self._boundary_of(stage, action, ahead=True)
        if boundary is None:
            return turn
        gradient = int(action.direction != Pass.FORWARD)
        sends = self._turns[gradient, boundary + gradient, action.micro_batch]
        return max(0, min(turn - 1, sends + 1))

    @cached_property
    def _turns(self) -> dict[tuple[int, int, int], int]:
        """By whether it is a gradient, part of the model and micro batch: the turn of its stage that sends it."""
        turns: dict[tuple[int, int, int], int] = {}
        for stage, parts in enumerate(self._places):
            turn = -1
            paired = 0
            for direction, chunk, micro_batch, beside in self.workload.passes(stage).tolist():
                turn += 1 - paired
                paired = beside
                if direction != Pass.WEIGHT_GRADIENT:
                    turns[int(direction != Pass.FORWARD), parts[chunk], micro_batch] = turn
        return turns

    def _meet(
        self, stage: Stage, action: Action, boundary: int, kind: int, streams: Streams, waits: tuple[int, ...], sync: bool
    ) -> int:
        gradient = int(action.direction != Pass.FORWARD)
        return stage.meet(
            (kind, action.micro_batch, action.chunk),
            streams[self._backs[action.chunk]][gradient],
            keys.transfer(boundary, gradient, action.micro_batch, self.micro_batches, self.group),
            self.seconds + self.polls[gradient],
            2,
            waits,
            _WAITING,
            _MOVING,
            sync,
        )

    @cached_property
    def _meetings(self) -> Meetings:
        """What `columns` needs of the transfers."""
        crosses = np.concatenate([[False], self.crosses, [False]])  # first and last: beyond either end
        gradient = np.arange(2)

        def first_keys(boundary: Int64s) -> Int64s:
            first = keys.transfer(boundary, gradient, np.zeros_like(boundary), self.micro_batches, self.group)
            return np.where(crosses[boundary + 1], first, -1)

        part = self.places[:, :, None]
        return Meetings(
            first_keys(part - gradient), first_keys(part - 1 + gradient),
            np.array(_SEND)[self.backs], np.array(_RECEIVE)[self.backs],
            self.seconds + np.array(self.polls), _WAYS, _WAITING, _MOVING, HOST_SYNC if self.sync else 0, self.waits,
        )  # fmt: skip

    def columns(
        self,
        stages: Sequence[Stage],
        owner: Int64s,
        actions: Int64s,
        templates: Int64s,
        stopped: Iterable[tuple[int, Sequence[StoppedPass]]],
    ) -> PassColumns:
        """The columns of the turns of some stages, stage by stage, each a run with its transfers.

        `owner` [n]: place of the action's stage among `stages`; `actions` [n, 4] is `schedules.table`; `templates` [n]: the
        action's template, or -1 if the run before it covers it too (the second of a pair). `stopped`: passes of several instances,
        by the place of their stage's first action; all turns of their stages are appended next, and together.
        """
        index = np.array([stage.index for stage in stages])
        before = np.zeros(len(self.places), np.int64)
        before[index] = [len(stage.rank) for stage in stages]
        passes = number_passes(stopped, len(actions), before)
        of = Actions(actions, index[owner], templates, passes.of_action, passes.gather)
        return PassColumns(write_turns(of, self._meetings, passes.columns, _TASKS, stages[0].call_host), self.waits, passes)

    def count(self, stage: Stage) -> None:
        """Books the sends of a stage, and the gathers after its receives, among its communication calls."""
        stage.moves = self.sent, self.gathered
        if stage.sent and self.sent is not None:
            stage.calls[self.sent] = stage.sent
        if stage.received and self.gathered is not None:
            stage.calls[self.gathered] = stage.received


class PassColumns:
    """Turns of stages' schedules as columns, numbered as if nothing came between them; `append` takes some that do follow each
    other into the program of their stage, as `lower._append_interrupted` would, but faster."""

    def __init__(self, turns: Turns, senders_wait: bool, passes: NumberedPasses) -> None:
        self.columns, self.labels, self.start, self.done, self.moved, base = turns
        self.senders_wait = senders_wait
        at = np.flatnonzero(passes.of_action >= 0)
        bases = [(passes.passes[of], first) for of, first in zip(passes.of_action[at].tolist(), base[at].tolist(), strict=True)]
        self.calls = [(first + at, key) for of, first in bases for at, key in of.calls]
        self.pending = [first + at for of, first in bases for at in of.pending]

    def append(self, stage: Stage, begin: int, end: int, sent: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Appends the stage's turns `begin` to `end` after one with the sends `sent`; returns the last run and its sends."""
        columns, first, behind = self.columns, int(self.start[begin]), int(self.start[end])
        shift, at = len(stage.rank) - first, columns.waits_start
        waits = columns.waits[at[first] : at[behind]] + shift
        if self.senders_wait and sent:  # they are the last that the first run waits for
            last = at[first + self.moved[begin, 0] + 1] - at[first]
            waits[last - len(sent) : last] = sent
        received, sends = self.moved[begin:end].sum(axis=0).tolist()
        stage.received += received
        stage.sent += sends
        stage.labels.extend(self.labels[first:behind])
        stage.rank.extend(columns, first, behind, waits)
        until = behind + shift
        return int(self.done[end - 1]) + shift, tuple(range(until - int(self.moved[end - 1, 1]), until))

    def book_calls(self, stage: Stage, begin: int, end: int) -> list[int]:
        """Books the calls inside the stage's turns, which were appended last; returns those that the update waits for, in order."""
        first, behind = int(self.start[begin]), int(self.start[end])
        shift = len(stage.rank) - behind
        since, until = (bisect_left(self.calls, at, key=itemgetter(0)) for at in (first, behind))
        for at, key in self.calls[since:until]:
            stage.calls[key] += 1
            stage.collectives.append((at + shift, key))
        return [at + shift for at in self.pending[bisect_left(self.pending, first) : bisect_left(self.pending, behind)]]
