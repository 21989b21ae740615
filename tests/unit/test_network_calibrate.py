"""The fit finds constants that made the samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from network_machines import machine

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network import collective, flat_group
from windtunnel.network.calibrate import Sample, accuracy, fit
from windtunnel.network.calibration import NODES
from windtunnel.workload.ops import Comm


def _samples():
    cluster = machine("ampere", 8)
    shape = flat_group(cluster, 8)
    sizes = [2.0**k for k in range(8, 33)]
    return [Sample(cluster, Comm.ALL_REDUCE, s, shape, collective(cluster, Comm.ALL_REDUCE, s, shape).seconds, "made") for s in sizes]


def test_fit_recovers_moved_constants():
    wrong = replace(NODES["ampere"], launch=4e-6, ring=(0.262, 0.598, 0.5))
    nodes, _ = fit(_samples(), ["ampere/launch", "ampere/ring.2"], nodes={**NODES, "ampere": wrong})
    assert nodes["ampere"].launch == pytest.approx(NODES["ampere"].launch, rel=0.1)
    assert nodes["ampere"].ring[2] == pytest.approx(NODES["ampere"].ring[2], rel=0.02)


def test_accuracy_is_zero_on_its_own_predictions_and_sees_a_bias():
    assert all(row.mean_abs_pct < 1e-9 for row in accuracy(_samples()))
    slower = [replace(s, seconds=2 * s.seconds) for s in _samples()]
    assert {round(row.bias_pct) for row in accuracy(slower)} == {-50}


def test_bad_names():
    with pytest.raises(UnknownName):
        fit(_samples(), ["pascal/launch"])
    with pytest.raises(UnknownName):
        fit(_samples(), ["ampere/lunch"])
    with pytest.raises(SpecError):
        fit([], ["ampere/launch"])
