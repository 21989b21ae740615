"""Servers on a dragonfly or dragonfly+: one after the other on the ports of a switch, switch by switch, group by group.

A server whose NICs do not fit on one switch takes the next ones as well, and no server lies in two groups. Its ports that are left
stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.dragonfly import Dragonfly
from windtunnel.network.fabrics.dragonfly_plus import DragonflyPlus
from windtunnel.network.fabrics.drawn.levels import Levels


@dataclass(frozen=True)
class GroupPorts:
    """Ports of the groups of `builder`, for servers with `nics` NICs each."""

    builder: Dragonfly | DragonflyPlus
    nics: int

    @property
    def switches(self) -> int:
        """Switches of a group that have ports for hosts."""
        return self.builder.a if isinstance(self.builder, Dragonfly) else self.builder.leaves

    @property
    def of_switch(self) -> int:
        """Servers on one switch; 0 if a server takes several."""
        return self.builder.p // self.nics

    @property
    def switches_of_server(self) -> int:
        """Switches that a server is cabled to."""
        return -(-self.nics // self.builder.p)

    @property
    def of_group(self) -> int:
        """Servers of a group."""
        return self.switches * self.of_switch if self.of_switch else self.switches // self.switches_of_server

    @property
    def servers(self) -> int:
        return self.builder.count_groups() * self.of_group

    @property
    def more(self) -> str:
        name = "a" if isinstance(self.builder, Dragonfly) else "leaves"
        return f"Set a larger groups, p, h or {name}"

    def attach(self, columns: Columns, nics: Int32s, rate: float, share: float) -> None:
        switches = self.builder.join_switches(columns, share)
        server, nic = np.arange(len(nics))[:, None], np.arange(self.nics)
        group, place = server // self.of_group, server % self.of_group
        switch = place // self.of_switch + 0 * nic if self.of_switch else place * self.switches_of_server + nic // self.builder.p
        columns.cables(nics, switches[group, switch], rate * share, self.builder.latency)

    def levels(self, servers: int, rate: float) -> Levels:
        """No message takes more than the links to switches and groups that are in use, on shortest paths."""
        one = self.builder
        used = min(one.count_groups(), -(-servers // max(1, self.of_group)))
        ports = max(1, self.of_switch) * self.nics if self.of_switch else min(one.p, self.nics)
        plus = isinstance(one, DragonflyPlus)
        if isinstance(one, DragonflyPlus):
            up, outside = one.spines, one.spines * one.h
        else:
            here = (
                self.switches if used > 1 else min(self.switches, -(-servers * self.switches_of_server // max(1, self.of_switch)))
            )
            up, outside = max(1, here - 1 + (one.h if used > 1 else 0)), one.a * one.h
        between = outside // (one.count_groups() - 1) * (used - 1) if used > 1 else outside
        inside = 2 * one.latency if plus else one.latency if self.switches > 1 else 0.0
        far = (2 * one.latency if plus or self.switches > 1 else 0.0) + one.global_latency
        return Levels(
            max(1, self.of_switch),
            max(1, self.of_group),
            ports * rate / (up * one.link),
            max(1, self.of_group) * self.nics * rate / (max(1, between) * one.link),
            inside,
            far,
        )
