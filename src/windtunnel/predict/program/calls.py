"""Calls that leave a scale-up domain and therefore run over a network engine.

Ranks are folded, so a call of a stage represents that of every data-, tensor- and context-parallel rank of the stage. Its traffic
is that of all these groups at once, and it ends when the last of them ends. Calls inside a domain keep their closed form, because
they share no links with others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.keys import ENGINE_CALLS
from windtunnel.workload import Axis, Comm


class NetworkCall(NamedTuple):
    """One kind of traffic: a collective of all groups of `axis` in `stage` (None: of the whole job), or the transfers from a stage
    to the next (`back`: to the one before it). `extra`: seconds before the transfer (a gather inside the node). `only`: the
    replicas that take part (None: all)."""

    comm: Comm
    axis: Axis
    size: float
    stage: int | None
    back: bool = False
    extra: float = 0.0
    only: tuple[int, ...] | None = None


def name_of(call: NetworkCall) -> str:
    """Label for people."""
    if call.comm == Comm.SEND_RECV:
        return f"gradients back to stage {call.stage}" if call.back else f"activations on from stage {call.stage}"
    return f"{call.comm.name.lower()} over {call.axis.name.lower()} of stage {call.stage}"


@dataclass
class NetworkCalls:
    """Collects the calls of a program while it is being built; `keys` map the engine's transfers to calls."""

    book: CallBook
    calls: dict[NetworkCall, int] = field(default_factory=dict)
    keys: list[Int64s] = field(default_factory=list)
    plans: list[Int64s] = field(default_factory=list)
    fresh: int = ENGINE_CALLS

    def crosses(self, axis: Axis) -> bool:
        """Whether groups of `axis` leave a scale-up domain."""
        return axis != Axis.WORLD and self.book.group(axis).nodes > 1

    def key(self, call: NetworkCall) -> int:
        """A new key for one more run of `call`."""
        self.fresh += 1
        self.bind(np.array([self.fresh]), call)
        return self.fresh

    def bind(self, keys: Int64s, call: NetworkCall) -> None:
        """Transfers with these keys are runs of `call`."""
        plan = self.calls.setdefault(call, len(self.calls))
        self.keys.append(keys)
        self.plans.append(np.full(len(keys), plan, np.int64))

    def table(self) -> tuple[Int64s, Int64s]:
        """(key, number of its call) of every transfer."""
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *self.keys]), np.concatenate([none, *self.plans])
