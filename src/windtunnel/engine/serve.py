"""The door of served requests (cpp/serve/run.h): loads through lanes, by the scheduler rules of an inference engine.

`windtunnel.serving.simulate` does the same in Python, for what the core cannot do; laws hold both equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core

PassCosts = _core.ServePasses
"""What forward passes of a server cost, in the core."""

PromptPrice = Callable[[int, int, int, float], float]
"""(kind of layers, prompt tokens, chunks, pairs) -> seconds of attention for a pair, or of a recurrence for a token."""

Points = tuple[Floats, Floats] | None
"""Places and values of a curve; None where nothing reads it."""


def passes(
    curves: Mapping[str, Points],
    kinds: Sequence[Mapping[str, float]],
    host: Mapping[str, Any],
    drafts: int = 0,
    draft_layer: Mapping[str, float] | None = None,
    small_model: PassCosts | None = None,
) -> PassCosts:
    """What forward passes of a server cost; names as in cpp/serve/passes.h, in seconds, bytes and tokens. EngineError for curves
    without points."""
    try:
        return _core.serve_passes(
            curves=dict(curves),
            kinds=[dict(kind) for kind in kinds],
            host=dict(host),
            drafts=drafts,
            draft_layer=None if draft_layer is None else dict(draft_layer),
            small_model=small_model,
        )
    except _core.CoreError as error:
        raise EngineError(f"serving: {error}") from None


def run(
    costs: PassCosts, price: PromptPrice, setting: Mapping[str, Any], loads: Sequence[Mapping[str, Any]], counts: Sequence[int]
) -> list[dict[str, Any]]:
    """What happens on each lane, of which `counts` ranks do the same; names as in cpp/serve/run.h. EngineError for columns that do
    not fit together."""
    try:
        return _core.serve_run(
            passes=costs,
            price=price,
            setting=dict(setting),
            loads=[dict(load) for load in loads],
            counts=np.array(counts, np.int64),
        )
    except _core.CoreError as error:
        raise EngineError(f"serving: {error}") from None
