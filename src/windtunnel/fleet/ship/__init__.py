"""Shipper: one process per node that reads the rings of its ranks and sends new records to the collector."""

from __future__ import annotations

from windtunnel.fleet.ship.policy import ShipPolicy
from windtunnel.fleet.ship.shipper import NodeShipper, ship

__all__ = ["NodeShipper", "ShipPolicy", "ship"]
