"""Rows of collective calls: names as people write them, domains, machines of other makers."""

from __future__ import annotations

import pytest

from windtunnel.network import flat_group
from windtunnel.network.groups.bandwidth import group_links
from windtunnel.reality.rows.table import parse
from windtunnel.reality.score.collectives import ScoredCall, call_of
from windtunnel.workload.ops import Comm

HEADER = "id,family,gpu,gpus_per_node,nodes,gpus,fabric,collective,bytes,time_us,nics_per_node,nic_gbit_s,scaleup_gpus"


def _call(line: str):
    return call_of(parse(f"{HEADER}\n{line}\n").collective[0])


@pytest.mark.parametrize(
    ("written", "comm"),
    [
        ("all_reduce", Comm.ALL_REDUCE),
        ("alltoall_perf", Comm.ALL_TO_ALL),
        ("all-gather", Comm.ALL_GATHER),
        ("SendRecv", Comm.SEND_RECV),
        ("reduce", Comm.REDUCE),
        ("gather", Comm.GATHER),
        ("scatter_perf", Comm.SCATTER),
        ("reduce_scatter", Comm.REDUCE_SCATTER),
    ],
)
def test_names_of_the_tests(written, comm):
    found = _call(f"X,F,h100-sxm-80gb,8,1,8,,{written},1048576,30,,,")
    assert isinstance(found, ScoredCall) and found.comm == comm


def test_what_has_no_name_is_skipped_with_a_reason():
    assert "hypercube" in _call("X,F,h100-sxm-80gb,8,1,8,,hypercube,1048576,30,,,").reason
    assert "h100" in _call("X,F,h100,8,1,8,,all_reduce,1048576,30,,,").reason


@pytest.mark.parametrize(
    ("line", "per_domain"),
    [
        ("X,F,gb200-nvl72,4,18,72,ib,all_reduce,1048576,30,4,400,72", 72),  # one rack
        ("X,F,gb200-nvl72,4,36,144,ib,all_reduce,1048576,30,4,400,72", 72),  # two
        ("X,F,gb200-nvl72,4,2,8,ib,all_reduce,1048576,30,4,400,72", 8),  # two trays of a rack
        ("X,F,gb200-nvl72,4,2,8,ib,all_reduce,1048576,30,4,400,4", 4),  # of different racks
        ("X,F,h100-sxm-80gb,8,2,8,ib,all_reduce,1048576,30,8,400,8", 4),  # half of each node
    ],
)
def test_ranks_in_a_domain(line, per_domain):
    found = _call(line)
    assert isinstance(found, ScoredCall) and found.per_domain == per_domain


def test_a_mesh_keeps_its_links_whatever_the_row_uses_of_it():
    part, whole = _call("X,F,MI300X,4,1,4,xgmi,all_reduce,1048576,30,,,"), _call("X,F,mi300x,8,1,4,,all_reduce,1048576,30,,,")
    one, two = (group_links(c.cluster, flat_group(c.cluster, 4)) for c in (part, whole))
    assert one.pair == two.pair == 64e9 and one.intra == two.intra == 3 * 64e9
