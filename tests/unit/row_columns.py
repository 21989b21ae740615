"""Columns of the tables that tests write."""

from __future__ import annotations

TRAINING = (
    "id", "family", "framework", "arch", "layers", "hidden", "heads", "ffn", "seq", "gbs", "mbs", "gpu", "gpus", "gpus_per_node",
    "fabric", "tp", "pp", "dp", "sharding", "recompute", "precision", "iter_time_s",
)  # fmt: skip
COLLECTIVE = ("id", "family", "gpu", "gpus_per_node", "nodes", "gpus", "fabric", "collective", "bytes", "time_us")
