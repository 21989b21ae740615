"""What the stages of a pipeline do turn by turn, as instances of a program: the typed interface of cpp/exec/turns.h. Two sequences
of operators as one: the typed interface of cpp/exec/interleave.h.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.program import InstanceColumns


class Actions(NamedTuple):
    """n actions in the order of stages. `table` [n, 4]: kind, virtual stage, micro batch, whether the next one is of its turn.

    `stage` [n]; `template` [n]: that of a turn's run, at its first action, or -1. `group` [n]: the recorded pass that the action
    is, or -1; `gather` [n]: where the gathers of such a pass begin among those of `RecordedPasses`.
    """

    table: Int64s
    stage: Int64s
    template: Int64s
    group: Int64s
    gather: Int64s


class Meetings(NamedTuple):
    """Meetings of stages. Keys [stages, virtual stages, 2] are those of micro batch 0, by whether it is a gradient; -1 for none.

    Streams [virtual stages, 2]; `seconds` [2]; `way` [kinds]: 1 for actions that move a gradient, 0 an activation, -1 nothing.
    """

    send_key: Int64s
    receive_key: Int64s
    send_stream: Int64s
    receive_stream: Int64s
    seconds: Floats
    way: Int64s
    cat_wait: int
    cat_transfer: int
    receive_flags: int
    senders_wait: bool


class RecordedPasses(NamedTuple):
    """G passes that are written like each other, of K instances: `start` [G+1], `last` [G] the last run of each.

    `pass_template`, `task` [K]: templates and labels; `of_pass` [K]: 1 if the instance is of the action's micro batch. `wait_start`
    [K+1] and `waits`: instances of the pass; -2 is the first of an action's gathers, -3 the second. `gathers` are instances of the
    action's stage, of which it has `before` [stages] so far.
    """

    start: Int64s
    pass_template: Int64s
    task: Int64s
    of_pass: Int64s
    wait_start: Int64s
    waits: Int64s
    last: Int64s
    gathers: Int64s
    before: Int64s


class Tasks(NamedTuple):
    """Labels: `of_kind` [kinds], of a `pair`, of what is sent and received."""

    of_kind: Int64s
    pair: int
    send: int
    receive: int


class Turns(NamedTuple):
    """I instances as columns, numbered from 0, and their `labels` [I, 3]: task, micro batch, virtual stage.

    Of T turns, `start` [T+1] the first instance, `done` [T] the last run, `moved` [T, 2] receives and sends; `base` [n]: the first
    instance of each action's run.
    """

    columns: InstanceColumns
    labels: Int32s
    start: Int64s
    done: Int64s
    moved: Int64s
    base: Int64s


def write_turns(actions: Actions, meetings: Meetings, recorded: RecordedPasses, tasks: Tasks, host: float) -> Turns:
    """The turns of `actions`: each receives, runs and sends. `host`: seconds to launch a meeting.

    The first run of a turn waits for its receives, then for the sends of the stage's turn before; sends wait for the last run. A
    turn that is neither a run nor recorded leaves one row. Raises EngineError for columns that do not fit.
    """
    flat = {name: column.reshape(-1) if hasattr(column, "reshape") else column for of in (actions, meetings, recorded, tasks)
            for name, column in of._asdict().items()}  # fmt: skip
    try:
        raw = _core.write_turns(**flat)
    except _core.CoreError as error:
        raise EngineError(str(error)) from None
    columns = InstanceColumns(
        raw["rows"], raw["waits"], raw["waits_start"], raw["meetings"], raw["keys"], raw["seconds"], raw["meets_start"], host
    )
    return Turns(columns, raw["labels"], raw["start"], raw["done"], raw["moved"], raw["base"])


class OperatorSequence(NamedTuple):
    """n operators in order: `stream` [n] 0..63, `seconds` [n], and `waits` [n, 2] for earlier ones, -1 none."""

    stream: Int32s
    seconds: Floats
    waits: Int32s

    def columns(self) -> tuple[Int32s, Floats, Int32s]:
        """What the core takes."""
        return (
            np.ascontiguousarray(self.stream, np.int32),
            np.ascontiguousarray(self.seconds, np.float64),
            np.ascontiguousarray(self.waits, np.int32).reshape(-1),
        )


def interleave(one: OperatorSequence, other: OperatorSequence, last: int) -> tuple[Int32s, Int32s, Int32s]:
    """([n] 0 or 1: the sequence, [n] its row, [n, 2] places that it waits for) of each place.

    Of the two next rows, the one that can start earlier goes first; ties: one that is not on stream `last`, then the sequence of
    which a smaller share is done. Raises EngineError for unequal columns and waits for later rows.
    """
    names = ("stream", "seconds", "waits")
    columns = dict(zip(names, one.columns(), strict=True))
    others = {f"other_{name}": column for name, column in zip(names, other.columns(), strict=True)}
    try:
        sequence, row, waits = _core.interleave(**columns, **others, last=last)  # type: ignore[arg-type]
    except _core.CoreError as error:
        raise EngineError(str(error)) from None
    return sequence, row, waits.reshape(-1, 2)
