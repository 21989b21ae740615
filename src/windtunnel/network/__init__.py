"""Closed-form network: who communicates, over which links, for how long."""

from windtunnel.network.closed.collective import CommEstimate, bus_factor, collective, sweep
from windtunnel.network.groups.shape import Group, flat_group, group

__all__ = ["CommEstimate", "Group", "bus_factor", "collective", "flat_group", "group", "sweep"]
