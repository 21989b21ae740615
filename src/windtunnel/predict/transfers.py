"""Pipeline transfers: activations to the next virtual stage, gradients to the one before."""

from __future__ import annotations

from windtunnel.predict.category import Category
from windtunnel.predict.costs import Costs
from windtunnel.predict.stage import Label, Stage
from windtunnel.workload import Axis, Comm, Stream, Workload
from windtunnel.workload.schedules import Action, Pass


class Transfers:
    """Posts sends and receives. Virtual stage k = chunk x pp + stage; boundary k lies between k and k + 1."""

    def __init__(self, workload: Workload, costs: Costs) -> None:
        plan, runtime = workload.job.plan, workload.job.runtime
        self.stages, self.boundaries, self.micro_batches = plan.pp, plan.pp * plan.vpp - 1, workload.job.micro_batches
        self.seconds = 0.0
        if self.stages > 1:
            size = workload.boundary
            if plan.tp > 1 and not plan.sequence_parallel and runtime.p2p_scatter:
                self.seconds = costs.network.price(Comm.ALL_GATHER, Axis.TP, size).seconds
                size /= plan.tp
            self.seconds += costs.network.price(Comm.SEND_RECV, Axis.PP, size).seconds
            self.size = size

    def send(self, stage: Stage, action: Action, waits: tuple[int, ...]) -> int | None:
        """The transfer that follows `action`, or None at the ends of the pipeline."""
        forward = action.direction is Pass.FORWARD
        here = action.chunk * self.stages + stage.index
        boundary = here if forward else here - 1
        return self._post(stage, action, boundary, Stream.SEND_FORWARD if forward else Stream.SEND_BACKWARD, waits, "send")

    def receive(self, stage: Stage, action: Action) -> int | None:
        """The transfer that `action` needs first, or None at the ends of the pipeline; posted as soon as the host gets there."""
        forward = action.direction is Pass.FORWARD
        here = action.chunk * self.stages + stage.index
        boundary = here - 1 if forward else here
        return self._post(stage, action, boundary, Stream.RECV_FORWARD if forward else Stream.RECV_BACKWARD, (), "receive")

    def _post(self, stage: Stage, action: Action, boundary: int, stream: Stream, waits: tuple[int, ...], kind: str) -> int | None:
        if not 0 <= boundary < self.boundaries:
            return None
        if kind == "send":
            stage.calls[Comm.SEND_RECV, Axis.PP, self.size] += 1
        key = (boundary * 2 + int(action.direction)) * self.micro_batches + action.micro_batch
        return stage.call(Label(kind, action.micro_batch, action.chunk), stream, key, self.seconds, 2, waits,
                          waiting=Category.PIPELINE_BUBBLE, moving=Category.PIPELINE_TRANSFER,
                          host_sync=stage.workload.job.runtime.p2p_sync and kind == "receive")
