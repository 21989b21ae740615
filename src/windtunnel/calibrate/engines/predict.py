"""What the curves of `compute.engines` give for measured rows."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dtypes import FORMATS
from windtunnel.calibrate.engines.columns import EngineRows, caches_of, prompts_of, routed_of
from windtunnel.compute.device import Device
from windtunnel.compute.engines.curves import DecodeCurve, ExpertsCurve, LinearCurve, PrefillCurve
from windtunnel.compute.engines.seconds import (
    decode_seconds,
    experts_seconds,
    prefill_seconds,
    product_seconds,
    quantise_seconds,
)


def predict_linear(dev: Device, form: str, curve: LinearCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of linear layers: quantising and product."""
    m, n, k = (rows.what[name] for name in "mnk")
    product = product_seconds(curve, dev, form, m, n, k)
    return np.asarray(product + quantise_seconds(curve, dev, form, m, k), np.float64)


def predict_decode(dev: Device, form: str, curve: DecodeCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of attention over caches that are replayed, so that small ones stay in the L2."""
    return decode_seconds(curve, dev, FORMATS[form].width, caches_of(rows), cold=False)


def predict_prefill(dev: Device, form: str, curve: PrefillCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of attention over prompts."""
    return prefill_seconds(curve, dev, form, prompts_of(rows))


def predict_experts(dev: Device, form: str, curve: ExpertsCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of fused experts."""
    return experts_seconds(curve, dev, form, routed_of(rows))
