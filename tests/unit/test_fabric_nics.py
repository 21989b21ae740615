"""A fabric's name brings the NICs of machines on it: `cluster.fabric=ethernet`, `efa`, `roce`, in an override or a file."""

from __future__ import annotations

import pytest

from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict
from windtunnel.spec import load_cluster, load_job, names
from windtunnel.spec.loading.files import entry

GBIT = 1e9 / 8


@pytest.mark.parametrize(
    ("cluster", "fabric", "count", "gbit"),
    [
        ("h200-ib", "ethernet", 1, 100),  # the server's own network
        ("h200-ib", "efa", 16, 200),  # p5en
        ("h100-ib", "efa", 32, 100),  # p5, by the catalogue's cluster with that GPU
        ("a100-ib", "efa", 4, 100),  # p4de
        ("b200-ib", "efa", 8, 400),  # p6-b200
        ("gb200-nvl72", "efa", 4, 400),  # one for each of a tray's GPUs
        ("aws-p5", "ib", 8, 400),  # as hgx-h100
        ("aws-p5", "roce", 8, 400),
        ("h200-ib", "roce", 8, 400),  # one NIC speaks both
        ("h100-ib", "spectrum-x", 8, 400),
        ("rtx-4090", "ethernet", 1, 25),  # on it already
        ("l40s", "efa", 4, 100),
        ("h20-ib", "efa", 8, 400),  # no such instance: kept
    ],
)
def test_a_fabric_brings_its_nics(cluster: str, fabric: str, count: int, gbit: float) -> None:
    nic = load_cluster(cluster, [f"fabric={fabric}"]).node.nic
    assert nic is not None and (nic.count, nic.bandwidth) == (count, gbit * GBIT)


@pytest.mark.parametrize("cluster", sorted(set(names("clusters")) - {"dgx-2"}))
def test_ethernet_is_never_faster_than_what_a_machine_had(cluster: str) -> None:
    before, after = load_cluster(cluster), load_cluster(cluster, ["fabric=ethernet"])
    if before.node.nic is not None:
        assert after.node.nic is not None
        assert after.node.nic.count * after.node.nic.bandwidth <= before.node.nic.count * before.node.nic.bandwidth


@pytest.mark.parametrize("fabric", sorted(name for name in names("fabrics") if entry("fabrics", name, "")["kind"] != "ici"))
def test_a_stated_nic_wins(fabric: str) -> None:
    stated = load_cluster("h100-ib", [f"fabric={fabric}", "node.nic.count=2", "node.nic.bandwidth=50Gb/s"]).node.nic
    assert stated is not None and (stated.count, stated.bandwidth) == (2, 50 * GBIT)


def test_a_file_and_its_parts_follow() -> None:
    own = {"base": "h100-ib", "gpus": 16}
    assert load_cluster({**own, "fabric": "ethernet"}).node.nic == load_cluster("h100-ib", ["fabric=ethernet"]).node.nic
    assert load_cluster({**own, "fabric": {"base": "ethernet", "leaf_nodes": 8}}).node.nic.count == 1  # type: ignore[union-attr]
    both = load_cluster({**own, "fabric": "ethernet", "node": "hgx-h100"}).node.nic  # both named: the node's own
    assert both is not None and both.count == 8
    half = load_cluster("h100-ib", ["fabric=efa", "node.gpus=4"]).node.nic  # a GPU keeps its share
    assert half is not None and half.count == 16


@pytest.mark.parametrize(
    ("fabric", "says"), [("ethernet", "1 x 100 Gb/s"), ("efa", "16 x 200 Gb/s"), ("roce", "stays 8 x 400 Gb/s")]
)
def test_the_answer_says_what_a_fabric_brought(fabric: str, says: str) -> None:
    sets = ["plan.tp=8", "plan.global_batch=8", "cluster.gpus=16", f"cluster.fabric={fabric}"]
    loaded = load_described_job("llama3-8b-8xh100", sets, "h200-ib")
    assert says in " ".join(loaded.changed) and fabric in " ".join(loaded.changed)
    assert load_described_job("llama3-8b-8xh100", sets[:-1], "h200-ib").changed == ("plan.dp 8 -> 2, to follow plan.tp",)


def test_two_nodes_on_plain_ethernet_are_slower() -> None:
    sets = ["cluster.gpus=16", "plan.dp=16", "plan.global_batch=16"]
    step = {
        fabric: predict(load_job("llama3-8b-8xh100", [*sets, f"cluster.fabric={fabric}"])).step_time_s
        for fabric in ("ib", "ethernet")
    }
    assert step["ethernet"] > 1.5 * step["ib"]
