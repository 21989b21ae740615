"""Messages from their parts: channels by NCCL's rules, a rate for each, the links; and what that gives for measured all-to-alls."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

import pytest

from windtunnel.network import collective, flat_group
from windtunnel.network.closed.collective import prepare
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.reality.rows.measurements import FOLDER
from windtunnel.reality.rows.table import read
from windtunnel.reality.score.collectives import score_collective
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

MIB = 2.0**20


def sends(name, gpus, comm=Comm.ALL_TO_ALL, **variables):
    cluster = load_cluster(name)
    return prepare(cluster, comm, flat_group(cluster, gpus), parse_settings(variables)).graph.sends


@pytest.mark.parametrize(("gpus", "start"), [(2, 16), (4, 8), (8, 4)])
def test_a_message_starts_with_as_many_channels_as_leave_one_for_each_rank(gpus, start):
    for name in ("a100-ib", "h100-ib", "b200-ib"):
        channels = sends(name, gpus)
        assert (channels.total, channels.most, channels.start) == (32, 32, start)


def test_parts_of_a_message_are_between_64_kib_and_16_mib():
    channels = sends("h100-ib", 8)
    assert [channels.of(size) for size in (1.0, 64 * 1024, 256 * 1024, 64 * MIB)] == [1.0, 1.0, 4.0, 4.0]
    assert [channels.of(size) for size in (128 * MIB, 512 * MIB, 2048 * MIB)] == [8.0, 32.0, 32.0]
    assert channels.count_busy(MIB, 7) == 28 and channels.count_busy(2048 * MIB, 7) == 32


def test_variables_of_nccl_move_the_channels_of_messages():
    assert sends("h100-ib", 8, NCCL_MAX_NCHANNELS=8).total == 8
    assert sends("h100-ib", 8, NCCL_MIN_NCHANNELS=64).total == 64
    assert sends("h100-ib", 64).most == 2  # a NIC of 400 Gb/s asks for four, and 64 ranks leave two
    assert sends("h100-ib", 64, NCCL_NCHANNELS_PER_NET_PEER=8).most == 8
    assert sends("h100-ib", 8, NCCL_BUFFSIZE=2**20).step == 2**17


def test_eight_channels_move_what_eight_channels_can():
    """On eight H100 a channel copies 17.8 GB/s each way, so eight are slower than NVLink."""
    cluster = load_cluster("h100-ib")
    group, size = flat_group(cluster, 8), 4096 * MIB
    rates = [
        collective(cluster, Comm.ALL_TO_ALL, size, group, settings={"NCCL_MAX_NCHANNELS": n}).bus_bandwidth for n in (32, 8, 1)
    ]
    assert rates[0] == pytest.approx(450e9 * 0.682, rel=0.02)
    assert rates[1:] == pytest.approx([8 * 17.8e9, 17.8e9], rel=0.02)


FAMILIES = {"NCCL-A100": 10, "NCCL-H100": 10, "NCCL-H100-old": 10, "NCCL-B200": 10, "NCCL-B300": 10, "NCCL-GB200": 10}


def test_an_all_to_all_inside_a_node_is_within_ten_percent_of_measured_ones():
    """From 1 MiB on, by family and number of GPUs; NCCL-H100-old, NCCL-B300 and NCCL-GB200 took part in no fit."""
    errors = defaultdict(list)
    for row in read(FOLDER / "collectives_exchange.csv").collective:
        score = score_collective(row)
        assert score.skipped is None, score
        if row.bytes >= MIB:
            errors[row.family, row.gpus].append(abs(score.predicted / score.measured - 1.0))
    assert {family for family, _ in errors} == set(FAMILIES)
    for (family, gpus), found in errors.items():
        assert 100 * median(found) < FAMILIES[family], (family, gpus)
