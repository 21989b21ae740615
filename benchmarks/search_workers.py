"""How much faster two workers predict than one: processes and Ray, predictions only.

    python benchmarks/search_workers.py [ROUNDS]

Predicts all plans whose bound is within 25 % of the best plan of Llama-3.1-70B on 512 H100 (more than 20 CPU seconds), with workers
that have started and predicted one plan each. Rounds are interleaved, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import statistics
import sys
import time

from windtunnel.cli.search_space import question
from windtunnel.cli.source import job_of
from windtunnel.search.find import Limits, Plans, Search, plans_of
from windtunnel.search.objective import objectives
from windtunnel.search.trial import Trial, Workers
from windtunnel.search.workers import workers_of

WITHIN = Limits(gap=-0.25)
WAYS = {"1 process": (1, None), "2 processes": (2, None), "Ray, 1 worker": (1, "local"), "Ray, 2 workers": (2, "local")}


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    asked = question(lambda sets: job_of("llama3.1-70b", sets, "h100-ib"), ["cluster.gpus=512"], None, ())
    plans = plans_of(asked.spaces, objectives("time"))
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name, (count, ray) in WAYS.items():
            seconds, predicted = once(plans, workers_of(plans.jobs, 0.0, count, ray))
            took[name].append(seconds)
            print(f"round {number + 1}: {name:15} {predicted} plans in {seconds:6.2f} s", flush=True)
    middle = {name: statistics.median(all_) for name, all_ in took.items()}
    print(f"medians of {rounds}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in middle.items()))
    for one, two in (("1 process", "2 processes"), ("Ray, 1 worker", "Ray, 2 workers")):
        each = sorted(a / b for a, b in zip(took[one], took[two], strict=True))
        print(f"{two}: {middle[one] / middle[two]:.2f} x {one} (rounds: {', '.join(f'{ratio:.2f}' for ratio in each)})")
    return 0


def once(plans: Plans, workers: Workers) -> tuple[float, int]:
    """Seconds and number of predictions."""
    found = Search(plans, objectives("time"), workers)
    try:
        for _ in range(workers.slots):
            workers.submit(Trial(0, int(plans.frame[0]), plans.change(0), True))
        for _ in range(workers.slots):
            workers.next()
        begun = time.perf_counter()
        found.run(limits=WITHIN)
        return time.perf_counter() - begun, len(found.known)
    finally:
        workers.close()


if __name__ == "__main__":
    sys.exit(main())
