"""Collectives: measured points, sharing of NICs, spans, and refusals."""

from __future__ import annotations

import math

import pytest
from network_machines import job, machine

from windtunnel.base.errors import SpecError
from windtunnel.network import Group, bus_factor, collective, flat_group, group, sweep
from windtunnel.workload.ops import Axis, Comm

GIB = 2.0**30


@pytest.mark.parametrize(("generation", "gpus", "comm", "size", "seconds"), [
    ("ampere", 8, Comm.ALL_REDUCE, GIB, 8.2445e-3),  # HGX A100, nccl-tests, one process per GPU
    ("ampere", 8, Comm.ALL_REDUCE, GIB / 16, 615.7e-6),
    ("ampere", 4, Comm.ALL_REDUCE, GIB, 7.2594e-3),  # DGX A100: VIA-Research/vTrain
    ("hopper", 8, Comm.ALL_REDUCE, 8 * GIB, 31.289e-3),  # p5.48xlarge, NVLS
    ("hopper", 8, Comm.ALL_REDUCE, GIB / 64, 123.4e-6),
    ("hopper", 8, Comm.ALL_REDUCE, 1024.0, 15.6e-6),
    ("hopper", 8, Comm.ALL_GATHER, 16 * GIB, 41.595e-3),  # 8 x H200, ring
    ("hopper", 16, Comm.ALL_REDUCE, 8 * GIB, 34.381e-3),  # two XE9680, 8 x 400 Gb/s InfiniBand each, NVLSTree
    ("hopper", 32, Comm.ALL_REDUCE, 8 * GIB, 45.606e-3),  # four of them
])
def test_measured_points(generation, gpus, comm, size, seconds):
    cluster = machine(generation, max(gpus, 8), gbit=400 if generation == "hopper" else 200)
    found = collective(cluster, comm, size, flat_group(cluster, gpus))
    assert found.seconds == pytest.approx(seconds, rel=0.15)
    assert found.provenance == "modelled"


def test_a_group_of_one_is_free():
    found = collective(machine(), Comm.ALL_REDUCE, 1e9, Group(1, 1, 1))
    assert (found.seconds, found.algorithm) == (0.0, "none")


def test_data_parallel_groups_share_the_nics():
    cluster = machine("ampere", 512)
    narrow = collective(cluster, Comm.ALL_REDUCE, GIB, group(job(cluster, tp=8), Axis.DP))
    wide = collective(cluster, Comm.ALL_REDUCE, GIB, group(job(cluster), Axis.DP))
    # tp = 8: each of eight groups has one NIC of 25 GB/s; tp = 1: one ring with all eight.
    assert 19e9 < narrow.bus_bandwidth < 25e9
    assert 120e9 < wide.bus_bandwidth < 200e9


def test_fewer_nics_than_gpus_are_shared():
    shape = Group(8, 1, 8, sharing=8, span="leaf")
    eight = collective(machine("ampere", 64, nics=8), Comm.ALL_GATHER, GIB, shape)
    four = collective(machine("ampere", 64, nics=4), Comm.ALL_GATHER, GIB, shape)
    assert four.seconds / eight.seconds == pytest.approx(2.0, rel=0.1)


def test_point_to_point():
    cluster = machine("ampere", 16)
    inside = collective(cluster, Comm.SEND_RECV, GIB, Group(2, 2, 1))
    outside = collective(cluster, Comm.SEND_RECV, GIB, Group(2, 1, 2, sharing=8, span="leaf"))
    assert inside.bus_bandwidth == pytest.approx(0.9 * 300e9, rel=0.02)
    assert outside.bus_bandwidth == pytest.approx(25e9 * 0.95 * 0.97, rel=0.02)


def test_oversubscription_and_collisions_act_only_beyond_the_leaf():
    near, far = Group(2, 1, 2, 8, 8, "leaf", 2.0), Group(2, 1, 2, 8, 8, "pod", 1.0)
    plain, thin = machine("ampere", 1024), machine("ampere", 1024, oversubscription=4.0, ecmp_efficiency=0.8)
    def time(cluster, shape):
        return collective(cluster, Comm.SEND_RECV, GIB, shape).seconds

    assert time(plain, near) == time(thin, near)
    assert time(thin, far) == pytest.approx(5.0 * time(plain, far), rel=0.01)


def test_all_to_all_crosses_the_nic_with_what_is_not_local():
    cluster = machine("hopper", 16, gbit=400)
    found = collective(cluster, Comm.ALL_TO_ALL, GIB, flat_group(cluster, 16))
    bound = GIB * 8 / 16 / 50e9
    assert bound < found.seconds < 1.3 * bound


def test_sweep_is_the_table_of_nccl_tests():
    cluster = machine("hopper", 16, gbit=400)
    rows = sweep(cluster, Comm.ALL_REDUCE, 16, [2.0**k for k in range(3, 31)])
    assert len(rows) == 28
    last = rows[-1]
    assert last["busbw_GBs"] == pytest.approx(float(last["algbw_GBs"]) * 2 * 15 / 16)
    assert set(last) >= {"size", "time_us", "algbw_GBs", "busbw_GBs", "algorithm", "protocol", "channels"}
    with pytest.raises(SpecError):
        sweep(cluster, Comm.ALL_REDUCE, 32, [1.0])


def test_refusals():
    cluster = machine("ampere", 16)
    for size in (-1.0, math.inf, math.nan):
        with pytest.raises(SpecError):
            collective(cluster, Comm.ALL_REDUCE, size, flat_group(cluster, 8))
    alone = machine("ampere", 16, nics=0)
    with pytest.raises(SpecError, match="NIC"):
        collective(alone, Comm.ALL_REDUCE, 1e6, flat_group(alone, 16))


def test_what_was_not_measured_says_so():
    shape = Group(8, 8, 1)
    assert collective(machine("blackwell", 8), Comm.ALL_REDUCE, 1e9, shape).provenance == "transferred"
    roce = machine("ampere", 16, kind="nvswitch", **{})
    roce = roce.model_copy(update={"fabric": roce.fabric.model_copy(update={"kind": "roce"})})
    assert collective(roce, Comm.ALL_REDUCE, 1e9, flat_group(roce, 16)).provenance == "transferred"


def test_bus_factor():
    assert bus_factor(Comm.ALL_REDUCE, 8) == 1.75
    assert bus_factor(Comm.ALL_GATHER, 8) == 0.875
    assert bus_factor(Comm.BROADCAST, 8) == 1.0
