"""InfiniBand fabrics from ibnetdiscover: levels, rails, oversubscription, and a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Context
from windtunnel.spec.machine import Cluster


def discovered(hosts: int = 4, spines: int = 1) -> str:
    """Two rails: leaf r has adapter r of each host, and a link to each spine."""
    lines = ["# Topology file: generated on Wed Aug  6 16:11:23 2025", "vendid=0x2c9", "switchguid=0x1(1)"]
    for rail in range(2):
        lines.append(f'Switch\t64 "S-leaf{rail}"\t\t# "leaf {rail}" enhanced port 0 lid 1 lmc 0')
        for host in range(hosts):
            lines.append(f'[{host + 1}]\t"H-{host}{rail}"[1](ab) \t\t# "host{host} mlx5_{rail}" lid 9 4xHDR')
        for spine in range(spines):
            lines.append(f'[{hosts + spine + 1}]\t"S-spine{spine}"[{rail + 1}]\t\t# "spine {spine}" lid 9 4xHDR')
        lines.append("")
    for spine in range(spines):
        lines.append(f'Switch\t64 "S-spine{spine}"\t\t# "spine {spine}" enhanced port 0 lid 2 lmc 0')
        lines.extend(f'[{rail + 1}]\t"S-leaf{rail}"[{hosts + spine + 1}]\t\t# "leaf {rail}" lid 1 4xHDR' for rail in range(2))
        lines.append("")
    for host in range(hosts):
        for rail in range(2):
            lines += [
                "caguid=0x5", f'Ca\t1 "H-{host}{rail}"\t\t# "host{host} mlx5_{rail}"',
                f'[1](ab) \t"S-leaf{rail}"[{host + 1}]\t\t# lid 9 lmc 0 "leaf {rail}" lid 1 4xHDR', "",
            ]  # fmt: skip
    return "\n".join(lines) + "\n"


def test_a_fabric_of_two_rails(tmp_path: Path) -> None:
    path = tmp_path / "ib.txt"
    path.write_text(discovered(), encoding="utf-8")
    reading = read_files([path], Context(cluster="a100-ib"))
    facts, cluster = reading.facts, reading.value
    assert (facts["switches"], facts["cas"], facts["hosts"], facts["switch_switch_links"]) == (3, 8, 4, 2)
    assert facts["port_lines"] == {"S-H": 8, "S-S": 4, "C-S": 8} and facts["speeds"] == {"4xHDR": 20}
    assert facts["levels"] == 2 and facts["rails"] == 2 and facts["adapters_per_host"] == 2 and facts["radix"] == 64
    assert (
        isinstance(cluster, Cluster) and cluster.gpus == 32 and cluster.fabric.topology == "rail" and cluster.fabric.leaf_nodes == 4
    )
    assert cluster.fabric.oversubscription == 4.0 and cluster.node.nic is not None  # four links down, one up
    assert (cluster.node.nic.count, cluster.node.nic.bandwidth) == (2, 25e9)


def test_lines_of_ports(tmp_path: Path) -> None:
    path = tmp_path / "ports.out"
    path.write_text(
        "CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'o0001 HCA-1' - 'ib-i1l1s01' )\n"
        "SW  1719 10 0x7cfe9003009ce5b0 4x EDR - CA   134  1 0x7cfe9003003b4bde ( 'ib-i1l1s01' - 'o0001 HCA-1' )\n"
        "SW  1719  1 0x7cfe9003009ce5b0 4x EDR - SW  1516  1 0x7cfe900300b07320 ( 'ib-i1l1s01' - 'ib-i1l2s01' )\n"
        "SW  2052 37 0x506b4b03005c2740 4x ???                                    'ib-i4l1s01'\n",
        encoding="utf-8",
    )
    facts = read_files([path]).facts
    assert facts["switches"] == 3 and facts["hosts"] == 1 and facts["idle_ports"] == 1 and facts["speeds"] == {"4xEDR": 3}


def test_nodes_without_links_are_told(tmp_path: Path) -> None:
    path = tmp_path / "ib.txt"
    path.write_text('vendid=0x2c9\ncaguid=0xb8\nCa\t1 "H-b8"\t\t# "n01 HCA-1"\n', encoding="utf-8")
    reading = read_files([path])
    assert reading.content is Content.SETTINGS and "1 nodes" in reading.broken[0]
    path.write_text("vendid=0x2c9\ncaguid=0xb8\n", encoding="utf-8")
    with pytest.raises(FileError):
        read_files([path])


def test_switches_without_hosts_make_no_cluster(tmp_path: Path) -> None:
    path = tmp_path / "switches.txt"
    node = 'switchguid=0x{0}\nSwitch 65 "S-{0}" # "MF0;leaf{0}" enhanced port 0 lid 5 lmc 0\n[1] "S-{1}"[1] # "MF0" lid 7 4xNDR\n'
    path.write_text("#\n" + node.format("a1", "b2") + "\n" + node.format("b2", "a1"))
    reading = read_files([path])
    assert reading.content is Content.SETTINGS and reading.facts["switch_switch_links"] == 1
    assert "no host adapter" in reading.broken[0]


def test_a_real_fabric(shared: Path) -> None:
    path = shared / "samples/4_nccl_fabric/ib_fabric/topograph_ibnetdiscover_dgx_ndr.out.gz"
    if not path.exists():
        pytest.skip("no samples beside the project")
    facts = read_files([path]).facts
    assert (facts["switches"], facts["cas"], facts["switch_switch_links"]) == (40, 582, 532)
    assert facts["port_lines"] == {"S-H": 582, "S-S": 1064, "C-S": 582} and facts["speeds"] == {"4xNDR": 2228}
