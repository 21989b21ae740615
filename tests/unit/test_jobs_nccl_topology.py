"""NCCL_TOPO_FILE: the topology of a cluster's own node is read, that of another machine is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.cli import main
from windtunnel.exports.nccl_topology import export_cluster
from windtunnel.jobs.nccl_topology import with_topology
from windtunnel.spec import load_cluster


def written(folder: Path, name: str, *edits: tuple[str, str]) -> str:
    text = next(iter(export_cluster(load_cluster(name), {}).files.values()))
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / f"{name}.xml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["h100-ib", "a100-ib", "b200-ib", "aws-p4d", "mi300x-roce"])
def test_a_written_topology_changes_nothing(tmp_path: Path, name: str) -> None:
    cluster = load_cluster(name)
    same = with_topology(cluster, written(tmp_path, name))
    assert same.node.pcie_gen == cluster.node.pcie_gen
    assert same.node.nic.bandwidth == pytest.approx(cluster.node.nic.bandwidth)


def test_slower_nics_of_the_file_count(tmp_path: Path) -> None:
    path = written(tmp_path, "h100-ib", ('speed="400000"', 'speed="100000"'))
    assert with_topology(load_cluster("h100-ib"), path).node.nic.bandwidth == pytest.approx(12.5e9)


@pytest.mark.parametrize(
    ("mine", "other"), [("h100-ib", "a100-ib"), ("a100-ib", "h100-ib"), ("h100-ib", "b200-ib"), ("b200-ib", "dgx-1v")]
)
def test_another_machine_is_refused_with_the_field(tmp_path: Path, mine: str, other: str) -> None:
    with pytest.raises(SpecError, match=r"NCCL_TOPO_FILE.*topology of a node of " + mine):
        with_topology(load_cluster(mine), written(tmp_path, other))


def test_fewer_gpus_than_the_node_has_are_refused(tmp_path: Path) -> None:
    cluster = load_cluster("h100-ib", ["node.gpus=4", "node.scale_up.size=4", "node.nic.count=4"])
    text = next(iter(export_cluster(cluster, {}).files.values()))
    (tmp_path / "four.xml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match="GPUs: 8"):
        with_topology(load_cluster("h100-ib"), str(tmp_path / "four.xml"))


def test_no_file_no_xml_no_system(tmp_path: Path) -> None:
    for text in (None, "", "<graphs version='1'></graphs>", "nothing"):
        path = tmp_path / "t.xml"
        if text is not None:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(WindtunnelError):
            with_topology(load_cluster("h100-ib"), str(path))


def test_the_command_exits_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "a100-ib")
    assert main(["collective", "-c", "h100-ib", "-n", "8", "-b", "1M", "-e", f"NCCL_TOPO_FILE={path}"]) == 2
    assert "--env.NCCL_TOPO_FILE" in capsys.readouterr().err
