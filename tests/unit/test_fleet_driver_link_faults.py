"""Which end of a broken link the driver names: ports that went down in this attempt. Expectations by hand."""

import math
from pathlib import Path

from windtunnel.fleet.agent.node_probes import link_drops, own_addresses
from windtunnel.fleet.driver.detect import DetectedFault, DetectionLimits
from windtunnel.fleet.driver.roster import AgentNode, Roster
from windtunnel.fleet.driver.stall import broken_pair, name_faulty_node
from windtunnel.fleet.wire.messages import AgentBeat, LogFinding, RankReport
from windtunnel.fleet.wire.secrets import Secrets

LINK = DetectedFault("link", ("n0", "n1", "n2"), (0, 1, 2), "all wait", 1.0, 2.0, separable=False)


def _node(number: int, dropped: float = -math.inf) -> AgentNode:
    return AgentNode(f"n{number}", ranks=(RankReport(number, 10 + number, None, ""),), link_drops=3, dropped=dropped)


def test_the_node_whose_port_went_down_is_named() -> None:
    named = name_faulty_node(LINK, [_node(0, 19.0), _node(1, 21.0), _node(2)], since=20.0)
    assert (named.nodes, named.ranks, named.separable) == (("n1",), (1,), True)
    assert named.evidence == "a port of n1 has lost its link; all wait"


def test_where_no_port_or_every_port_went_down_the_whole_group_stays() -> None:
    none = name_faulty_node(LINK, [_node(0, 19.0), _node(1), _node(2)], since=20.0)
    assert (none.nodes, none.ranks, none.separable) == (LINK.nodes, LINK.ranks, False)
    assert none.evidence == "no port has lost its link, so which side is at fault is not known; all wait"
    every = name_faulty_node(LINK, [_node(0, 21.0), _node(1, 22.0)], since=20.0)
    assert (every.nodes, every.separable) == (LINK.nodes, False)
    assert every.evidence.startswith("the ports of all nodes have lost their link, so which side")


def _cut(number: int, lost: int, *, shared: bool = False) -> AgentNode:
    """A node whose rank ended for a connection to node `lost`."""
    text = f"RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.{lost}]:4711. GLHF!"
    rank = RankReport(number, 10, 1, "", found=(LogFinding("peer", text),))
    return AgentNode(f"n{number}", ranks=(rank,), addresses=("10.0.0.9",) if shared else (f"10.0.0.{number}", "fe80::1"))


def test_the_pair_that_lost_each_other_is_told_and_no_side() -> None:
    """n1 and n2 lose each other; n0 ends for n1, and n3 for n0."""
    nodes = [_cut(0, 1), _cut(1, 2), _cut(2, 1), _cut(3, 0)]
    found = name_faulty_node(LINK, nodes, since=20.0)
    assert (
        found.evidence == "it broke between n1 and n2; no port has lost its link, so which side is at fault is not known; all wait"
    )
    assert not found.separable and found.nodes == LINK.nodes


def test_no_pair_is_made_up() -> None:
    """Not where nobody lost whom it was lost by, where two pairs broke, or where an address is not that of one node."""
    assert broken_pair([_cut(0, 1), _cut(1, 2), _cut(2, 0)]) == ()
    assert broken_pair([_node(0), _node(1)]) == () and broken_pair([_cut(0, 9, shared=True), _node(1)]) == ("n0", "n1")
    assert broken_pair([_cut(0, 1), _cut(1, 0), _cut(2, 3), _cut(3, 2)]) == ()
    assert broken_pair([_cut(number, 9, shared=True) for number in range(3)]) == ()


def test_a_node_knows_its_addresses(tmp_path: Path) -> None:
    (tmp_path / "fib_trie").write_text(
        "Local:\n  +-- 10.0.0.0/24 2 0 2\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.5\n        /32 host LOCAL\n"
        "     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n"
    )
    (tmp_path / "if_inet6").write_text(
        "fe800000000000000000000000000005 02 40 20 80 eth0\n00000000000000000000000000000001 01 80 10 80 lo\n"
    )
    assert own_addresses(tmp_path) == ("10.0.0.5", "fe80::5")
    assert own_addresses(tmp_path / "none") == ()


def test_a_port_is_no_reason_for_another_class() -> None:
    crash = DetectedFault("crash", ("n0",), (0,), "SIGKILL", 1.0, 2.0)
    assert name_faulty_node(crash, [_node(0), _node(1, 21.0)], since=20.0) == crash


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
