"""Pipeline transfers: activations to the next virtual stage, gradients to the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from windtunnel.engine import HOST_SYNC
from windtunnel.predict.category import Category
from windtunnel.predict.costs import Costs
from windtunnel.predict.live import Call, Live
from windtunnel.predict.stage import Kind, Stage
from windtunnel.workload import Axis, Comm, Stream, Workload
from windtunnel.workload.schedules import Action

T = TypeVar("T", int, npt.NDArray[np.int64])
_SEND = (int(Stream.SEND_FORWARD), int(Stream.SEND_BACKWARD))
_RECEIVE = (int(Stream.RECV_FORWARD), int(Stream.RECV_BACKWARD))
_SENT, _RECEIVED = int(Kind.SEND), int(Kind.RECEIVE)
_WAITING, _MOVING = int(Category.PIPELINE_BUBBLE), int(Category.PIPELINE_TRANSFER)


class Transfers:
    """Posts sends and receives. Virtual stage k = chunk x pp + stage; boundary k lies between k and k + 1."""

    def __init__(self, workload: Workload, costs: Costs, live: Live | None = None) -> None:
        plan, runtime = workload.job.plan, workload.job.runtime
        self.stages, self.boundaries, self.micro_batches = plan.pp, plan.pp * plan.vpp - 1, workload.job.micro_batches
        self.sync = runtime.p2p_sync
        self.size, self.seconds = workload.boundary, 0.0
        if self.stages > 1:
            if plan.tp > 1 and not plan.sequence_parallel and runtime.p2p_scatter:
                self.seconds = costs.network.price(Comm.ALL_GATHER, Axis.TP, self.size).seconds
                self.size /= plan.tp
            gather = self.seconds
            self.seconds += costs.network.price(Comm.SEND_RECV, Axis.PP, self.size).seconds
            if live is not None and live.crosses(Axis.PP):
                self._announce(live, gather)

    def _announce(self, live: Live, gather: float) -> None:
        """Says which transfer goes from which stage to which."""
        for boundary in range(self.boundaries):
            for back in (0, 1):
                keys = self._key(boundary, back, 0) + np.arange(self.micro_batches)
                call = Call(Comm.SEND_RECV, Axis.PP, self.size, boundary % self.stages, bool(back), gather)
                live.bind(keys, call)

    def send(self, stage: Stage, action: Action, after: int) -> int | None:
        """The transfer that follows `action`, or None at the ends of the pipeline."""
        direction, chunk, micro_batch = action
        boundary = chunk * self.stages + stage.index - direction
        if not 0 <= boundary < self.boundaries:
            return None
        stage.sent += 1
        return stage.meet(
            (_SENT, micro_batch, chunk),
            _SEND[direction],
            self._key(boundary, direction, micro_batch),
            self.seconds,
            2,
            (after,),
            _WAITING,
            _MOVING,
            False,
        )

    def receive(self, stage: Stage, action: Action) -> int | None:
        """The transfer that `action` needs first, or None at the ends of the pipeline; posted as soon as the host gets there."""
        direction, chunk, micro_batch = action
        boundary = chunk * self.stages + stage.index - 1 + direction
        if not 0 <= boundary < self.boundaries:
            return None
        return stage.meet(
            (_RECEIVED, micro_batch, chunk),
            _RECEIVE[direction],
            self._key(boundary, direction, micro_batch),
            self.seconds,
            2,
            (),
            _WAITING,
            _MOVING,
            self.sync,
        )

    def passes(self, stage: Stage, actions: Sequence[Action], templates: npt.NDArray[np.int64], overlap: bool) -> int:
        """All `actions` and their transfers at once, each a run of `templates[2 chunk + direction]`; returns the last pass.

        The same program as the loop in `lower._one_by_one` builds, for the thousands of passes between which nothing else happens.
        """
        direction, chunk, micro_batch = np.array(actions, np.int64).reshape(-1, 3).T
        here = chunk * self.stages + stage.index
        beyond, ahead = here - direction, here - 1 + direction  # boundaries that are sent over and received over
        sends, receives = ((b >= 0) & (b < self.boundaries) for b in (beyond, ahead))
        # in order: the first receive; then each pass, its send, the receive of the next pass
        size = 1 + sends + np.append(receives[1:], False)
        base, total = len(stage.rank), int(receives[0] + size.sum())
        run = receives[0] + np.concatenate(([0], np.cumsum(size)[:-1]))
        sent = np.where(sends, run + 1, -1)
        received = np.where(receives, np.concatenate(([0], run[:-1] + 1 + sends[:-1])), -1)
        template, flags, stream, key = (np.full(total, fill, np.int64) for fill in (-1, 0, 0, 0))
        waits = np.full((total, 2), -1, np.int64)
        labels = np.empty((total, 3), np.int64)
        template[run] = templates[2 * chunk + direction]
        waits[run, 0] = np.where(receives, received + base, -1)
        if not overlap:
            waits[run[1:], 1] = np.where(sends[:-1], sent[:-1] + base, -1)
        labels[run] = np.stack([direction, micro_batch, chunk], axis=1)
        ways = ((sent, sends, beyond, _SEND, _SENT), (received, receives, ahead, _RECEIVE, _RECEIVED))
        for at, which, boundary, streams, kind in ways:
            place = at[which]
            stream[place] = np.array(streams)[direction[which]]
            key[place] = self._key(boundary[which], direction[which], micro_batch[which])
            labels[place] = np.stack([np.full(len(place), kind), micro_batch[which], chunk[which]], axis=1)
        waits[sent[sends], 0] = run[sends] + base
        flags[received[receives]] = HOST_SYNC if self.sync else 0
        stage.labels += labels.ravel().tolist()
        stage.sent += int(sends.sum())
        stage.rank.extend(template, flags, waits, stream, key, self.seconds, 2, stage.call_host, _WAITING, _MOVING)
        return base + int(run[-1])

    def count(self, stage: Stage) -> None:
        """Books the sends of a stage among its communication calls."""
        if stage.sent:
            stage.calls[Comm.SEND_RECV, Axis.PP, self.size] = stage.sent

    def _key(self, boundary: T, direction: T, micro_batch: T) -> T:
        return (boundary * 2 + direction) * self.micro_batches + micro_batch
