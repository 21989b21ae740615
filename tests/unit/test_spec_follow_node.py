"""What is inside a node follows a stated number of its GPUs."""

from __future__ import annotations

import pytest

from windtunnel.spec import load_cluster, load_job


@pytest.mark.parametrize(
    ("cluster", "sets", "domain", "nics"),
    [
        ("h200-ib", ["node.gpus=1"], 1, 1),
        ("h100-ib", ["node.gpus=4"], 4, 4),
        ("h100-ib", ["node.gpus=16"], 8, 16),
        ("h100-ib", ["node.gpus=1", "node.nic.count=2"], 1, 2),
        ("h100-ib", ["node.gpus=1", "node.scale_up.size=8"], 8, 1),
        ("gb200-nvl72", ["node.gpus=2"], 72, 2),  # a domain of many nodes is no node's
        ("l40s", ["node.gpus=4"], 4, 1),
        ("l40s", ["node.gpus=1"], 1, 1),
        ("h100-ib", ["gpus=16"], 8, 8),
    ],
)
def test_a_domain_and_the_nics_follow_the_gpus_of_a_node(cluster: str, sets: list[str], domain: int, nics: int) -> None:
    made = load_cluster(cluster, sets)
    assert made.node.nic is not None
    assert (made.node.scale_up.size, made.node.nic.count) == (domain, nics)
    table = {
        "name": "a",
        "model": "llama3-8b",
        "plan": {"global_batch": 8, "seq": 1024},
        "runtime": "megatron-core",
        "cluster": cluster,
    }
    changes: list[str] = []
    job = load_job(table, [f"cluster.{text}" for text in sets], changes)
    assert job.cluster.node == made.node
    moved = job.cluster.node != load_cluster(cluster).node and "node.gpus" in sets[0]
    assert moved == ("node.gpus" in sets[0])
    assert all("to follow cluster.node.gpus" in line for line in changes)


def test_another_node_keeps_what_it_has() -> None:
    job = load_job("llama3-8b-8xh100", ["cluster=gh200-ib", "cluster.gpus=8"])
    assert (job.cluster.node.gpus, job.cluster.node.scale_up.size) == (1, 1)
