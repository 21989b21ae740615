"""Plain flows in words: names of links and counters, hash collisions, what was assumed."""

from __future__ import annotations

from windtunnel.network.flows.run import FlowsResult
from windtunnel.network.simulate.collisions import Collisions


def link_name(result: FlowsResult, link: int) -> str:
    """`leaf0->spine3`."""
    graph = result.graph
    return f"{graph.name(int(graph.link_from[link]))}->{graph.name(int(graph.link_to[link]))}"


def say_counter(name: str) -> str:
    """`ack packet hops`; units stay: `cpu_s`, `mtu_B`."""
    return name if name.endswith(("_s", "_B", "_Bps")) else name.replace("_", " ")


def say_assumed(result: FlowsResult) -> list[str]:
    """What was assumed: a line for each table, then the rest in one."""
    tables = {name: value for name, value in result.assumed.items() if isinstance(value, dict)}
    lines = [f"{say_counter(name)}: {_table_text(value)}" for name, value in tables.items()]
    rest = [
        f"{say_counter(name)} {_table_text(value)}"
        for name, value in result.assumed.items()
        if name not in tables and value is not None
    ]
    return [*lines, " · ".join(rest)]


def _table_text(value: object) -> str:
    """`a=1 b=2` of a table."""
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{key}={one:.6g}" if isinstance(one, float) else f"{key}={one}" for key, one in value.items())


def collision_sentence(result: FlowsResult, met: Collisions) -> str:
    """Hash collisions on the worst link and for the average byte."""
    worst = f"{met.worst_flows} flows on {link_name(result, met.worst_link)} where {met.worst_flows_even:.3g} would be even"
    return (
        f"hash collisions: the worst link needs {met.worst_factor:.2f} times as long as an even spread ({worst}); "
        f"the average byte meets {met.mean_factor:.2f}"
    )
