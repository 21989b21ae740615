"""What machines say of themselves: GPU matrices, hardware trees, NCCL's topology in and out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.xml_tree import read_xml, xml_text
from windtunnel.exports.exporters import exporter_of
from windtunnel.exports.nccl_topology import topology_of
from windtunnel.formats.door import read_files
from windtunnel.formats.head import head_of
from windtunnel.formats.machines.nccl.topology import node_facts, recognises
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.spec import load_job, load_node
from windtunnel.spec.machine import Cluster


def matrix(cells: dict[str, list[str]], colour: str = "") -> str:
    lines = [f"\t{colour}" + "\t".join(cells) + "\tCPU Affinity\tNUMA Affinity" + ("\x1b[0m" if colour else "")]
    return "\n".join(lines + [f"{name}\t" + "\t".join(row) + "\t0-51\t0" for name, row in cells.items()]) + "\n"


def switched(gpus: int, word: str) -> dict[str, list[str]]:
    return {f"GPU{one}": [" X " if one == other else word for other in range(gpus)] for one in range(gpus)}


def imported(tmp_path: Path, text: str, name: str = "x.txt", cluster: str | None = None) -> Reading:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_files([path], Context(cluster=cluster))


def test_all_pairs_with_all_links_hang_on_a_switch(tmp_path: Path) -> None:
    reading = imported(tmp_path, "prolog\n" + matrix(switched(8, "NV18"), "\x1b[4m") + "\nLegend:\n")
    cluster = reading.value
    assert isinstance(cluster, Cluster) and cluster.node.gpus == 8 and cluster.gpu.id == "h100-sxm-80gb"
    assert cluster.node.scale_up.kind == "nvswitch" and cluster.node.scale_up.bandwidth == 450e9
    assert reading.facts["kinds"] == {"X": 8, "NV18": 56} and any("h100-sxm-80gb" in text for text in reading.assumed)


def test_gpus_that_are_numa_nodes_are_behind_a_grace_cpu(tmp_path: Path) -> None:
    lines = matrix(switched(4, "NV18")).replace("NUMA Affinity", "NUMA Affinity\tGPU NUMA ID").splitlines()
    text = "\n".join([lines[0], *(f"{line}\t\t{8 * at + 2}" for at, line in enumerate(lines[1:]))]) + "\n"
    assert imported(tmp_path, text).value.gpu.id == "gb200-nvl72"
    assert imported(tmp_path, text.replace("\t\t", "\t\tN/A")).value.gpu.id == "h100-sxm-80gb"


def test_links_of_a_mesh_add_up(tmp_path: Path) -> None:
    reading = imported(tmp_path, matrix(switched(4, "NV4")), cluster="a100-ib")
    assert reading.value.node.scale_up.kind == "nvlink_mesh" and reading.value.node.scale_up.links == 12
    assert reading.value.node.gpus == 4 and reading.value.node.scale_up.bandwidth == 300e9


def test_nics_and_the_nearest_of_them(tmp_path: Path) -> None:
    cells = {
        "GPU0": [" X ", "SYS", "PIX", "SYS"], "GPU1": ["SYS", " X ", "SYS", "PXB"], "NIC0": ["PIX", "SYS", " X ", "SYS"],
        "NIC1": ["SYS", "PXB", "SYS", " X "],
    }  # fmt: skip
    reading = imported(tmp_path, matrix(cells) + "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_3\n", cluster="a100-pcie")
    assert reading.facts["nearest_nics"] == {"GPU0": ["NIC0"], "GPU1": ["NIC1"]} and reading.facts["nic_names"] == [
        "mlx5_0",
        "mlx5_3",
    ]
    assert reading.value.node.scale_up.kind == "pcie" and reading.value.node.nic is not None and reading.value.node.nic.count == 2


def test_a_matrix_that_is_cut_off_is_told(tmp_path: Path) -> None:
    text = matrix(switched(4, "NV4"))
    assert imported(tmp_path, text[: text.rindex("NV4")]).broken


TOPOLOGY = """<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:01:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1">
        <nvlink target="0000:c5:00.0" count="12" tclass="0x068000"/>
      </gpu>
    </pci>
    <pci busid="0000:02:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1">
        <nvlink target="0000:c5:00.0" count="12" tclass="0x068000"/>
      </gpu>
    </pci>
    <nic>
      <net name="mlx5_0" dev="0" speed="200000" port="1" latency="0.000000" guid="0x1" maxconn="131072" gdr="1"/>
    </nic>
  </cpu>
