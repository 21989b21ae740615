"""What links carried over time, as the engines count it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int32s
from windtunnel.base.dataclasses import dataclass


@dataclass(frozen=True)
class LinkLoads:
    """Series of the links that carried something. Bin b lasts from b x `width` to (b + 1) x `width` seconds; there are at
    most 128."""

    width: float
    row: Int32s
    """[L] the row of each link's series; -1: it carried nothing."""
    bytes: Floats
    """[rows, bins] bytes."""
    queue: npt.NDArray[np.int64] | None = None
    """[rows, bins] most bytes that waited for the link; None for fluids, which do not queue."""

    @classmethod
    def of_flows(cls, raw: Mapping[str, Any]) -> LinkLoads | None:
        """From a report of the flow engine; None if it was not asked to count."""
        return cls(raw["bin_width"], raw["bin_row"], raw["bin_bytes"]) if "bin_row" in raw else None

    @classmethod
    def of_packets(cls, raw: Mapping[str, Any]) -> LinkLoads | None:
        """From a report of the packet engine; None if it was not asked to count."""
        if not len(raw["bin_link"]):
            return None
        row = np.full(len(raw["link_data"]), -1, np.int32)
        row[raw["bin_link"]] = np.arange(len(raw["bin_link"]))
        return cls(raw["bin_width"], row, raw["bin_bytes"].astype(np.float64), raw["bin_queue"])

    @property
    def bins(self) -> int:
        """Number of bins."""
        return int(self.bytes.shape[1])

    def bytes_of(self, links: npt.NDArray[np.integer]) -> Floats:
        """Bytes [n, bins] of `links` [n]; zeros where a link carried nothing."""
        return _rows(self.bytes, self.row[links])

    def bin_bytes(self, number: int, links: npt.NDArray[np.integer]) -> Floats:
        """Bytes [n] of `links` [n] in one bin."""
        rows = self.row[links]
        return np.where(rows >= 0, self.bytes[rows, number], 0.0)

    def queue_of(self, links: npt.NDArray[np.integer]) -> Floats:
        """Most bytes that waited [n, bins] for `links` [n]; zeros for fluids."""
        return _rows(np.zeros_like(self.bytes) if self.queue is None else self.queue.astype(np.float64), self.row[links])


class Sent(NamedTuple):
    """Rows: a link, a tag (-1: pauses and credits, which no lane sends), and bytes that it sent over the link."""

    link: npt.NDArray[np.integer]
    tag: npt.NDArray[np.integer]
    bytes: Floats

    @classmethod
    def of_packets(cls, raw: Mapping[str, Any]) -> Sent | None:
        """From a report of the packet engine; None if it was not asked to count."""
        if not len(raw["tag_link"]):
            return None
        return cls(raw["tag_link"], raw["tag"], raw["tag_bytes"].astype(np.float64))


def _rows(table: Floats, rows: Int32s) -> Floats:
    out: Floats = np.zeros((len(rows), table.shape[1]))
    out[rows >= 0] = table[rows[rows >= 0]]
    return out
