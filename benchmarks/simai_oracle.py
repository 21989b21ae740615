"""Agreement with SimAI's EndToEnd.csv: `python benchmarks/simai_oracle.py FOLDER`.

FOLDER holds `simai_analytical_results/*-EndToEnd.csv.gz` with the workloads in `simai_aicb` and `aicb_generated`; the names of the
results state --nvlink and --nic as `_nv360_nic48.5`.
"""

from __future__ import annotations

import gzip
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

from windtunnel_oracles.simai.run import csv_lines, differences, end_to_end
from windtunnel_oracles.simai.setting import SimaiSetting

from windtunnel.formats.simulators.simai.workload import read_workload

EXAMPLES = {
    "example": {"nvlink": 360.0, "nic": 48.5},
    "exampleA100": {"nvlink": 150.0, "nic": 23.5},
    "exampleovl": {"nvlink": 360.0, "nic": 48.5, "dp_overlap": 0.5, "ep_overlap": 0.3, "tp_overlap": 0.2, "pp_overlap": 0.0},
}
"""Options of the runs whose names do not state them; SOURCES.md beside the files has them."""
OLD = {"vpp": 40}
"""What the runs of old headers (`hdr_…`) put into the first line."""


def main(folder: Path) -> None:
    """Prints a line for each result: the totals' error, lines that differ, and how long it took."""
    files = [*(folder / "simai_aicb").glob("*.txt*"), *(folder / "aicb_generated").glob("*.txt*")]
    workloads = {path.name.split(".txt")[0]: path for path in files}
    worst = 0.0
    for path in sorted((folder / "simai_analytical_results").glob("*EndToEnd.csv.gz")):
        name = path.name.removesuffix("-EndToEnd.csv.gz")
        rates = re.search(r"_?_nv([\d.]+)_nic([\d.]+)$", name)
        base = name[: rates.start()] if rates else name
        base = {"micro": "microAllReduce"}.get(base, "workload_analytical" if base in EXAMPLES else base.removeprefix("hdr_"))
        options = {"nvlink": float(rates[1]), "nic": float(rates[2])} if rates else EXAMPLES.get(name, EXAMPLES["example"])
        began = time.process_time()
        source = read_workload(workloads[base])
        if name.startswith("hdr_"):
            source = replace(source, keys={**source.keys, **OLD})
        setting = SimaiSetting(source.keys.get("gpus", 128), **options)
        result = end_to_end(source, setting)
        rows = list(csv_lines(result, f"{name}-"))
        seconds = time.process_time() - began
        with gzip.open(path, "rt") as file:
            wanted = file.read().splitlines()
        total = float(wanted[1].rpartition(", ")[2])
        error = abs(result.total / total - 1)
        worst = max(worst, error)
        other = sum(a != b for a, b in zip(rows, wanted, strict=False)) + abs(len(rows) - len(wanted))
        print(f"{name[:60]}: {total:,.0f} us, error {error:.4%}, {other} of {len(wanted)} lines differ, {seconds:.3f} s")
        for one in differences(source, setting, result):
            effect = "not known" if one.microseconds is None else f"{one.microseconds:+,.0f} us"
            print(f"    {effect}: {one.count} x {one.what}")
    print(f"largest error of a total: {worst:.4%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
