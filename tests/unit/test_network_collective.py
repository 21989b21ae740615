"""Collectives: measured points, sharing of NICs, spans, and refusals."""

from __future__ import annotations

import math

import pytest
from network_machines import job, machine

from windtunnel.base.errors import SpecError
from windtunnel.network import Group, bus_factor, collective, flat_group, group, sweep
from windtunnel.network.closed.collective import prepare
from windtunnel.network.closed.fitted import NODES, SENDS
from windtunnel.workload.ops import Axis, Comm

GIB = 2.0**30


@pytest.mark.parametrize(
    ("generation", "gpus", "comm", "size", "seconds"),
    [
        ("ampere", 8, Comm.ALL_REDUCE, GIB, 8.2445e-3),  # HGX A100, nccl-tests, one process per GPU
        ("ampere", 8, Comm.ALL_REDUCE, GIB / 16, 615.7e-6),
        ("ampere", 4, Comm.ALL_REDUCE, GIB, 7.2594e-3),  # DGX A100: VIA-Research/vTrain
        ("hopper", 8, Comm.ALL_REDUCE, 8 * GIB, 31.289e-3),  # p5.48xlarge, NVLS
        ("hopper", 8, Comm.ALL_REDUCE, GIB / 64, 123.4e-6),
        ("hopper", 8, Comm.ALL_REDUCE, 1024.0, 15.6e-6),
        ("hopper", 8, Comm.ALL_GATHER, 16 * GIB, 41.595e-3),  # 8 x H200, ring
        ("hopper", 16, Comm.ALL_REDUCE, 8 * GIB, 34.381e-3),  # two XE9680, 8 x 400 Gb/s InfiniBand each, NVLSTree
        ("hopper", 32, Comm.ALL_REDUCE, 8 * GIB, 45.606e-3),  # four of them
        ("blackwell", 8, Comm.ALL_REDUCE, 8 * GIB, 17.92e-3),  # HGX B200, NVLS
        ("blackwell", 8, Comm.ALL_GATHER, GIB / 16, 139.1e-6),
        ("blackwell", 8, Comm.ALL_TO_ALL, GIB, 1.553e-3),
        ("cdna3", 8, Comm.ALL_REDUCE, 8 * GIB, 47.62e-3),  # eight MI300X
        ("cdna3", 8, Comm.ALL_REDUCE, GIB / 64, 149.9e-6),
        ("cdna3", 8, Comm.ALL_REDUCE, 4096.0, 13.7e-6),
        ("cdna4", 8, Comm.ALL_REDUCE, 16 * GIB, 73.9e-3),  # eight MI355X, not in the fit
        ("cdna4", 8, Comm.ALL_TO_ALL, 16 * GIB, 41.6e-3),
        ("cdna4", 16, Comm.ALL_REDUCE, 16 * GIB, 87.0e-3),
    ],
)
def test_measured_points(generation, gpus, comm, size, seconds):
    cluster = machine(generation, max(gpus, 8), gbit=200 if generation in ("volta", "ampere") else 400)
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


@pytest.mark.parametrize("generation", ["volta", "ampere", "hopper", "blackwell", "cdna3", "gaudi"])
@pytest.mark.parametrize("comm", [Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.BROADCAST])
def test_no_call_up_to_a_size_is_faster_than_the_greatest_rate(generation, comm):
    cluster = machine(generation, 256)
    for gpus in (2, 8, 32, 256):
        setup = prepare(cluster, comm, flat_group(cluster, gpus))
        fastest = 0.0
        for size in (2.0 ** (step / 16) for step in range(8 * 16, 34 * 16)):
            fastest = max(fastest, size / setup.seconds(size)[0].seconds)
            assert setup.greatest_rate(size) >= fastest * (1.0 - 1e-12)
        assert setup.greatest_rate(size) <= fastest * 1.05  # and some call reaches it, but for steps between two sizes


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
    pcie = machine("ampere", 8, kind="pcie")
    assert collective(pcie, Comm.ALL_REDUCE, 1e9, shape).provenance == "transferred"
    assert collective(machine("cdna3", 8), Comm.ALL_REDUCE, 1e9, shape).provenance == "modelled"
    unknown = machine("cdna3", 8)
    other = unknown.node.gpu.model_copy(update={"architecture": "something", "vendor": "other"})
    unknown = unknown.model_copy(update={"node": unknown.node.model_copy(update={"gpu": other})})
    assert collective(unknown, Comm.ALL_REDUCE, 1e9, shape).provenance == "assumed"
    roce = machine("ampere", 16, kind="nvswitch", **{})
    roce = roce.model_copy(update={"fabric": roce.fabric.model_copy(update={"kind": "roce"})})
    assert collective(roce, Comm.ALL_REDUCE, 1e9, flat_group(roce, 16)).provenance == "transferred"


def test_bus_factor():
    assert bus_factor(Comm.ALL_REDUCE, 8) == 1.75
    assert bus_factor(Comm.ALL_GATHER, 8) == 0.875
    assert bus_factor(Comm.BROADCAST, 8) == bus_factor(Comm.REDUCE, 8) == 1.0
    assert bus_factor(Comm.GATHER, 8) == bus_factor(Comm.SCATTER, 8) == 0.875


