"""An analytical network as a cluster: its innermost dimension inside a node, the next one between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.formats.simulators.astrasim.configuration import AnalyticalNetwork

if TYPE_CHECKING:
    from windtunnel.spec.machine.cluster import Cluster

BASE = "h100-ib"
"""The cluster whose GPU and host stand in for what a network file does not say."""
_KINDS = {"Switch": "nvswitch", "FullyConnected": "nvlink_mesh", "Ring": "nvlink_mesh"}


def cluster_of(network: AnalyticalNetwork) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, and what was assumed for it."""
    inner, rest = network.npus_count[0], network.npus // network.npus_count[0]
    rates = [f"{one * 2**30!r}B/s" for one in network.bandwidth]
    table: dict[str, object] = {
        "base": BASE,
        "id": "astra-sim",
        "name": "ASTRA-sim network",
        "gpus": network.npus,
        "node": {
            "base": "hgx-h100",
            "gpus": inner,
            "scale_up": {
                "kind": _KINDS[network.topology[0]],
                "size": inner,
                "bandwidth": f"{rates[0]} per GPU each way",
                "links": 1,
            },
        },
        "source": "an ASTRA-sim network file",
    }
    assumed = [f"GPU and host of {BASE}: a network file says nothing of them"]
    if rest > 1:
        nic = {"count": inner, "bandwidth": f"{rates[1]} per NIC each way"}
        table["node"] = {**dict(table["node"]), "nic": nic}  # type: ignore[call-overload]
        table["fabric"] = {"base": "ib", "hop_latency": f"{network.latency[1]!r}ns", "efficiency": 1.0}
        assumed.append("the second dimension as one NIC for each GPU and a fabric between nodes, without contention")
    if network.topology[0] == "Ring":
        assumed.append("the inner ring as direct links")
    if len(network.npus_count) > 2:
        assumed.append("dimensions beyond the second as fast as the second")
    from windtunnel.spec.loading.load import load_cluster

    return load_cluster(table), tuple(assumed)
