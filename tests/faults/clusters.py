"""Real clusters of other engines on this machine, for as long as a block lasts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.slurm.cluster import SlurmCluster

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


@contextmanager
def slurm_cluster(folder: Path, nodes: int) -> Iterator[SlurmCluster]:
    """A slurmctld and `nodes` slurmd, which this process's environment names."""
    with SlurmCluster(folder / "slurm", nodes) as cluster:
        os.environ.update(cluster.variables)
        try:
            yield cluster
        finally:
            del os.environ["SLURM_CONF"]


@contextmanager
def ray_cluster() -> Iterator[Cluster]:
    """Two raylets of one core each."""
    from ray.cluster_utils import Cluster

    cluster = _waited_for(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}))
    try:
        _waited_for(lambda: cluster.add_node(num_cpus=1))
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def _waited_for(start: Callable[[], Any]) -> Any:
    """Ray gives a node 30 s to start, which is little on a busy machine: three times."""
    for left in (2, 1, 0):
        try:
            return start()
        except Exception as error:
            if left == 0 or "timed out during startup" not in str(error):
                raise
    return None
