"""Shipper: one process per node that reads the rings of its ranks and sends new records to the collector."""

from __future__ import annotations

from windtunnel.fleet.ship.shipper import NodeShipper, ShipPolicy, ship

__all__ = ["NodeShipper", "ShipPolicy", "ship"]
