"""Records what a pass appends to a stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from windtunnel.engine import GrowingTable, RankBuilder
from windtunnel.predict.program.recorded import RecordedPass
from windtunnel.predict.program.stage import Stage


def record(stage: Stage, micro_batch: int, run: Callable[[], tuple[int, Sequence[int]]]) -> RecordedPass:
    """What `run` appends to the stage: a pass of this micro batch among equal ranks. It returns the pass's last run and the calls
    that the update waits for. The stage stays as it was."""
    kept = stage.rank, stage.labels, stage.calls, stage.collectives
    stage.rank, stage.labels, stage.calls, stage.collectives = RankBuilder(), GrowingTable(3), Counter(), []
    try:
        last, pending = run()
        rows, labels, flat = stage.rank.rows.table(), stage.labels.table(), stage.rank.waits.table()[:, 0]
        calls = tuple(stage.collectives)
    finally:
        stage.rank, stage.labels, stage.calls, stage.collectives = kept
    number = rows[:, 3]
    waits = np.full((len(rows), int(number.max(initial=0))), -1, np.int64)
    row = np.repeat(np.arange(len(rows)), number)
    waits[row, np.arange(len(flat)) - np.repeat(np.cumsum(number) - number, number)] = flat
    return RecordedPass(rows[:, 0].copy(), waits, labels, labels[:, 1] == micro_batch, calls, last, tuple(pending))
