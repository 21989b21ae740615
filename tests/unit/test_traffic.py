"""Sums over links, checked on two hosts below two leaves and a spine."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.simulate.traffic import link_name, tiers, traffic
from windtunnel.report.page.fabric import colour, fabric
from windtunnel.report.words.network import network_sentence


def small() -> Graph:
    """host 0 - leaf 2 - spine 4 - leaf 3 - host 1; each cable as two links, up first."""
    cables = [(0, 2), (2, 4), (1, 3), (3, 4)]
    ends = [pair for a, b in cables for pair in ((a, b), (b, a))]
    count = len(ends)
    return Graph(
        node_kind=np.array([NodeKind.HOST] * 2 + [NodeKind.SWITCH] * 3, np.uint8), node_site=np.full(5, -1, np.int32),
        link_from=np.array([a for a, _ in ends], np.int32), link_to=np.array([b for _, b in ends], np.int32),
        link_rate=np.full(count, 10.0), link_latency=np.zeros(count), link_axis=np.full(count, -1, np.int16),
        link_up=np.ones(count, np.uint8), endpoint=np.array([0, 1], np.int32), nic_start=np.zeros(3, np.int64),
        nics=np.zeros(0, np.int32), rail=np.full(2, -1, np.int32), names=("a", "b", "left", "right", "top"),
    )  # fmt: skip


def test_tiers_count_links_from_the_hosts() -> None:
    assert tiers(small()).tolist() == [0, 0, 1, 1, 2]


def test_levels_and_hot_links() -> None:
    moved = np.array([40.0, 0, 40, 0, 0, 20, 0, 40])  # a → left → top → right, half of it on to b
    found = traffic(small(), "flow", moved, seconds=4.0, full=np.array([4.0, 0, 4, 0, 0, 0, 0, 4]))
    by_name = {level.name: level for level in found.levels}
    assert set(by_name) == {"host → leaf", "leaf → spine", "spine → leaf", "leaf → host"}
    assert by_name["host → leaf"].max_utilisation == pytest.approx(1.0)  # 40 B over 10 B/s x 4 s
    assert by_name["host → leaf"].mean_utilisation == pytest.approx(0.5)  # the other host sends nothing
    assert by_name["leaf → host"].bytes == 20.0
    assert [h.name for h in found.hot] == ["a → left", "left → top", "top → right", "right → b"]
    assert found.hot[-1].utilisation == pytest.approx(0.5) and found.hot[0].full == pytest.approx(1.0)
    assert found.switches == 3 and found.endpoints == 2 and link_name(small(), 2) == "left → top"


def test_the_drawing_has_a_row_for_each_tier() -> None:
    found = traffic(small(), "packet", np.full(8, 39.0), seconds=4.0, events={"pfc_pauses": 3.0, "drops": 0.0})
    assert [(b.row, b.label) for b in found.boxes] == [
        (0, "host 0"), (0, "host 1"), (1, "leaf 0"), (1, "leaf 1"), (2, "spine 0"),
    ]  # fmt: skip
    assert sorted((e.low, e.high, e.cables) for e in found.edges) == [(0, 2, 1), (1, 3, 1), (2, 4, 1), (3, 4, 1)]
    assert all(e.load == pytest.approx(0.975) for e in found.edges)
    picture = fabric(found)
    assert picture.count("<rect") == 5 and picture.count("<line") == 4 and colour(0.975) in picture
    assert "3 pfc pauses" in network_sentence(found) and "drops" not in network_sentence(found)


def test_no_time_no_load() -> None:
    assert traffic(small(), "flow", np.zeros(8), seconds=0.0).hot == ()
