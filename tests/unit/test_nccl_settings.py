"""Are NCCL's variables honoured as the table says, and what is unknown refused?"""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network import collective, flat_group
from windtunnel.network.lanes.build import lanes_of
from windtunnel.network.lanes.timing import seconds, split
from windtunnel.network.nccl.settings import DEFAULT, as_set, list_variables, parse_settings
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

KNOWN, IGNORED = list_variables()["known"], list_variables()["ignored"]

CLUSTER = load_cluster("h100-ib")
RANKS = np.arange(32, dtype=np.int32)


@pytest.mark.parametrize(("name", "value", "wanted"), [
    ("NCCL_P2P_PXN_LEVEL", "0", {"p2p_pxn": False}),
    ("NCCL_PXN_DISABLE", 1, {"pxn": False}),
    ("NCCL_CROSS_NIC", "0", {"cross_nic": 0}),
    ("NCCL_IB_QPS_PER_CONNECTION", "4", {"qps": 4}),
    ("NCCL_P2P_LEVEL", "LOC", {"peer_access": False}),
    ("NCCL_P2P_LEVEL", "NVL", {"peer_access": True}),
    ("NCCL_IB_TIMEOUT", 22, {"ib_timeout": 22}),
    ("NCCL_IB_RETRY_CNT", "0", {"ib_retries": 0}),
    ("NCCL_NTHREADS", "256", {"threads": 256}),
    ("NCCL_MIN_CTAS", "8", {"min_channels": 8}),
])  # fmt: skip
def test_a_variable_sets_what_it_names(name: str, value: str | int, wanted: dict[str, object]) -> None:
    settings = parse_settings({name: value})
    assert {field: getattr(settings, field) for field in wanted} == wanted


def test_what_prints_is_ignored_and_what_is_unknown_refused() -> None:
    assert parse_settings(dict.fromkeys(IGNORED, "x")) == DEFAULT
    assert not set(KNOWN) & set(IGNORED)
    with pytest.raises(UnknownName, match="NCCL_ALGO"):
        parse_settings({"NCCL_ALGOS": "Ring"}, "runtime.nccl")
    for wrong in (
        {"NCCL_NTHREADS": "many"},
        {"NCCL_CROSS_NIC": 3},
        {"NCCL_BUFFSIZE": "-1"},
        {"NCCL_P2P_LEVEL": "FAR"},
        {"NCCL_MIN_NCHANNELS": 8, "NCCL_MAX_NCHANNELS": 4},
        {"NCCL_IB_TIMEOUT": "²"},
    ):
        with pytest.raises(SpecError):
            parse_settings(wrong)


def test_without_peer_access_a_node_has_pcie_and_no_nvls() -> None:
    settings = parse_settings({"NCCL_P2P_DISABLE": "1"})
    slow = as_set(CLUSTER, settings).node.scale_up
    assert (slow.kind, slow.in_switch_reduction) == ("pcie", False)
    group = flat_group(CLUSTER, 8)
    fast = collective(CLUSTER, Comm.ALL_REDUCE, 2**28, group).seconds
    assert collective(CLUSTER, Comm.ALL_REDUCE, 2**28, group, settings=settings).seconds > 4 * fast
    with pytest.raises(SpecError, match="network only"):
        as_set(CLUSTER, parse_settings({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}))


def test_buffers_cut_slices_and_channels_follow_the_limits() -> None:
    group = flat_group(CLUSTER, 16)

    def lanes(**variables: str) -> tuple[int, int]:
        made = lanes_of(CLUSTER, Comm.ALL_REDUCE, 2.0**30, RANKS[:16], group, algorithm="ring", settings=parse_settings(variables))
        return int(made.lanes.slice.max()), made.call.channels

    chunk, channels = lanes()
    assert (chunk, channels) == (2**21, 16)
    assert lanes(NCCL_BUFFSIZE=str(2**20)) == (2**19, 16)
    assert lanes(NCCL_MAX_NCHANNELS="4") == (2**21, 4)


def test_connections_share_a_lane_and_change_nothing_on_idle_links() -> None:
    made = lanes_of(CLUSTER, Comm.ALL_REDUCE, 1e8, RANKS[:16], flat_group(CLUSTER, 16), algorithm="tree")
    between = made.lanes.src // 8 != made.lanes.dst // 8
    parts, old, part = split(made.lanes, between, 4)
    assert len(parts) == len(made.lanes) + 3 * int(between.sum())
    assert np.bincount(old, weights=parts.bytes).astype(int).tolist() == pytest.approx(made.lanes.bytes.tolist(), abs=400)
    assert set(part.tolist()) == {0, 1, 2, 3}
    assert seconds(parts) == pytest.approx(seconds(made.lanes), rel=1e-6)
