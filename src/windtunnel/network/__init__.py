"""Closed-form network: who communicates, over which links, for how long."""

from windtunnel.network.collective import CommEstimate, bus_factor, collective, sweep
from windtunnel.network.group import Group, flat_group, group

__all__ = ["CommEstimate", "Group", "bus_factor", "collective", "flat_group", "group", "sweep"]
