"""`windtunnel collective` over an engine: the hottest links of the largest size, as lines below the table and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic

    Seen = tuple[dict[str, object], Traffic]
    """A row of the table and what its run did to the links."""

MOST_LINES = 4
"""Hottest links below the table."""


class Largest:
    """Keeps what it is given of the largest size."""

    def __init__(self) -> None:
        self.seen: Seen | None = None

    def __call__(self, row: dict[str, object], traffic: Traffic) -> None:
        if self.seen is None or _size(row) >= _size(self.seen[0]):
            self.seen = row, traffic

    def lines(self) -> list[str]:
        """Comments below the table of nccl-tests."""
        if self.seen is None:
            return []
        from windtunnel.report.words import numbers as say
        from windtunnel.report.words.network import filled_by, shown_hot

        row, traffic = self.seen
        return [
            f"# Hottest links, {say.size(_size(row))}: {h.name} {say.percent(h.utilisation)}, by {filled_by(h, 2)}"
            for h in shown_hot(traffic, MOST_LINES, 1)
        ]

    def table(self) -> dict[str, object]:
        """Keys of the JSON: the size, and what its call did to the links."""
        if self.seen is None:
            return {}
        from windtunnel.report.json import traffic_table

        return {"traffic_size": _size(self.seen[0]), "traffic": traffic_table(self.seen[1])}


def _size(row: dict[str, object]) -> float:
    return float(str(row["size"]))