</system>
"""


def test_a_topology_of_nccl_is_a_node(tmp_path: Path) -> None:
    reading = imported(tmp_path, TOPOLOGY, "t.xml")
    node = reading.value.node
    assert reading.content is Content.CLUSTER and node.gpus == 2 and node.gpu.id == "a100-sxm-40gb" and node.cpu_vendor == "amd"
    assert node.scale_up.kind == "nvswitch" and node.scale_up.bandwidth == 300e9 and node.pcie_gen == 4
    assert node.nic is not None and node.nic.count == 1 and node.nic.bandwidth == 25e9
    assert reading.facts["tags"]["nvlink"] == 2 and reading.facts["net_speed"] == ["200000"]


def test_reading_and_writing_a_topology_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "t.xml"
    path.write_text(TOPOLOGY, encoding="utf-8")
    assert xml_text(read_xml(path, "XML")) == TOPOLOGY


@pytest.mark.parametrize(
    "name", ["dgx-1v", "dgx-2", "dgx-a100-80gb", "hgx-h100", "mi300x-8", "a100-pcie-8", "p4d.24xlarge", "gb200-nvl72"]
)
def test_our_own_nodes_walk_out_and_in(name: str) -> None:
    node = load_node(name)
    facts = node_facts(topology_of(node))
    assert (facts.gpus, facts.kind, facts.pcie_gen, facts.cpu_vendor) == (
        node.gpus,
        node.scale_up.kind,
        node.pcie_gen,
        node.cpu_vendor,
    )
    assert facts.links == (0 if node.scale_up.kind == "pcie" else node.scale_up.links)
    assert node.nic is not None and (facts.nics, facts.nic_rate) == (node.nic.count, node.nic.bandwidth)


def test_the_exporter_writes_what_the_reader_reads(tmp_path: Path) -> None:
    job = load_job("llama3-8b-8xh100")
    written = exporter_of("nccl-topology").export(job, {})
    (text,) = written.files.values()
    assert isinstance(text, str)
    reading = imported(tmp_path, text, "t.xml")
    assert reading.value.node.scale_up.bandwidth == job.cluster.node.scale_up.bandwidth and reading.value.gpu == job.cluster.gpu
    with pytest.raises(SpecError):
        exporter_of("nccl-topology").export(job, {"colour": "red"})


@pytest.mark.parametrize("text", [TOPOLOGY[:300], TOPOLOGY.replace("</cpu>", ""), '<system version="1"><a b="&x;"/></system>'])
def test_broken_xml_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileError, match="XML"):
        imported(tmp_path, text, "t.xml")


def test_entities_are_refused(tmp_path: Path) -> None:
    text = '<?xml version="1.0"?><!DOCTYPE system [<!ENTITY a "aaaa">]><system version="1"><cpu numaid="&a;"/></system>'
    path = tmp_path / "t.xml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError):
        read_files([path], name="nccl-topology")


def test_a_hardware_tree_counts_gpus_by_their_model(tmp_path: Path) -> None:
    gpus = "".join(
        f'<object type="PCIDev" pci_busid="0000:0{n}:00.0" pci_type="0302 [10de:20b2]" pci_link_speed="31.507692">'
        f'<object type="OSDev" name="nvml{n}" osdev_type="12"><info name="GPUModel" value="NVIDIA A100-SXM4-80GB"/>'
        "</object></object>"
        for n in range(2)
    )
    nic = '<object type="OSDev" name="mlx5_0" osdev_type="3"/>'
    links = (
        '<distances2hetero nbobjs="3" kind="25" name="NVLinkBandwidth"><u64values length="9">0 0 300000 0 0 300000 300000 300000 0'
        "</u64values></distances2hetero>"
    )
    head = '<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
    text = f'{head}<topology version="2.0"><object type="Machine">{gpus}{nic}</object>{links}</topology>'
    reading = imported(tmp_path, text, "m.xml")
    node = reading.value.node
    assert node.gpus == 2 and node.gpu.id == "a100-sxm-80gb" and node.pcie_gen == 4 and node.nic is not None and node.nic.count == 1
    assert node.scale_up.kind == "nvswitch" and node.scale_up.links == 12
    assert reading.facts["objects"] == {"Machine": 1, "PCIDev": 2, "OSDev": 3}


@pytest.mark.parametrize(("folder", "keys"), [
    ("nccl_topo_xml", ("root", "version", "tags", "nvlink_counts", "xgmi_counts", "net_speed", "net_names")),
    ("rccl_topo_models", ("root", "version", "tags", "nvlink_counts", "xgmi_counts", "net_speed", "net_names", "gpu_sm_or_gcn")),
    ("hwloc", ("root", "version", "objects", "osdev", "distances")), ("smi_topo", ("rows", "gpus", "nics", "kinds")),
])  # fmt: skip
def test_real_machines_have_what_was_counted(shared: Path, folder: str, keys: tuple[str, ...]) -> None:
    path = shared / "samples/4_nccl_fabric" / folder
    if not path.is_dir():
        pytest.skip("no samples beside the project")
    for name, counted in json.loads((path / "FACTS.json").read_text(encoding="utf-8")).items():
        own = read_files([path / name]).facts
        for key in keys:
            assert own[key] == counted[key], (name, key)


def test_comments_without_a_root_are_passed_over_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    path.write_text("<!-- a -->\n" * 40 + "<algo>\n")
    assert not recognises(head_of(path))
    path.write_text("<!-- a -->\n" * 40 + '<system version="1">\n</system>\n')
    assert recognises(head_of(path))
