"""Which end of a broken link the driver names: ports that went down in this attempt. Expectations by hand."""

import math
from pathlib import Path

from windtunnel.fleet.agent.readings import link_drops
from windtunnel.fleet.driver.links import name_ports
from windtunnel.fleet.driver.roster import AgentNode, Roster
from windtunnel.fleet.driver.sight import DetectionLimits, SeenFault
from windtunnel.fleet.wire.messages import AgentBeat, RankReport
from windtunnel.fleet.wire.secrets import Secrets

LINK = SeenFault("link", ("n0", "n1", "n2"), (0, 1, 2), "all wait", 1.0, 2.0, separable=False)


def _node(number: int, dropped: float = -math.inf) -> AgentNode:
    return AgentNode(f"n{number}", ranks=(RankReport(number, 10 + number, None, ""),), link_drops=3, dropped=dropped)


def test_the_node_whose_port_went_down_is_named() -> None:
    named = name_ports(LINK, [_node(0, 19.0), _node(1, 21.0), _node(2)], since=20.0)
    assert (named.nodes, named.ranks, named.separable) == (("n1",), (1,), True)
    assert named.evidence == "a port of n1 has lost its link; all wait"


def test_where_no_port_or_every_port_went_down_the_whole_group_stays() -> None:
    assert name_ports(LINK, [_node(0, 19.0), _node(1)], since=20.0) == LINK
    assert name_ports(LINK, [_node(0, 21.0), _node(1, 22.0)], since=20.0) == LINK


def test_a_port_is_no_reason_for_another_class() -> None:
    crash = SeenFault("crash", ("n0",), (0,), "SIGKILL", 1.0, 2.0)
    assert name_ports(crash, [_node(0), _node(1, 21.0)], since=20.0) == crash


def test_only_what_an_agent_counts_anew_is_a_drop() -> None:
    roster = Roster(Secrets("", ""), DetectionLimits(), nodes={"n0": AgentNode("n0")})
    node = roster.nodes["n0"]
    for drops, fell in ((7, False), (7, False), (8, True)):
        roster.on_beat(node, AgentBeat(0.0, memory_kills=drops, link_drops=drops))
        assert (node.dropped > 0) == fell
    assert node.memory_kills - node.kills_before == 1


def _port(path: Path, name: str, value: int) -> Path:
    path.mkdir(parents=True)
    (path / name).write_text(f"{value}\n")
    return path


def test_hardware_ports_count_and_virtual_ones_only_where_there_is_no_other(tmp_path: Path) -> None:
    assert link_drops(tmp_path) == 0
    _port(tmp_path / "net" / "lo", "carrier_down_count", 7)
    _port(tmp_path / "net" / "veth1", "carrier_down_count", 2)
    assert link_drops(tmp_path) == 2
    (_port(tmp_path / "net" / "eth0", "carrier_down_count", 1) / "device").mkdir()
    assert link_drops(tmp_path) == 1
    _port(tmp_path / "infiniband" / "mlx5_0" / "ports" / "1" / "counters", "link_downed", 4)
    assert link_drops(tmp_path) == 5
