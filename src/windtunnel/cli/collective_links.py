"""`windtunnel collective` over an engine: the hottest links of the largest size, as lines below the table and as a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic
    from windtunnel.spec.machine.cluster import Cluster

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

    def write_page(self, path: str, op: str, gpus: int, machine: Cluster, network: str, rows: Sequence[dict[str, object]]) -> None:
        """The page of `--html`."""
        from windtunnel.report.page.collective import write_collective_html

        if self.seen is None:
            return
        gpu, fabric = machine.gpu.name, machine.fabric
        about = (f"{gpus:,} × {gpu} ({machine.id}), {fabric.kind} fabric", f"predicted by the {network} engine, not run")
        command = shlex.join(["windtunnel", *sys.argv[1:]])
        write_collective_html(path, f"{op} on {gpus:,} GPUs", about, self.seen[0], rows, self.seen[1], command)


def check_page_of(html: str | None, network: str, skip: bool) -> None:
    """Raises SpecError or FileError for a page that cannot be made."""
    if html is None:
        return
    from windtunnel.report.page.frame import check_page

    if html == "-":
        raise SpecError("--html", html, "a file name", "Only --json prints to standard output.")
    check_page(html)
    if network == "closed":
        raise SpecError("--html", html, "--network flow or --network packet", "The closed form has no links to draw.")
    if skip:
        raise SpecError("--html", html, "no --skip", "What is skipped has no place in the load over time.")


def _size(row: dict[str, object]) -> float:
    return float(str(row["size"]))