def test_gather_is_bound_by_the_root():
    cluster = machine("hopper", 16, gbit=400)
    inside = collective(cluster, Comm.GATHER, GIB, flat_group(cluster, 8))
    assert inside.seconds == pytest.approx(GIB * 7 / 8 / (450e9 * 0.85), rel=0.01)
    # Eight of sixteen parts come through the root's one NIC of 50 GB/s.
    outside = collective(cluster, Comm.SCATTER, GIB, flat_group(cluster, 16))
    assert outside.seconds == pytest.approx(GIB / 2 / (50e9 * 0.95 * 0.97), rel=0.01)


def test_reduce_is_a_broadcast_backwards():
    cluster = machine("hopper", 16, gbit=400)
    shape = flat_group(cluster, 16)
    for size in (1024.0, 2.0**20, GIB):
        assert collective(cluster, Comm.REDUCE, size, shape).seconds == collective(cluster, Comm.BROADCAST, size, shape).seconds


def test_a_ring_of_sends_leaves_a_node_through_one_nic():
    cluster = machine("hopper", 16, gbit=400)
    ring, pair = flat_group(cluster, 16), Group(2, 1, 2, sharing=8, span="leaf")
    found = [collective(cluster, Comm.SEND_RECV, GIB, shape).seconds for shape in (ring, pair)]
    assert found[0] == pytest.approx(found[1]) == pytest.approx(GIB / (50e9 * 0.95 * 0.97), rel=0.01)


def test_a_message_inside_one_blackwell_node_has_few_channels():
    cluster = machine("blackwell", 8)

    def time(mib):
        return collective(cluster, Comm.SEND_RECV, mib * 2.0**20, flat_group(cluster, 8)).seconds

    # Four channels of 20.45 GB/s up to 64 MiB, then as many as keep a part at 16 MiB: the same time up to 512 MiB.
    start = NODES["blackwell"].p2p_launch + SENDS.simple + SENDS.peer
    assert time(64) == pytest.approx(start + 64 * 2**20 / 81.8e9)
    assert time(256) == pytest.approx(time(64))
    assert time(2048) == pytest.approx(start + 2**31 / min(900e9 * 0.724, 32 * 20.45e9))
    rack = machine("blackwell", 72, domain=72, node_gpus=4)
    assert collective(rack, Comm.SEND_RECV, 2.0**26, flat_group(rack, 8)).seconds < 0.2 * time(64)


def test_a_ring_that_leaves_a_full_mesh_has_all_its_links():
    one, two = machine("cdna3", 8), machine("cdna3", 16, gbit=1600)
    inside = collective(one, Comm.ALL_GATHER, 16 * GIB, flat_group(one, 8))
    between = collective(two, Comm.ALL_GATHER, 16 * GIB, flat_group(two, 16))
    # 7 and 8 parts of 64 GB/s, of which RCCL reaches 0.715.
    assert inside.bus_bandwidth == pytest.approx(7 * 64e9 * 0.715, rel=0.01)
    assert between.bus_bandwidth == pytest.approx(8 * 64e9 * 0.715, rel=0.01)


def test_a_channel_of_rccl_is_as_fast_between_two_gpus_as_among_eight():
    cluster = machine("cdna3", 8)
    few = {"NCCL_MAX_NCHANNELS": "4"}
    two, eight = (collective(cluster, Comm.ALL_TO_ALL, GIB, flat_group(cluster, n), settings=few) for n in (2, 8))
    # Four of 64 channels, of the seven links of 64 GB/s that a GPU has; a link of a pair would carry more.
    assert two.bus_bandwidth == pytest.approx(4 / 64 * 7 * 64e9, rel=0.02)
    assert eight.bus_bandwidth == pytest.approx(two.bus_bandwidth, rel=0.02)


def test_other_libraries_take_the_fastest_protocol():
    cluster = machine("cdna3", 8)
    shape = flat_group(cluster, 8)
    taken = [collective(cluster, Comm.ALL_REDUCE, size, shape) for size in (1024.0, 2.0**22, GIB)]
    assert [t.protocol for t in taken] == ["LL", "LL128", "Simple"]
    forced = collective(cluster, Comm.ALL_REDUCE, GIB, shape, settings={"NCCL_PROTO": "LL"})
    assert forced.protocol == "LL" and forced.seconds > taken[2].seconds


def test_beyond_eight_ranks_a_switch_reduction_gains_nothing():
    rack = machine("blackwell", 72, domain=72, node_gpus=4)
    few, many = (collective(rack, Comm.ALL_REDUCE, 64 * GIB, flat_group(rack, n)) for n in (8, 72))
    assert many.algorithm == "nvls" and many.seconds == pytest.approx(few.seconds, rel=0.03)


def test_a_switch_that_gathers_carries_each_byte_once_and_one_that_adds_an_eighth_more() -> None:
    """(1 + 1/8) per direction for an all-reduce of 8 GPUs in the switch, 1 for an all-gather: 64 GiB, where nothing else counts."""
    node = machine("hopper", 8)
    added, gathered = (
        collective(node, comm, 64 * GIB, flat_group(node, 8), settings={"NCCL_ALGO": "NVLS"})
        for comm in (Comm.ALL_REDUCE, Comm.ALL_GATHER)
    )
    assert (added.algorithm, gathered.algorithm) == ("nvls", "nvls")
    assert added.seconds / gathered.seconds == pytest.approx(9 / 8, rel=2e-3)
