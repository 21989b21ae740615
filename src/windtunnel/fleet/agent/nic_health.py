"""Health of a node's InfiniBand and RoCE ports as the kernel counts it: errors of a cable, a port or a peer that rise.

Reads a few small files of /sys a port. Congestion (ECN marks, pauses) is no fault of the node, and is not told here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path("/sys/class")
COUNTERS = {
    "counters/link_downed": (1, "has lost its link"),
    "counters/link_error_recovery": (1, "has recovered its link from errors"),
    "counters/symbol_error": (100, "has symbol errors"),
    "counters/port_rcv_errors": (100, "has received broken packets"),
    "counters/local_link_integrity_errors": (1, "has errors of the link's integrity"),
    "counters/excessive_buffer_overrun_errors": (1, "has overrun its buffers"),
    "hw_counters/rx_icrc_encapsulated": (1, "has received packets with a wrong checksum"),
    "hw_counters/local_ack_timeout_err": (100, "has waited in vain for answers of its peers"),
    "hw_counters/packet_seq_err": (100, "has been asked to send lost packets again"),
    "hw_counters/out_of_sequence": (100, "has received packets out of order: packets were lost"),
}
"""File below a port → (rise from which it is told, what it says). Names: Linux's rdma and mlx5 counters. The rises are assumed: a
cable within its specification has single symbol errors in hours."""


@dataclass
class NicHealth:
    """Looks at all ports of this machine."""

    root: Path = ROOT
    _before: dict[Path, int] = field(default_factory=dict)
    """Counters when they were first read: only what rises since then is told."""

    @property
    def ports(self) -> list[Path]:
        """The folders of the ports."""
        return sorted(self.root.glob("infiniband/*/ports/*"))

    def look(self) -> tuple[str, ...]:
        """What is wrong, a sentence each, such as `port 1 of mlx5_0 has symbol errors: 5,120`."""
        told = []
        for port in self.ports:
            for name, (least, what) in COUNTERS.items():
                risen = self._risen(port / name)
                if risen >= least:
                    told.append(f"port {port.name} of {port.parts[-3]} {what}: {risen:,}")
        return tuple(told)

    def _risen(self, path: Path) -> int:
        try:
            value = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0  # a port or driver without this counter
        return max(0, value - self._before.setdefault(path, value))
