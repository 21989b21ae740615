"""Which end of a broken link the driver names: ports that went down in this attempt. Expectations by hand."""

from pathlib import Path

from windtunnel.fleet.agent.readings import link_drops
from windtunnel.fleet.driver.links import name_ports
from windtunnel.fleet.driver.roster import AgentNode
from windtunnel.fleet.driver.sight import SeenFault
from windtunnel.fleet.wire.messages import RankReport

LINK = SeenFault("link", ("n0", "n1", "n2"), (0, 1, 2), "all wait", 1.0, 2.0, separable=False)


def _node(number: int, drops: int, before: int = 0) -> AgentNode:
    ranks = (RankReport(number, 10 + number, None, ""),)
    return AgentNode(f"n{number}", ranks=ranks, link_drops=drops, drops_before=before)


def test_the_node_whose_port_went_down_is_named() -> None:
    named = name_ports(LINK, [_node(0, 3, 3), _node(1, 5, 3), _node(2, 0)])
    assert (named.nodes, named.ranks, named.separable) == (("n1",), (1,), True)
    assert named.evidence == "a port of n1 has lost its link 2 times; all wait"


def test_where_no_port_or_every_port_went_down_the_whole_group_stays() -> None:
    assert name_ports(LINK, [_node(0, 3, 3), _node(1, 1, 1)]) == LINK
    assert name_ports(LINK, [_node(0, 4, 3), _node(1, 1)]) == LINK


def test_a_port_is_no_reason_for_another_class() -> None:
    crash = SeenFault("crash", ("n0",), (0,), "SIGKILL", 1.0, 2.0)
    assert name_ports(crash, [_node(0, 0), _node(1, 1)]) == crash


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
