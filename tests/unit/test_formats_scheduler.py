"""Topologies as schedulers know them: Slurm's files and topograph's models, and lists of hosts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.machines.hardware.slurm_topology import hosts_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.spec.machine import Cluster

TREE = """# core
SwitchName=core Switches=spine[1-2]
SwitchName=spine1 Switches=leaf[1-2] LinkSpeed=1000
switchname=spine2 switches=leaf[3-4]
SwitchName=leaf1 Nodes=n[01-08]
SwitchName=leaf2 Nodes=n[09-16]
SwitchName=leaf3 Nodes=n[17-24]
SwitchName=leaf4 Nodes=n[25-30],login[1,3]
"""
BLOCKS = "BlockName=b1 Nodes=n[1-18]\nBlockName=b2 Nodes=n[19-36]\nBlockSizes=18,36\n"
YAML = """- topology: tree
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: n[01-04]
      - switch: s2
        nodes: n[05-08]
- topology: blocks
  block:
    block_sizes: [4, 8]
    blocks:
      - block: b1
        nodes: n[01-04]
      - block: b2
        nodes: n[05-08]
"""
MODEL = """switches:
  core:
    switches: [leaf-1, leaf-2]
blocks:
- switch: leaf-1
  nodes: ["I[21-22]", I25]
  annotations:
    accelerator.topology.test/domain: nvl1
    accelerator.topology.test/sub-domain: rack1
- switch: leaf-2
  nodes: ["I[34-36]"]
  annotations:
    accelerator.topology.test/domain: nvl2
"""


def read(tmp_path: Path, text: str, cluster: str | None = None) -> Reading:
    path = tmp_path / "topology.conf"
    path.write_text(text, encoding="utf-8")
    return read_files([path], Context(cluster=cluster))


def test_switches_of_slurm(tmp_path: Path) -> None:
    reading = read(tmp_path, TREE, "b200-ib")
    facts, cluster = reading.facts, reading.value
    assert reading.content is Content.CLUSTER and isinstance(cluster, Cluster)
    assert (facts["nodes"], facts["switches"], facts["levels"], facts["leaves"]) == (32, 7, 3, 4)
    assert facts["switches_by_level"] == {1: 4, 2: 2, 3: 1} and facts["pod_nodes"] == 16
    assert (cluster.gpus, cluster.fabric.leaf_nodes, cluster.fabric.pod_nodes) == (256, 8, 16)
    assert reading.ignored == ("linkspeed: changes nothing here",)


def test_blocks_of_slurm(tmp_path: Path) -> None:
    reading = read(tmp_path, BLOCKS)
    assert reading.facts["blocks"] == 2 and reading.facts["block_sizes"] == [18, 36] and reading.facts["nodes"] == 36
    assert reading.value.fabric.leaf_nodes == 18 and any("names no switch" in line for line in reading.assumed)


def test_yaml_of_slurm(tmp_path: Path) -> None:
    facts = read(tmp_path, YAML).facts
    assert (facts["nodes"], facts["leaf_nodes"], facts["blocks"], facts["block_sizes"]) == (8, 4, 2, [4, 8])


def test_a_model_of_topograph(tmp_path: Path) -> None:
    reading = read(tmp_path, MODEL)
    facts = reading.facts
    assert reading.format == "topograph" and (facts["nodes"], facts["leaf_nodes"], facts["levels"]) == (6, 3, 2)
    assert facts["accelerator_domains"] == 2 and reading.value.gpus == 48


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=a Switches=b\n",
        "SwitchName=a Nodes=n[1-\n",
        "switches:\n  a: 3\nblocks:\n- 4\n",
        YAML.replace("- switch: s1", "- swi: s1"),
    ],
)
def test_a_topology_without_nodes(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileError):
        read(tmp_path, text)


def test_lists_of_hosts() -> None:
    assert hosts_of("srv[08-10,12],login1") == ["srv08", "srv09", "srv10", "srv12", "login1"]
    assert hosts_of("a[1-2]b[3-4]") == ["a1b3", "a1b4", "a2b3", "a2b4"]
    assert hosts_of("") == []
    for bad in ("n[1-", "n]1[", "n[a-b]", "n[1-99999999]"):
        with pytest.raises(ValueError, match=r".+"):
            hosts_of(bad)


def test_scontrol_lists_nodes_at_every_level(tmp_path: Path) -> None:
    path = tmp_path / "topology.txt"
    path.write_text(
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[01-16]\nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[17-32]\n"
        "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[01-32] Switches=s[0-1]\n"
    )
    facts = read_files([path]).facts
    assert (facts["nodes"], facts["leaves"], facts["levels"], facts["leaf_nodes"]) == (32, 2, 2, 16)


def test_blanks_alone_cost_no_more_than_their_number(tmp_path: Path) -> None:
    """A megabyte of blanks, which a pattern of two adjoining repetitions would look at once for each pair of them."""
    (tmp_path / "blank.json.gz").write_bytes(gzip.compress(b" " * 2**20))
    with pytest.raises(FileError, match="empty"):
        wt.read(tmp_path / "blank.json.gz")
