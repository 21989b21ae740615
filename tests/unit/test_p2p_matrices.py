"""Matrices of p2pBandwidthLatencyTest and nvbandwidth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files

TEST = """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, A100-SXM4-40GB, pciBusID: 27, pciDeviceID: 0, pciDomainID:0
Device: 1, A100-SXM4-40GB, pciBusID: 2a, pciDeviceID: 0, pciDomainID:0
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 1275.51 263.41
     1 264.01 1295.61
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   3.13   3.36
"""


def test_medians_are_those_between_different_gpus(tmp_path: Path) -> None:
    path = tmp_path / "p2p.out"
    path.write_text(TEST, encoding="utf-8")
    facts = read_files([path]).facts
    assert facts["devices"] == ["A100-SXM4-40GB"] * 2
    rate = facts["matrices"]["Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)"]
    assert rate == {"rows": 2, "median": 263.71, "min": 263.41, "max": 264.01}


def test_a_title_without_a_matrix_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p2p.out"
    path.write_text(TEST.splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(FileError, match="no matrix"):
        read_files([path])


def test_the_json_of_nvbandwidth(tmp_path: Path) -> None:
    tests = [
        {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["55.2", "55.0"]]},
        {"name": "device_to_device_memcpy_read_ce", "status": "Passed", "bandwidth_matrix": [["N/A", "370.0"], ["372.0", "N/A"]]},
        {"name": "multinode", "status": "Waived"},
    ]
    path = tmp_path / "nvbandwidth.json"
    path.write_text(json.dumps({"nvbandwidth": {"Driver Version": "550.54", "testcases": tests}}))
    matrices = read_files([path]).facts["matrices"]
    assert {name: one["median"] for name, one in matrices.items()} == {
        "host_to_device_memcpy_ce": 55.1,
        "device_to_device_memcpy_read_ce": 371.0,
    }
