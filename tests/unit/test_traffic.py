"""Sums over links, checked on two hosts below two leaves and a spine."""

from __future__ import annotations

import json

import numpy as np
import pytest

from windtunnel.draw.page.sheet import draw_block, section_markup
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.engine.loads import LinkLoads, Sent
from windtunnel.network.simulate.traffic import Traffic, link_name, tiers, traffic
from windtunnel.network.traffic_sheet import fabric_picture, filled_by, network_sentence, shown_hot, traffic_blocks
from windtunnel.sheet.colours import LOADS, load_step


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
    picture = draw_block(fabric_picture(found), "en")
    assert picture.count("<rect") == 5 and picture.count("<line") == 4 and LOADS[load_step(0.975)][1] in picture
    assert "3 pfc pauses" in network_sentence(found) and "drops" not in network_sentence(found)


def test_no_time_no_load() -> None:
    assert traffic(small(), "flow", np.zeros(8), seconds=0.0).hot == ()


def network_part(found: Traffic) -> str:
    return str(section_markup("The network", traffic_blocks(found), "en"))


def over_time() -> Traffic:
    """a sends 40 B to b in four bins of a second, the first and the last of them half; they wait at the top."""
    moved = np.array([40.0, 0, 40, 0, 0, 40, 0, 40])
    rows = np.where(moved > 0, 0, -1).astype(np.int32)
    loads = LinkLoads(1.0, rows, np.array([[5.0, 10, 10, 10, 5]]), np.array([[0, 20_000, 300_000, 0, 0]]))
    up = np.nonzero(moved)[0]
    sent = Sent(np.concatenate([up, up]), np.repeat([0, 1], len(up)), np.repeat([30.0, 10.0], len(up)))
    return traffic(small(), "packet", moved, 5.0, sent=sent, names=["gather <b>", "reduce"], loads=loads, note="3 of 4 recalled")


def test_hot_links_say_what_fills_them() -> None:
    found = over_time()
    assert [(c.name, c.share) for c in found.hot[0].calls] == [("gather <b>", 0.75), ("reduce", 0.25)]
    assert filled_by(found.hot[0], 1) == "gather <b> 75 %, 1 more 25 %"
    assert {h.level for h in found.hot} == {level.name for level in found.levels}
    assert len(shown_hot(found, 9, 1)) == len(found.levels)


def test_calls_of_one_name_are_one() -> None:
    sent = Sent(np.zeros(3, np.int64), np.array([0, 1, -1]), np.array([1.0, 2.0, 1.0]))
    found = traffic(small(), "packet", np.array([4.0, 0, 0, 0, 0, 0, 0, 0]), 1.0, sent=sent, names=["same", "same"])
    assert [(c.name, c.share) for c in found.hot[0].calls] == [("same", 0.75), ("pauses and credits", 0.25)]


def test_each_level_shows_its_fullest_link() -> None:
    moved = np.array([40.0, 0, 4, 0, 0, 3, 0, 2])
    found = traffic(small(), "flow", moved, seconds=4.0, most=1)
    assert [h.name for h in found.hot] == ["a → left", "left → top", "right → b", "top → right"]


def test_load_over_time_is_that_of_the_fullest() -> None:
    over = over_time().over_time
    assert over is not None and over.width == 1.0 and over.note
    host = [level.name for level in over_time().levels].index("host → leaf")
    assert over.mean[host] == pytest.approx((0.25, 0.5, 0.5, 0.5, 0.25))  # the other host sends nothing
    assert over.fullest[host] == pytest.approx((0.5, 1, 1, 1, 0.5)) and over.queue[host] == (0, 20_000, 300_000, 0, 0)
    assert len(over.boxes) == 5 and len(over.edges) == 4 and over.edges[0] == pytest.approx((0.5, 1, 1, 1, 0.5))


def test_the_page_draws_time() -> None:
    found = over_time()
    text = network_part(found)
    assert text.count('class="heat"') == 2 and "Load over time" in text and "Queues over time" in text and "3 of 4 recalled" in text
    assert "gather &lt;b&gt; 75 %" in text and "<b>" not in text
    assert 'type="range" min="0" max="5"' in text
    data = json.loads(text.split('id="moment-data">')[1].split("</script>")[0])
    assert data["times"] == ["0", "1 s", "2 s", "3 s", "4 s", "5 s"]
    assert data["edge_bins"] == ["56665"] * 4 and data["box_bins"][0] == "56665" and data["box_bins"][1] == "00000"
    assert len(data["colours"]) == len(data["words"]) == len(LOADS) == 1 + max(map(int, "".join(data["edge_bins"])))


def test_without_bins_there_is_no_time() -> None:
    found = traffic(small(), "flow", np.full(8, 39.0), seconds=4.0)
    text = network_part(found)
    assert 'class="heat"' not in text and 'id="moment"' not in text and "Load by level" in text


def test_a_run_that_queues_nowhere_says_so() -> None:
    loads = LinkLoads(1.0, np.zeros(8, np.int32), np.array([[5.0, 10]]), np.zeros((1, 2), np.int64))
    text = network_part(traffic(small(), "packet", np.full(8, 15.0), 2.0, loads=loads))
    assert "No packet waited for a link." in text and text.count('class="heat"') == 1
