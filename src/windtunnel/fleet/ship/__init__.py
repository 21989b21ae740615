"""One process a node: reads the rings of its ranks and sends what is new to the collector."""

from __future__ import annotations

from windtunnel.fleet.ship.policy import ShipPolicy
from windtunnel.fleet.ship.shipper import NodeShipper, ship

__all__ = ["NodeShipper", "ShipPolicy", "ship"]
