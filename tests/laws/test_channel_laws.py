"""Fewer channels are never faster: NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS take bandwidth away and give none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.fidelity import FLOW, PACKET
from windtunnel.network import collective, flat_group, sweep
from windtunnel.network.api import sweep as any_sweep
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.workload.ops import Comm

COUNTS = (64, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
OPS = tuple(comm for comm in Comm if comm is not Comm.NONE)
SIZES = (1.0, 2.0**12, 2.0**20, 3e7, 2.0**28, 2.0**33)
GROUPS = (2, 4, 8, 16, 32, 128)
LIMITS = [parse_settings({"NCCL_MAX_NCHANNELS": count}) for count in COUNTS]
BLOCKS = [parse_settings({"NCCL_MAX_CTAS": count}) for count in COUNTS]


@pytest.mark.parametrize("name", wt.names("clusters"))
@examples(30)
@given(st.sampled_from(GROUPS), st.sampled_from(OPS), st.sampled_from(SIZES))
def test_fewer_channels_are_never_faster(name: str, gpus: int, comm: Comm, size: float) -> None:
    """NCCL_MAX_CTAS limits NVLS too, which GPUs before Hopper do not have: there it is NCCL_MAX_NCHANNELS by another name."""
    cluster = wt.load_cluster(name)
    group = flat_group(cluster, min(gpus, cluster.gpus))
    free = collective(cluster, comm, size, group).seconds
    times = [collective(cluster, comm, size, group, settings=some).seconds for some in LIMITS]
    blocks = [collective(cluster, comm, size, group, settings=some).seconds for some in BLOCKS]
    if cluster.gpu.architecture not in ("hopper", "blackwell"):
        assert blocks == times
    for took in (times, blocks):
        assert all(b >= a * (1 - 1e-9) for a, b in pairwise(took)), took
        assert took[0] == pytest.approx(free, rel=1e-9)


@pytest.mark.parametrize("algorithm", ["Ring", "Tree", "NVLS,NVLSTree"])
@pytest.mark.parametrize("gpus", [8, 16, 64])
def test_so_it_is_with_each_algorithm(algorithm: str, gpus: int) -> None:
    cluster = wt.load_cluster("h100-ib")
    for size in SIZES:
        times = []
        for count in COUNTS:
            settings = {"NCCL_ALGO": algorithm, "NCCL_MAX_NCHANNELS": count}
            times.append(collective(cluster, Comm.ALL_REDUCE, size, flat_group(cluster, gpus), settings=settings).seconds)
        assert all(b >= a * (1 - 1e-9) for a, b in pairwise(times)), (size, times)


def test_channels_have_the_rate_of_one_each() -> None:
    """A channel of a Hopper copies 17.8 GB/s, as all-to-alls of two GPUs show, which have sixteen for one peer."""
    cluster = wt.load_cluster("h100-ib")
    for count in (1, 4, 16):
        row = sweep(cluster, Comm.ALL_GATHER, 8, [2.0**33], settings={"NCCL_ALGO": "Ring", "NCCL_MAX_NCHANNELS": count})[0]
        assert float(str(row["busbw_GBs"])) == pytest.approx(17.8 * count, rel=0.02)


@pytest.mark.parametrize("network", [FLOW, PACKET])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "send_recv", "all_to_all"])
def test_engines_agree_that_fewer_are_not_faster(network: str, op: str) -> None:
    cluster = wt.load_cluster("h100-ib")
    times = []
    for count in (16, 4, 1):
        settings = {"NCCL_ALGO": "Ring", "NCCL_MAX_NCHANNELS": count}
        row = any_sweep(cluster, op, 16, [2.0**24], network=network, settings=settings)[0]
        times.append(float(str(row["time_us"])))
    assert all(b >= a * 0.995 for a, b in pairwise(times)), times


def test_a_step_with_one_channel_is_slower() -> None:
    one = wt.predict(wt.load("llama2-70b-64xh100", ["runtime.nccl.NCCL_MAX_NCHANNELS=1"]))
    assert one.step_time_s > 2 * wt.predict(wt.load("llama2-70b-64xh100")).step_time_s
