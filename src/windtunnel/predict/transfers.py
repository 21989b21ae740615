"""Pipeline transfers: activations to the next virtual stage, gradients to the one before."""

from __future__ import annotations

from windtunnel.predict.category import Category
from windtunnel.predict.costs import Costs
from windtunnel.predict.stage import Kind, Stage
from windtunnel.workload import Axis, Comm, Stream, Workload
from windtunnel.workload.schedules import Action

_SEND = (int(Stream.SEND_FORWARD), int(Stream.SEND_BACKWARD))
_RECEIVE = (int(Stream.RECV_FORWARD), int(Stream.RECV_BACKWARD))
_SENT, _RECEIVED = int(Kind.SEND), int(Kind.RECEIVE)
_WAITING, _MOVING = int(Category.PIPELINE_BUBBLE), int(Category.PIPELINE_TRANSFER)


class Transfers:
    """Posts sends and receives. Virtual stage k = chunk x pp + stage; boundary k lies between k and k + 1."""

    def __init__(self, workload: Workload, costs: Costs) -> None:
        plan, runtime = workload.job.plan, workload.job.runtime
        self.stages, self.boundaries, self.micro_batches = plan.pp, plan.pp * plan.vpp - 1, workload.job.micro_batches
        self.sync = runtime.p2p_sync
        self.size, self.seconds = workload.boundary, 0.0
        if self.stages > 1:
            if plan.tp > 1 and not plan.sequence_parallel and runtime.p2p_scatter:
                self.seconds = costs.network.price(Comm.ALL_GATHER, Axis.TP, self.size).seconds
                self.size /= plan.tp
            self.seconds += costs.network.price(Comm.SEND_RECV, Axis.PP, self.size).seconds

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

    def count(self, stage: Stage) -> None:
        """Books the sends of a stage among its communication calls."""
        if stage.sent:
            stage.calls[Comm.SEND_RECV, Axis.PP, self.size] = stage.sent

    def _key(self, boundary: int, direction: int, micro_batch: int) -> int:
        return (boundary * 2 + direction) * self.micro_batches + micro_batch
