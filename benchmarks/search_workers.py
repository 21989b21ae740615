"""How much faster two workers predict than one: processes and Ray, predictions only.

    python benchmarks/search_workers.py [ROUNDS]

Predicts all plans whose bound is within 25 % of the best plan of Llama-3.1-70B on 512 H100 (more than 20 CPU seconds on most
machines), with workers that have started and predicted one plan each. Rounds are interleaved, so that what else the machine does
falls on all alike. "own" are the seconds of the slowest process without those in which it was ready and another had its core, as
Linux counts them (`/proc/PID/schedstat`): the figure to read where the machine is shared. A worker that waits for the search, which
waits for a core, counts against it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

from windtunnel.jobs.load import load_described_job as job_of
from windtunnel.jobs.search_space import question
from windtunnel.search.find import Plans, Search, SearchLimits, plans_of
from windtunnel.search.objective import objectives
from windtunnel.search.outcome import Trial
from windtunnel.search.workers import Workers, workers_of

WITHIN = SearchLimits(gap=-0.25)
BUSY = 0.1
"""Share of the time that a process has to run to count: idle processes of Ray do not."""

WAYS = {"1 process": (1, None), "2 processes": (2, None), "Ray, 1 worker": (1, "local"), "Ray, 2 workers": (2, "local")}


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    asked = question(lambda sets: job_of("llama3.1-70b", sets, "h100-ib"), ["cluster.gpus=512"], None, ())
    plans = plans_of(asked.spaces, objectives("time"))
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name, (count, ray) in WAYS.items():
            seconds, own, predicted = once(plans, workers_of(plans.jobs, 0.0, count, ray))
            took[name].append((seconds, own))
            print(f"round {number + 1}: {name:15} {predicted} plans in {seconds:6.2f} s, own {own:6.2f} s", flush=True)
    for what, place in (("seconds", 0), ("own seconds", 1)):
        middle = {name: statistics.median(one[place] for one in every) for name, every in took.items()}
        print(f"{what}, medians of {rounds}: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in middle.items()))
        for one, two in (("1 process", "2 processes"), ("Ray, 1 worker", "Ray, 2 workers")):
            print(f"  {two}: {middle[one] / middle[two]:.2f} x {one}")
    return 0


def once(plans: Plans, workers: Workers) -> tuple[float, float, int]:
    """Seconds, own seconds of the slowest process, and number of predictions."""
    found = Search(plans, objectives("time"), workers)
    try:
        for _ in range(workers.slots):
            workers.submit(Trial(0, int(plans.frame[0]), plans.change(0), True))
        for _ in range(workers.slots):
            workers.next()
        before = {pid: _times(pid) for pid in _processes()}
        begun = time.perf_counter()
        found.run(limits=WITHIN)
        seconds = time.perf_counter() - begun
        spent = {pid: [now - then for now, then in zip(_times(pid), times, strict=True)] for pid, times in before.items()}
        here = spent.pop(os.getpid())  # it only waits for the others where there are any
        own = max((seconds - waited for ran, waited in spent.values() if ran > BUSY * seconds), default=seconds - here[1])
        return seconds, own, len(found.known)
    finally:
        workers.close()


def _processes() -> list[int]:
    """This process, its forks, and Ray's workers."""
    pids = [os.getpid()]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, parent = (entry / "cmdline").read_bytes(), (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # it has ended
        if name.startswith((b"ray::_trial", b"ray::IDLE")) or int(parent) == os.getpid() and b"search_workers" in name:
            pids.append(int(entry.name))
    return pids


def _times(pid: int) -> tuple[float, float]:
    """Seconds in which the main thread of a process ran, and in which it was ready and had no core."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


if __name__ == "__main__":
    sys.exit(main())
