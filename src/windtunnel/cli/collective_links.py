"""What stands beside the table of `windtunnel collective`: the hottest links of the largest size, measured calls, the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.pages import check_html, said_command, write_html

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic
    from windtunnel.records.measured_calls import MeasuredCall
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
        from windtunnel.report.words.network import filled_by, shown_hot
        from windtunnel.sheet import numbers as say

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


def check_page_of(html: str | None, skip: bool) -> None:
    """Raises SpecError or FileError for a page that cannot be made."""
    if html is None:
        return
    if html == "-":
        raise SpecError("--html", html, "a file name", "Only --json prints to standard output.")
    check_html(html)
    if skip:
        raise SpecError("--html", html, "no --skip", "What is skipped has no place in the load over time.")


def read_measured(files: Sequence[str] | None, op: str, gpus: int) -> list[MeasuredCall]:
    """Calls of `op` on `gpus` ranks in logs of nccl-tests, rccl-tests or OSU's benchmarks. SpecError where there are none."""
    if not files:
        return []
    from windtunnel.formats.door import read_files
    from windtunnel.formats.reading import Content

    reading = read_files(list(files))
    if reading.content is not Content.COLLECTIVES:
        raise SpecError("--measured", files[0], "a log of nccl-tests, rccl-tests or OSU's benchmarks", "It holds something else.")
    tables = reading.value.tables
    same = [one for one in tables if one.comm.name.lower() == op and one.ranks in (0, gpus) and not one.on_host]
    if not same:
        there = sorted({f"{one.comm.name.lower()} on {one.ranks or 'unknown'} ranks" for one in tables})
        raise SpecError("--measured", files[0], f"calls of {op} on {gpus} ranks", f"It has {', '.join(there) or 'no table'}.")
    return [call for one in same for call in one.calls]


def measured_lines(rows: Sequence[dict[str, object]], measured: Sequence[MeasuredCall]) -> list[str]:
    """Comments below the table of nccl-tests: sizes that were measured, the fastest of each, and how far the prediction is off."""
    lines = []
    for row in rows:
        took = [call.seconds for call in measured if call.bytes == float(str(row["size"])) and call.seconds > 0.0]
        if took:
            predicted = float(str(row["time_us"])) * 1e-6
            lines.append(f"# Measured, {row['size']:.0f} B: {min(took) * 1e6:.2f} us, predicted {predicted / min(took) - 1.0:+.1%}")
    return lines or (["# Measured: none of these sizes"] if measured else [])


def write_page(
    path: str,
    name: str,
    gpus: int,
    machine: Cluster,
    network: str,
    rows: Sequence[dict[str, object]],
    largest: Largest,
    measured: Sequence[MeasuredCall],
    **options: Any,
) -> None:
    """The page of `--html`. `options`: `settings` and `per_node` of the call."""
    from windtunnel.network.api import sweep_algorithms
    from windtunnel.report.page.collective import CollectiveAnswer, page

    gpu, fabric = machine.gpu.name, machine.fabric
    how = "in closed form" if network == "closed" else f"by the {network} engine"
    about = (f"{gpus:,} × {gpu} ({machine.id}), {fabric.kind} fabric", f"predicted {how}, not run")
    alone = sweep_algorithms(machine, name, gpus, [float(str(row["size"])) for row in rows], **options)
    answer = CollectiveAnswer(rows, alone, measured, largest.seen)
    write_html(page(f"{name} on {gpus:,} GPUs", about, answer, said_command()), path)


def _size(row: dict[str, object]) -> float:
    return float(str(row["size"]))
