"""Agreement with LogGOPSim: `python benchmarks/goal_oracle.py FOLDER`.

FOLDER holds `oracle_loggopsim.csv` (goal, L, o, g, G, O, S, rc, events, max_ns, host_ns; no times where it printed none) and the
schedules that it names.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

from windtunnel_oracles.loggops import LogGOPS, run_loggops

from windtunnel.formats.traces.goal import read_schedule


def main(folder: Path) -> None:
    """Prints a line for each run."""
    with (folder / "oracle_loggopsim.csv").open() as table:
        rows = list(csv.DictReader(table))
    equal = 0
    for row in rows:
        (path,) = folder.glob(f"{row['goal']}.goal*")
        schedule = read_schedule(path)
        began = time.process_time()
        result = run_loggops(schedule, LogGOPS(*(int(row[name]) for name in ("L", "o", "g", "G", "O", "S"))))
        seconds = time.process_time() - began
        here = "no end" if result.is_stuck else str(result.end)
        there = row["max_ns"] or "no end"
        hosts = not row["host_ns"] or result.is_stuck or list(result.hosts) == [int(one) for one in row["host_ns"].split()]
        same = here == there and hosts and result.events == int(row["events"])
        equal += same
        speed = f"{result.events / max(seconds, 1e-9):,.0f} events/s"
        verdict = "equal" if same else "DIFFERENT"
        print(f"{row['goal']} L={row['L']} G={row['G']} O={row['O']}: {here} ns, there {there}, {verdict}; {speed}")
    print(f"{equal} of {len(rows)} runs equal: end, hosts, number of events")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
