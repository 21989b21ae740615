"""`python -m tests.faults.soak [--faults N] [--mtbf SECONDS]`: the soak (F16).

First each kind of fault alone, a few times: its laws. Then a run of random faults at a stated rate. ETTR is predicted from the
laws and the rate, before the run is looked at, and compared with what was measured.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

from tests.faults.soak.keeper import Keeper
from windtunnel.goodput.measured import FleetRun, measured_conditions, predict_fleet
from windtunnel.records.incidents import Class
from windtunnel.runs.fleet_kept import fleet_run

KINDS: tuple[Class, ...] = ("crash", "hang", "early-exit", "nan", "segfault", "node-lost")


def soak(folder: Path, gaps: list[float], kinds: list[Class], dice: random.Random) -> tuple[FleetRun, int]:
    """A run whose faults come after these seconds of training each. The run, and the steps that it kept."""
    keeper = Keeper(folder)
    began = time.time()
    try:
        keeper.start()
        while not (folder / "checkpoint").exists():  # the first interval is free of faults
            time.sleep(0.01)
        trained = began = time.time()
        first = keeper.at()
        for gap, what in zip(gaps, kinds, strict=True):
            time.sleep(max(0.0, trained + gap - time.time()))
            rank = dice.randrange(keeper.ranks)
            trained = keeper.recover(what, rank, keeper.strike(what, rank), trained)
        ended, last = time.time(), keeper.at()
    finally:
        keeper.end()
    run = fleet_run(folder, nodes=2)
    saves = [seconds for seconds in run.saves]
    return replace(run, began=began, ended=ended, saves=tuple(saves[1:])), max(0, last - first)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--single", type=int, default=6, help="of each kind, for its laws")
    parser.add_argument("--mtbf", type=float, default=6.0, help="seconds of training between faults")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="a new folder for both runs; default: one that is removed")
    given = parser.parse_args()
    assert set(KINDS) <= set(get_args(Class))
    dice = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as place:
        alone, long = (given.keep or Path(place)) / "alone", (given.keep or Path(place)) / "long"
        alone.mkdir(parents=True)
        long.mkdir()
        kinds = [kind for kind in KINDS for _ in range(given.single)]
        learned, _ = soak(alone, [dice.uniform(0.8, 2.2) for _ in kinds], kinds, dice)
        laws = measured_conditions(learned)
        rate = sum(laws.rate(kind) for _, kind in laws.kinds)
        laws = replace(laws, kinds=tuple((name, kind.often(1.0 / given.mtbf / rate)) for name, kind in laws.kinds))
        found = predict_fleet(laws, given.faults * given.mtbf, 0)
        gaps = [dice.expovariate(1.0 / given.mtbf) for _ in range(given.faults)]
        run, steps = soak(long, gaps, [dice.choice(KINDS) for _ in gaps], dice)
        told = {
            "faults": len(run.incidents),
            "minutes": round(run.wall / 60, 1),
            "ettr_predicted": round(found.predicted, 4),
            "ettr_low": round(found.low, 4),
            "ettr_high": round(found.high, 4),
            "ettr_measured": round(run.ettr, 4),
            "ettr_by_steps": round(steps * learned.step / run.wall, 4),
            "points": round(100 * (run.ettr - found.predicted), 2),
            "mean_gap_s": round(sum(gaps) / len(gaps), 3),
            "parts_measured": {name: round(share, 4) for name, share in run.parts.items()},
            "parts_predicted": {name: round(share, 4) for name, share in found.parts.items()},
            "step_s": round(learned.step, 5),
            "interval_s": round(learned.interval, 3),
            "slowest_seen_alone_s": round(max(one.seconds.detect or 0.0 for one in learned.incidents), 3),
            "kinds": {kind: sum(one.what == kind for one in run.incidents) for kind in KINDS},
        }
    print(json.dumps(told, indent=1))
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
