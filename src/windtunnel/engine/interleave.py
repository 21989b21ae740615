"""Two sequences of operators as one: the typed interface of cpp/exec/interleave.h."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats, Int32s
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core


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
