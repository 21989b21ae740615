"""What an engine did to the network over a step, in a sentence."""

from __future__ import annotations

from windtunnel.network.simulate.traffic import Traffic
from windtunnel.report.words import numbers as say

_NOT_ON_A_WIRE = ("host_pauses",)
"""Counted in the data only: a GPU or host that holds its own data back until its NIC is free sends no pause frame."""


def network_sentence(traffic: Traffic) -> str:
    """Engine, size of the graph, hash collisions, and counters of flow and congestion control."""
    parts = [
        f"{traffic.engine} engine over {traffic.endpoints:,} endpoints, {traffic.switches:,} switches and {traffic.links:,} links",
        f"{say.seconds(traffic.seconds)} of traffic",
    ]
    if traffic.collisions:
        worst, mean = traffic.collisions.get("worst", 0.0), traffic.collisions.get("mean", 0.0)
        parts.append(f"hash collisions put {worst:.2g} times an even share on the worst link, {mean:.2g} times on the mean flow's")
    events = {name: number for name, number in sorted(traffic.events.items()) if number and name not in _NOT_ON_A_WIRE}
    parts += [f"{say.count(number)} {name.replace('_', ' ')}" for name, number in events.items()]
    if traffic.formula:
        parts.append(f"by formula: {', '.join(traffic.formula)}")
    return "; ".join(parts) + "."
