"""Is each algorithm the one that its source describes? Schedules, trees, chunks and bytes by hand."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.engine.lanes import ALL
from windtunnel.network.algorithm import ALGORITHMS
from windtunnel.network.algorithms.hierarchical import orders
from windtunnel.network.algorithms.p2p import p2p_slice, schedule
from windtunnel.network.algorithms.pattern import CollectiveCall
from windtunnel.network.algorithms.tree import binary_tree, depth, double_tree, tree_chunk
from windtunnel.workload.ops import Comm

MIB = 2**20


def test_the_ring_of_a_channel_leaves_each_node_at_its_nic() -> None:
    pattern = ALGORITHMS["ring"].lower(CollectiveCall(Comm.ALL_REDUCE, 8, 4, 8.0 * MIB, channels=2, nics=2))
    # Two NICs for four GPUs: channel 0 leaves at local rank 0, channel 1 at local rank 2.
    assert pattern.src[:8].tolist() == [1, 2, 3, 0, 5, 6, 7, 4]
    assert pattern.src[8:].tolist() == [3, 0, 1, 2, 7, 4, 5, 6]
    assert pattern.dst[:8].tolist() == [2, 3, 0, 5, 6, 7, 4, 1]


def test_a_ring_sends_each_chunk_once_the_one_before_has_come_in() -> None:
    pattern = ALGORITHMS["ring"].lower(CollectiveCall(Comm.ALL_REDUCE, 4, 4, 4.0 * MIB, channels=1))
    assert pattern.bytes.tolist() == [6 * MIB] * 4  # 2 (n - 1) chunks of S / n
    assert pattern.slice.tolist() == [MIB] * 4
    assert pattern.dep_lane.tolist() == [3, 0, 1, 2]
    assert set(pattern.dep_lead.tolist()) == {1}
    assert pattern.window.tolist() == [2] * 4  # eight steps of buffer, four to a chunk


@pytest.mark.parametrize(("size", "protocol", "chunk", "loops"), [
    (64.0 * MIB, "Simple", 2 * MIB, 4),  # four steps of 512 KiB
    (64.0 * MIB, "LL", 32 * 1024, 256),
    (4096.0, "Simple", 512, 1),
])  # fmt: skip
def test_chunks_of_a_ring_are_steps_of_the_buffer(size: float, protocol: str, chunk: int, loops: int) -> None:
    steps = {"Simple": 512 * 1024.0, "LL": 32 * 1024.0}
    pattern = ALGORITHMS["ring"].lower(CollectiveCall(Comm.ALL_GATHER, 8, 8, size, protocol, 1, step=steps[protocol]))
    assert int(pattern.slice[0]) == chunk
    assert int(pattern.slices[0]) == loops * 7


@pytest.mark.parametrize(
    ("name", "comm", "per_node", "steps", "alone"),
    [
        # (slices inside, between nodes), seconds where all bytes take 1 s inside and 0 between nodes; 0 and 1; 1 and 1
        ("ring", Comm.ALL_REDUCE, 4, (10, 4), (1.0, 1.0, 1.0)),  # 14 hops, of which two of eight lead to the other node
        ("ring", Comm.ALL_GATHER, 8, (7, 0), (1.0, 1.0, 1.0)),
        # 4 MiB a channel in slices of 128 KiB; the last of 32 goes up and down: three hops and one between nodes, each way
        ("tree", Comm.ALL_REDUCE, 4, (6, 2), (37 / 32, 33 / 32, 39 / 32)),
        ("tree", Comm.ALL_REDUCE, 8, (14, 0), (45 / 32, 0.0, 45 / 32)),
        ("tree", Comm.ALL_REDUCE, 1, (0, 6), (0.0, 37 / 32, 37 / 32)),
        # switches of the fabric add: two heads of two channels have 16 slices of 128 KiB each, a chain of four GPUs 32
        ("collnet_direct", Comm.ALL_REDUCE, 4, (2, 2), (17 / 16, 17 / 16, 19 / 16)),
        ("collnet_chain", Comm.ALL_REDUCE, 4, (6, 2), (37 / 32, 33 / 32, 39 / 32)),
        ("pat", Comm.ALL_GATHER, 1, (0, 3), (0.0, 1.0, 1.0)),
        ("p2p", Comm.ALL_TO_ALL, 4, (0, 1), (1.0, 1.0, 1.0)),
        ("direct", Comm.ALL_GATHER, 4, (0, 1), (3 / 8, 4 / 8, 4 / 8)),  # an eighth from each of 3 ranks here and 4 there
        ("direct", Comm.ALL_GATHER, 8, (1, 0), (7 / 8, 0.0, 7 / 8)),
        ("bruck", Comm.ALL_TO_ALL, 8, (3, 0), (1.5, 0.0, 1.5)),  # three rounds with half of the data
        ("bruck", Comm.ALL_TO_ALL, 1, (0, 3), (0.0, 1.5, 1.5)),
        # halves: 1/2 and 1/4 inside a node, 1/8 between the nodes
        ("halving_doubling", Comm.REDUCE_SCATTER, 4, (2, 1), (0.75, 0.125, 0.875)),
        ("halving_doubling", Comm.ALL_REDUCE, 4, (4, 2), (1.5, 0.25, 1.75)),
        # 3/4 inside, of the quarter that is left one half between the nodes; of the shorter one half hides behind the other chunk
        ("hierarchical", Comm.ALL_GATHER, 4, (3, 1), (0.75, 0.125, 0.75 + 0.125 / 2)),
        ("hierarchical", Comm.ALL_REDUCE, 4, (6, 2), (1.5, 0.25, 1.5 + 0.25 / 2)),
        ("hierarchical", Comm.ALL_REDUCE, 1, (0, 14), (0.0, 1.75, 1.75)),
    ],
)
def test_seconds_of_a_call_alone_by_hand(
    name: str, comm: Comm, per_node: int, steps: tuple[int, int], alone: tuple[float, float, float]
) -> None:
    """Eight ranks, two chunks."""
    pattern = ALGORITHMS[name].lower(CollectiveCall(comm, 8, per_node, 8.0 * MIB, channels=2, nics=2, chunks=2))
    assert (pattern.local_steps, pattern.net_steps) == steps
    assert (pattern.alone(1.0, 0.0), pattern.alone(0.0, 1.0), pattern.alone(1.0, 1.0)) == pytest.approx(alone)


def test_nccls_tree_of_eight_and_of_six_nodes() -> None:
    assert binary_tree(8) == [-1, 2, 4, 2, 0, 6, 4, 6]
    assert binary_tree(6) == [-1, 2, 4, 2, 0, 4]
    assert depth(binary_tree(8)) == 3


@pytest.mark.parametrize("nodes", range(2, 40))
def test_a_node_is_inner_in_one_of_the_two_trees_at_most(nodes: int) -> None:
    first, second = double_tree(nodes)
    assert first.count(-1) == second.count(-1) == 1
    for parents in (first, second):
        assert max(parents.count(node) for node in range(nodes)) <= 2
    busy = [node for node in range(nodes) if first.count(node) == 2 and second.count(node) == 2]
    assert not busy


def test_a_tree_halves_its_chunk_until_enough_of_them_are_under_way() -> None:
    # Levels: 7 in the node and 1 between two; 16 channels. 64 MiB / 16 / 512 KiB = 8 chunks < 8 x 8: 256 KiB gives 16, 128 KiB 32.
    call = CollectiveCall(Comm.ALL_REDUCE, 16, 8, 64.0 * MIB, channels=16)
    assert tree_chunk(call) == 128 * 1024
    assert tree_chunk(CollectiveCall(Comm.ALL_REDUCE, 16, 8, 1.0 * MIB, channels=16)) == 32 * 1024


def test_each_rank_of_a_tree_sends_its_buffer_up_and_the_result_down() -> None:
    size = 32.0 * MIB
    pattern = ALGORITHMS["tree"].lower(CollectiveCall(Comm.ALL_REDUCE, 16, 4, size, channels=2, nics=4))
    assert len(pattern) == 2 * 2 * 15
    assert int(pattern.bytes.sum()) == 2 * 15 * size  # two channels with half of it each


def test_nvls_moves_each_buffer_once_and_a_part_of_it_once_more() -> None:
    size, gpus, channels = 64.0 * MIB, 8, 16
    pattern = ALGORITHMS["nvls"].lower(CollectiveCall(Comm.ALL_REDUCE, gpus, gpus, size, channels=channels))
    sent = np.bincount(pattern.src, weights=pattern.bytes, minlength=9)
    got = np.bincount(pattern.dst, weights=pattern.bytes, minlength=9)
    assert sent[0] == got[0] == size * (gpus + 1) / gpus
    assert sent[8] == size * (gpus + 1)  # the switch: copies to all, sums to the heads


def test_nccls_order_of_peers_is_quadratic_in_groups_of_eight() -> None:
    size, ahead, place = schedule(64, 8)
    assert size == 8
    assert ahead[::8].tolist() == [0, 1, 3, 6, 2, 7, 5, 4]
    assert place[:8].tolist() == list(range(8))
    assert schedule(12, 4)[1].tolist() == [0] * 4 + [1] * 4 + [2] * 4  # 3 groups of gcd(8, 4): 0, 1, (3), 2
    assert schedule(6, 6)[0] == 6  # one node: all of its ranks


def test_a_send_waits_for_the_receive_of_the_batch_before() -> None:
    pattern = ALGORITHMS["p2p"].lower(CollectiveCall(Comm.ALL_TO_ALL, 32, 8, 32.0 * MIB, at_once=8))
    lane = 8  # rank 0, round 9: its ninth send
    start = pattern.dep_start[lane]
    assert pattern.dep_start[lane + 1] - start == 1
    waited = int(pattern.dep_lane[start])
    assert pattern.dst[waited] == 0
    assert waited % 31 == 0  # the receive of round 1
    assert int(pattern.dep_lead[start]) == ALL


@pytest.mark.parametrize(("nbytes", "far", "wanted"), [
    (1000, True, 32), (200_000, True, 64), (10**7, True, 128), (10**7, False, 512),
])  # fmt: skip
def test_slices_of_a_message(nbytes: int, far: bool, wanted: int) -> None:
    assert p2p_slice(nbytes, far) == wanted * 1024


def test_pat_doubles_what_it_sends_while_distances_halve() -> None:
    pattern = ALGORITHMS["pat"].lower(CollectiveCall(Comm.ALL_GATHER, 8, 1, 8.0 * MIB))
    assert pattern.bytes[::8].tolist() == [MIB, 2 * MIB, 4 * MIB]
    assert ((pattern.dst - pattern.src) % 8)[::8].tolist() == [4, 2, 1]


def test_halving_sends_half_then_a_quarter() -> None:
    pattern = ALGORITHMS["halving_doubling"].lower(CollectiveCall(Comm.REDUCE_SCATTER, 8, 8, 8.0 * MIB))
    assert pattern.bytes[::8].tolist() == [4 * MIB, 2 * MIB, MIB]
    assert (pattern.src ^ pattern.dst)[::8].tolist() == [1, 2, 4]


def test_bruck_sends_half_of_the_blocks_a_round() -> None:
    pattern = ALGORITHMS["bruck"].lower(CollectiveCall(Comm.ALL_TO_ALL, 8, 8, 8.0 * MIB))
    assert len(pattern) == 3 * 8
    assert set(pattern.bytes.tolist()) == {4 * MIB}


def test_collnet_sends_each_buffer_up_once_and_leaves_add() -> None:
    size = 16.0 * MIB
    pattern = ALGORITHMS["collnet_direct"].lower(
        CollectiveCall(Comm.ALL_REDUCE, 16, 4, size, channels=1, nics=4, leaves=(0, 0, 1, 1))
    )
    switch = 16 + 4
    up = (pattern.dst >= switch) & (pattern.src < 16)
    assert int(pattern.bytes[up].sum()) == 4 * size  # four nodes, once each
    between = (pattern.src >= switch) & (pattern.dst >= switch)
    assert int(pattern.bytes[between].sum()) == 2 * 2 * size  # two leaves: up, and the sum down


def test_dimensions_in_the_order_that_loads_the_slow_one_least() -> None:
    assert orders((4, 4), (), 3) == [(0, 1)] * 3
    assert orders((4, 4), (100.0, 1.0), 2) == [(0, 1)] * 2  # the fast one first leaves a quarter for the slow one
    # Equal dimensions: one chunk starts in one of them, the next in the other.
    assert orders((4, 4), (1.0, 1.0), 4) == [(0, 1), (1, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize(("name", "call"), [
    ("ring", CollectiveCall(Comm.ALL_TO_ALL, 4, 4, 8.0)),
    ("tree", CollectiveCall(Comm.ALL_GATHER, 4, 4, 8.0)),
    ("nvls", CollectiveCall(Comm.ALL_REDUCE, 16, 8, 8.0)),
    ("nvls_tree", CollectiveCall(Comm.ALL_REDUCE, 12, 8, 8.0)),
    ("collnet_chain", CollectiveCall(Comm.ALL_REDUCE, 8, 8, 8.0)),
    ("pat", CollectiveCall(Comm.ALL_GATHER, 16, 8, 8.0)),
    ("halving_doubling", CollectiveCall(Comm.ALL_GATHER, 6, 6, 8.0)),
    ("bruck", CollectiveCall(Comm.ALL_REDUCE, 4, 4, 8.0)),
    ("p2p", CollectiveCall(Comm.ALL_REDUCE, 4, 4, 8.0)),
    ("direct", CollectiveCall(Comm.BROADCAST, 4, 4, 8.0)),
    ("direct", CollectiveCall(Comm.ALL_REDUCE, 512, 8, 8.0)),
    ("hierarchical", CollectiveCall(Comm.ALL_REDUCE, 8, 8, 8.0, dims=(3, 3))),
    ("hierarchical", CollectiveCall(Comm.ALL_REDUCE, 9, 9, 8.0, dims=(3, 3), speeds=(1.0,))),
])  # fmt: skip
def test_calls_that_an_algorithm_does_not_do_are_refused(name: str, call: CollectiveCall) -> None:
    with pytest.raises(SpecError):
        ALGORITHMS[name].lower(call)
