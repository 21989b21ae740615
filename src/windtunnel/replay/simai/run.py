"""SimAI's analytical mode for the file of a workload: its table, and where it departs from its own formulas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.simai.ratios import DEFAULT, read_ratios
from windtunnel.formats.simulators.simai.workload import read_workload
from windtunnel.replay.simai.arithmetic import EndToEnd, end_to_end
from windtunnel.replay.simai.differences import Difference, differences
from windtunnel.replay.simai.setting import SimaiSetting
from windtunnel.replay.simai.table import csv_lines, summary_of


@dataclass(frozen=True)
class SimaiRun:
    """What SimAI prints. `departures`: where it departs from its formulas, and the us that the total would change by; `broken`:
    what of the workload could not be read; `assumed_keys`: keys of its first line that are 1, since it does not say."""

    name: str
    result: EndToEnd
    departures: tuple[Difference, ...]
    broken: tuple[str, ...]
    assumed_keys: tuple[str, ...]

    @property
    def csv(self) -> str:
        """The text of EndToEnd.csv."""
        return "\n".join(csv_lines(self.result, self.name)) + "\n"

    @property
    def summary(self) -> dict[str, str]:
        """The last lines of the table, by name."""
        return summary_of(self.result, self.name)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; microseconds."""
        result = self.result
        return {
            "schema": "windtunnel.simai/1",
            "summary": self.summary,
            "microseconds": {
                "dp": result.dp, "dp_ep": result.dp_ep, "tp": result.tp, "ep": result.ep, "pp": result.pp, "bubble": result.bubble,
                "compute": result.compute, "exposed": result.exposed, "total": result.total,
            },
            "differences": [one.as_dict() for one in self.departures],
            "layer_rows": len(result.lines),
            "broken": list(self.broken),
        }  # fmt: skip


def run_simai(
    workload: str | Path, gpus: int | None = None, ratios: str | Path | None = None, name: str | None = None, **options: Any
) -> SimaiRun:
    """The table for a workload that AICB wrote, plain or gzip.

    `gpus`: all_gpus of its first line where left out; `ratios`: a folder with nic_ratio.csv, nvlink_ratio.csv and ata_ratio.csv;
    `name` of the run in the table. `options`: the other fields of SimaiSetting. FileError and SpecError for files and settings that
    are none.
    """
    path = Path(workload)
    source = read_workload(path)
    count = gpus if gpus is not None else source.keys.get("gpus", 0)
    if not count:
        raise SpecError("--gpus", gpus, "a number of GPUs: the first line of the workload has no all_gpus")
    setting = SimaiSetting(count, **options)
    tables = DEFAULT if ratios is None else read_ratios(Path(ratios))
    result = end_to_end(source, setting, tables)
    missing = tuple(key for key in ("ep", "pp", "vpp", "ga") if key not in source.keys)
    departures = tuple(differences(source, setting, result, tables))
    return SimaiRun(name if name is not None else path.name.split(".txt")[0], result, departures, tuple(source.broken), missing)
