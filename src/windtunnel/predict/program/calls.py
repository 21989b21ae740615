"""Calls of a step that run over a network engine: all but those of the whole job, which move a number or nothing.

Ranks are folded, so a call of a stage represents that of every data-, tensor- and context-parallel rank of the stage. Its traffic
is that of all these groups at once, and it ends when the last of them ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.engine import Program
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.predict.program.keys import ENGINE_CALLS, LIVE_CALLS
from windtunnel.workload import Axis, Comm


class NetworkCall(NamedTuple):
    """One kind of traffic: a collective of all groups of `axis` in `stage` (None: of the whole job), or the transfers from a stage
    to the next (`back`: to the one before it). `extra`: seconds before the transfer. `only`: the replicas that take part (None:
    all). `other`: the groups are the ranks of equal place in `stage` and in this stage. `of`: the job, where there are several."""

    comm: Comm
    axis: Axis
    size: float
    stage: int | None
    back: bool = False
    extra: float = 0.0
    only: tuple[int, ...] | None = None
    other: int | None = None
    of: str = ""


def name_of(call: NetworkCall) -> str:
    """Label for people."""
    if call.of:
        return f"{call.of}: {name_of(call._replace(of=''))}"
    if call.axis is Axis.NONE:
        return f"flow {call.stage}"
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
    times: list[Int64s] = field(default_factory=list)
    numbers: dict[CallKey, int] = field(default_factory=dict)
    follows: dict[int, int] = field(default_factory=dict)
    """Keys of transfers, and the key of the call that is launched behind each."""
    formula: set[str] = field(default_factory=set)
    """Names of what takes the closed form's seconds although it moves bytes over links."""
    fresh: int = ENGINE_CALLS
    live_key: int | None = LIVE_CALLS
    """First key of the calls inside passes; None: those take the seconds of the closed form."""

    def runs(self, axis: Axis) -> bool:
        """Whether calls of `axis` run over the engine."""
        return axis not in (Axis.NONE, Axis.WORLD) and self.book.group(axis).ranks > 1

    def keep_formula(self, call: CallKey) -> None:
        """Notes a call that does not run over the engine."""
        if not self.runs(call.axis) and self.book.group(call.axis).ranks > 1:
            self.formula.add(f"{call.comm.name.lower()} over {call.axis.name.lower()}")

    def number(self, call: CallKey) -> int:
        """The number of a call inside passes, -1 if it does not run over the engine."""
        if self.live_key is None or not self.runs(call.axis):
            return -1
        return self.numbers.setdefault(call, len(self.numbers))

    def bind_inside(self, program: Program, rank: int, stage: int, only: tuple[int, ...] | None) -> None:
        """Registers the calls inside passes that a rank of a finished program runs."""
        if self.live_key is None or not program.live_calls:
            return
        rows = slice(int(program.rank_start[rank]), int(program.rank_start[rank + 1]))
        used = np.unique(program.template[rows])
        times = np.zeros(program.live_calls, np.int64)
        for template in used[used >= 0].tolist():
            live = program.op_live[program.template_start[template] : program.template_start[template + 1]]
            runs = int(program.times[rows][program.template[rows] == template].sum())
            times += runs * np.bincount(live[live >= 0], minlength=len(times))
        calls = list(self.numbers)
        for number in np.flatnonzero(times).tolist():
            comm, axis, size = calls[number]
            key = self.live_key + rank * program.live_calls + number
            self.bind(np.array([key]), NetworkCall(comm, axis, size, stage, only=only), int(times[number]))

    def key(self, call: NetworkCall) -> int:
        """A new key for one more run of `call`."""
        self.fresh += 1
        self.bind(np.array([self.fresh]), call)
        return self.fresh

    def bind(self, keys: Int64s, call: NetworkCall, times: int = 1) -> None:
        """Transfers with these keys are runs of `call`; each key occurs so many `times`."""
        plan = self.calls.setdefault(call, len(self.calls))
        self.keys.append(keys)
        self.plans.append(np.full(len(keys), plan, np.int64))
        self.times.append(np.full(len(keys), times, np.int64))

    def follow(self, keys: Int64s, call: NetworkCall) -> None:
        """Behind each of these transfers, which are its own, the engine runs `call`."""
        self.fresh += 1
        self.bind(np.array([self.fresh]), call, len(keys))
        self.follows |= dict.fromkeys(keys.tolist(), self.fresh)

    def launches(self) -> Int64s:
        """How often each call runs in a step [calls]."""
        none = np.zeros(0, np.int64)
        plans, times = np.concatenate([none, *self.plans]), np.concatenate([none, *self.times])
        return np.bincount(plans, times, len(self.calls)).astype(np.int64)

    def table(self) -> tuple[Int64s, Int64s]:
        """(key, number of its call) of every transfer."""
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *self.keys]), np.concatenate([none, *self.plans])
