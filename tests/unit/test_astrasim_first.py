"""Configurations of ASTRA-sim 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.door import read_files

NETWORK = {
    "topology-name": "Hierarchical",
    "topologies-per-dim": ["Ring", "Switch"],
    "dimensions-count": 2,
    "units-count": [4, 2],
    "links-count": [2, 1],
    "link-latency": [500, 500],
    "link-bandwidth": [25, 12.5],
    "hbm-latency": [500, 500],
}
SYSTEM = (
    "scheduling-policy: LIFO\nendpoint-delay: 10\npreferred-dataset-splits: 4\nall-reduce-implementation: ring_doubleBinaryTree\n"
)


def test_a_network(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(NETWORK))
    reading = read_files([path])
    assert reading.facts["npus_count"] == [4, 2] and reading.facts["bandwidth_GBps"] == [50, 12.5]
    assert reading.ignored[0].startswith("hbm-latency")


def test_a_system(tmp_path: Path) -> None:
    path = tmp_path / "sys.txt"
    path.write_text(SYSTEM)
    reading = read_files([path])
    assert reading.facts["preferred_dataset_splits"] == 4
    assert reading.facts["implementations"] == {"ALL_REDUCE": ["ring", "doubleBinaryTree"]}


@pytest.mark.parametrize(
    "change", [{"link-bandwidth": 5}, {"link-bandwidth": ["fast", 1]}, {"units-count": [0, 2]}, {"link-latency": None}]
)
def test_a_wrong_network_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**NETWORK, **change}))
    with pytest.raises(WindtunnelError):
        read_files([path])
