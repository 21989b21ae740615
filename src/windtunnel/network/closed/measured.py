"""The fitted constants of collectives with the factors that a cluster's own measurements put on them."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.network.closed.fitted import NetConstants, NodeConstants, Triple
from windtunnel.spec.machine.cluster import Achieved


def scale_constants(node: NodeConstants, net: NetConstants, achieved: Achieved) -> tuple[NodeConstants, NetConstants]:
    """Seconds of launches and hops times their factors, fractions of links times the factor of the rate."""
    hop, rate = achieved.inside_hop, achieved.inside_rate
    rates = achieved.inside_ll_rate, achieved.inside_ll128_rate, rate
    inside = replace(
        node,
        launch=node.launch * achieved.launch,
        p2p_launch=node.p2p_launch * achieved.launch,
        hop=_times(node.hop, hop),
        tree_hop=_times(node.tree_hop, hop),
        nvls_hop=node.nvls_hop * hop,
        nvls_head=node.nvls_head * hop,
        ring=_multiply_each(node.ring, rates),
        tree=_multiply_each(node.tree, rates),
        nvls=node.nvls * rate,
        p2p=node.p2p * rate,
        exchange=node.exchange * rate,
        channel=node.channel * rate,
    )
    hop, rate = achieved.across_hop, achieved.across_rate
    across = replace(
        net,
        launch=net.launch * hop,
        p2p_launch=net.p2p_launch * hop,
        hop=_times(net.hop, hop),
        tree_hop=_times(net.tree_hop, hop),
        nvls_hop=net.nvls_hop * hop,
        message=net.message * hop,
        ring=net.ring * rate,
        tree=net.tree * rate,
        p2p=net.p2p * rate,
        pair=net.pair * rate,
    )
    return inside, across


def _times(triple: Triple, factor: float) -> Triple:
    return triple[0] * factor, triple[1] * factor, triple[2] * factor


def _multiply_each(triple: Triple, factors: Triple) -> Triple:
    return triple[0] * factors[0], triple[1] * factors[1], triple[2] * factors[2]
