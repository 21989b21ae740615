"""What stands beside the table of `windtunnel collective`: the links during the largest size, and measured calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic
    from windtunnel.records.measured_calls import MeasuredCall

    Seen = tuple[dict[str, object], Traffic]
    """A row of the table and what its run did to the links."""


class Largest:
    """Keeps what it is given of the largest size."""

    def __init__(self) -> None:
        self.seen: Seen | None = None

    def __call__(self, row: dict[str, object], traffic: Traffic) -> None:
        if self.seen is None or _size(row) >= _size(self.seen[0]):
            self.seen = row, traffic

    def table(self) -> dict[str, object]:
        """Keys of the JSON: the size, and what its call did to the links."""
        if self.seen is None:
            return {}
        from windtunnel.api.json import traffic_table

        return {"traffic_size": _size(self.seen[0]), "traffic": traffic_table(self.seen[1])}


def read_measured(files: Sequence[str] | None, op: str, gpus: int) -> list[MeasuredCall]:
    """Calls of `op` on `gpus` ranks in logs of nccl-tests, rccl-tests or OSU's benchmarks. SpecError where there are none."""
    if not files:
        return []
    from windtunnel.base.comm import Comm
    from windtunnel.formats.door import read_files
    from windtunnel.formats.reading import Content, Context

    named = next((comm for comm in Comm if comm.name.lower() == op), None)
    reading = read_files(list(files), Context(op=named, ranks=gpus))
    if reading.content is not Content.COLLECTIVES:
        raise SpecError("--measured", files[0], "a log of nccl-tests, rccl-tests or OSU's benchmarks", "It holds something else.")
    tables = reading.value.tables
    same = [one for one in tables if one.comm.name.lower() == op and one.ranks in (0, gpus) and not one.on_host]
    if not same:
        there = sorted({f"{one.comm.name.lower()} on {one.ranks or 'unknown'} ranks" for one in tables})
        raise SpecError("--measured", files[0], f"calls of {op} on {gpus} ranks", f"It has {', '.join(there) or 'no table'}.")
    return [call for one in same for call in one.calls]


def _size(row: dict[str, object]) -> float:
    return float(str(row["size"]))
