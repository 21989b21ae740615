"""Seconds of an engine's attention over prompts.

    blocks  = batch ceil(m / rows)                even = blocks / SMs
    waves   = max(alone longest, even + wave longest)
    core    = latency + work / (fraction peak) * waves / even * (1 + setup / keys) * (1 + head / k) * pad * wide * own
    seconds = (core^2 + (bytes / (READ B))^2)^(1/2)

`longest`: the longest block's work over the mean, 2 under a causal mask; blocks start longest first. `keys`: the mean number of
keys of a query. `head / k`: an exponential for each score, of which an SM makes 16 a clock, beside 4 k FLOP; it does not hide
behind the products. `wide`: 1 + wide for each 128 elements of a head beyond the first. `own`: 1 + own groups, key-value heads of
a query head: what many query heads read comes from the L2. `pad`: the kernel's head size over the head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.compute.device import Device
from windtunnel.compute.engines.curves import PrefillCurve
from windtunnel.compute.engines.seconds import code_of

READ = 0.8
"""Share of memory bandwidth at which prompts' queries, keys, values and results move; assumed."""

HEAD = 128.0
"""Elements of a head up to which kernels are tuned."""


@dataclass(frozen=True)
class Prompts:
    """Columns over calls: batch = sequences x query heads, m queries, n keys, k head size (the mean of a key's and a value's),
    FLOP, bytes, window (0: none), and key-value heads of a query head (1: its own)."""

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    work: Floats
    moved: Floats
    window: Floats
    own: Floats


def prefill_seconds(curve: PrefillCurve, dev: Device, form: str, of: Prompts) -> Floats:
    """[calls] seconds. A block of queries under a window reads whole blocks of keys: those of its window and its own."""
    rows, k = float(curve.rows), np.maximum(of.k, 1.0)
    within = (of.window > 0.0) & (of.window < of.n)
    keys = np.where(within, np.minimum(of.window + rows, of.n), of.n)
    whole = np.maximum(of.work, 4.0 * of.batch * of.m * k * np.minimum(keys, (of.n + 1.0) / 2.0))
    work = np.where(within, whole, of.work)
    share = np.clip(work / np.maximum(4.0 * of.batch * of.m * keys * k, 1.0), 1e-6, 1.0)
    blocks = np.maximum(of.batch * np.ceil(of.m / rows), 1e-9)
    even, longest = blocks / dev.sms, np.minimum(1.0 / share, 2.0)
    waves = np.maximum(curve.alone * longest, even + curve.wave * longest)
    step = np.where(k <= HEAD, 32.0, 64.0)
    pad = np.ceil(k / step) * step / k * np.ceil(of.m / rows) * rows / np.maximum(of.m, 1.0)
    heads = (1.0 + curve.head / k) * (1.0 + curve.wide * np.maximum(k / HEAD - 1.0, 0.0)) * (1.0 + curve.own * of.own)
    slow = pad * waves / even * (1.0 + curve.setup / np.maximum(keys * share, 1.0)) * heads
    peak = dev.peak[code_of(form)]
    core = np.maximum(curve.latency + work / (peak * curve.fraction) * slow, work / peak)
    return np.asarray(np.hypot(core, of.moved / (READ * dev.bandwidth)), np.float64)
