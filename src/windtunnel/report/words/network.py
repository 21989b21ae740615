"""What an engine did to the network over a step, in a sentence."""

from __future__ import annotations

from windtunnel.network.simulate.traffic import HotLink, Traffic
from windtunnel.sheet import numbers as say

_NOT_ON_A_WIRE = ("host_pauses",)
"""Counted in the data only: a GPU or host that holds its own data back until its NIC is free sends no pause frame."""


def shown_hot(traffic: Traffic, most: int, each: int) -> list[HotLink]:
    """The hottest links, at most `each` of one level: a level's links are often equally full."""
    seen: dict[str, int] = {}
    shown = []
    for hot in traffic.hot:
        seen[hot.level] = seen.get(hot.level, 0) + 1
        if seen[hot.level] <= each:
            shown.append(hot)
    return shown[:most]


def filled_by(hot: HotLink, most: int) -> str:
    """The calls that fill a link and their shares of its bytes, the `most` largest."""
    named = [f"{call.name} {say.percent(call.share, 0)}" for call in hot.calls[:most]]
    if rest := hot.calls[most:]:
        named.append(f"{len(rest)} more {say.percent(sum(call.share for call in rest), 0)}")
    return ", ".join(named)


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
