"""The share of a GPU's memory that a plan keeps free unless it is told otherwise: what predictions of memory err by."""

from __future__ import annotations

import functools
import math

from windtunnel.spec.loading.catalog import ROOT
from windtunnel.spec.loading.files import read_table


@functools.cache
def usual_margin() -> float:
    """The error of memory, as a share, below which 68 % of the published runs lie that it was compared with
    (`catalog/accuracy.toml`, which `windtunnel validate --record` writes); rounded up to 0.5 %."""
    return math.ceil(2.0 * float(read_table(ROOT / "accuracy.toml")["memory"]["sigma_pct"])) / 200.0


def margin_words() -> str:
    """Where the usual margin is from, for reports."""
    memory = read_table(ROOT / "accuracy.toml")["memory"]
    return f"memory of {memory['rows']} published runs is predicted within {memory['sigma_pct']} % at one sigma"
