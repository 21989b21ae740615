"""Errors of an engine's curves on rows of any GPU: how well they carry to one that no fit saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.calibrate.engines.columns import EngineRows, cache_rows, expert_rows, linear_rows, prefill_rows
from windtunnel.calibrate.engines.fit import LEAST, host_bound, predict_decode, predict_experts, predict_linear, predict_prefill
from windtunnel.compute.device import Device
from windtunnel.compute.engines.curves import EngineCurves
from windtunnel.records import Dataset

Scored = tuple[str, Floats, Floats]
"""What, errors ln(predicted / measured), tokens of a call."""

Read = Callable[[Dataset], EngineRows | None]
Predict = Callable[[EngineRows], Floats]


def score_curves(curves: EngineCurves, dev: Device, data: list[Dataset]) -> Iterator[Scored]:
    """Errors of every class that `data` measured, over all of its rows of the usual kernel."""
    cases: list[tuple[str, Read, Predict]] = []
    for form, linear in curves.linear.items():
        cases.append((f"linear {form}", partial(linear_rows, form=form), partial(predict_linear, dev, form, linear)))
    for latent, caches in ((False, curves.decode), (True, curves.latent_decode)):
        for form, decode in caches.items():
            read = partial(cache_rows, form=form, latent=latent)
            cases.append((f"{'latent ' * latent}decode {form}", read, partial(predict_decode, dev, form, decode)))
    for kind, prompts in (("prefill", curves.prefill), ("windowed", curves.windowed), ("latent prefill", curves.latent_prefill)):
        for form, prefill in prompts.items():
            cases.append(
                (f"{kind} {form}", partial(prefill_rows, form=form, kind=kind), partial(predict_prefill, dev, form, prefill))
            )
    for form, experts in curves.experts.items():
        cases.append((f"experts {form}", partial(expert_rows, form=form), partial(predict_experts, dev, form, experts)))
    for what, reader, predict in cases:
        yield from _score(what, data, reader, predict)


def _score(what: str, data: list[Dataset], read: Read, predict: Predict) -> Iterator[Scored]:
    found = [rows for one in data if (rows := read(one)) is not None]
    rows = max(found, key=len, default=None)
    if rows is None or len(rows) < LEAST:
        return
    rows = rows if what.startswith("linear") else rows.usual_kernel()
    if host_bound(rows) and what.split(" ")[-2] in ("linear", "decode"):
        return
    yield what, np.asarray(np.log(predict(rows) / rows.seconds), np.float64), rows.tokens
