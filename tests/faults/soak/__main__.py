"""`python -m tests.faults.soak [--faults N] [--mtbf SECONDS]`: the soak (F16), with the real driver, agents and keepers.

First each kind of fault alone, a few times: its laws. Then a run of random faults at a stated rate. ETTR is predicted from the
laws and the rate, before the run begins, and compared with what was measured.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.recovery.kept import NODES, PER_NODE, KeptJob, hurt
from windtunnel.fleet.driver.detect import DetectionLimits
from windtunnel.goodput.conditions import Conditions
from windtunnel.goodput.measured import FleetRun, measured_conditions, predict_fleet
from windtunnel.runs.fleet.kept import fleet_run

SCRIPT = Path(__file__).with_name("script.py")
PRELOAD = ("numpy", "windtunnel.fleet.ring", "windtunnel.fleet.rings", "windtunnel.fleet.watch.session")
STEP, APART, SAVE = 0.02, 50, 0.02
SIGNALS = {
    "crash": signal.SIGKILL, "hang": signal.SIGSTOP, "early-exit": signal.SIGUSR1, "nan": signal.SIGUSR2,
    "segfault": signal.SIGSEGV, "node-lost": signal.SIGKILL,
}  # fmt: skip
"""Kind -> what a rank gets; with a node, its agent and keeper get it, and its ranks end with the keeper."""


@dataclass(frozen=True)
class Soaked:
    """A run, and its ETTR by counted steps: those that it kept, times the seconds of a step without faults, over its seconds."""

    run: FleetRun
    steps: int


def soak(folder: Path, faults: Sequence[tuple[float, str]], dice: random.Random) -> Soaked:
    """A run whose faults (gap, kind) come after so many seconds of training each."""
    words = ("--step", str(STEP), "--apart", str(APART), "--save", str(SAVE))
    limits = DetectionLimits(silent=2.0, stopped=1.0, early=2.0)
    with KeptJob(folder, *words, spares=0, limits=limits, script=SCRIPT, preload=PRELOAD) as job:
        job.drive()
        job.until(lambda: (folder / "checkpoint").exists())  # the first interval is free of faults
        trained = began = time.time()
        first = job.done()
        for gap, kind in faults:
            time.sleep(max(0.0, trained + gap - time.time()))
            known = len(job.incidents())
            strike(job, kind, dice.randrange(NODES * PER_NODE))
            job.until(lambda known=known: len(job.incidents()) > known and job.stepping())
            trained = max(one.ended for one in job.incidents())
        job.until(job.training)
        ended, last = time.time(), job.done()
    run = fleet_run(folder, nodes=NODES)
    return Soaked(replace(run, began=began, ended=ended, saves=run.saves[1:]), last - first)


def strike(job: KeptJob, kind: str, rank: int) -> None:
    """Puts a fault in. RuntimeError where there is nobody to hurt: the job is over, or has not come back."""
    pids = [job.rank(rank)[0]]
    if kind == "node-lost":
        pids = [job.keeper_of(rank), job.agent(f"node{rank // PER_NODE}")]
    if not all([hurt(pid, SIGNALS[kind]) for pid in reversed(pids)]):
        raise RuntimeError(f"no rank {rank} for {kind}: {job.said()[-3:]}")


def told(laws: Soaked, long: Soaked, mtbf: float) -> dict[str, object]:
    """What the laws predict of the long run, beside what it did."""
    run = long.run
    found = predict_fleet(at_rate(laws.run, mtbf), run.wall, 0)
    recovered = [one for one in run.incidents if one.outcome == "recovered"]
    drawn = (run.wall - sum(one.seconds.down for one in recovered)) / len(recovered)
    parts = {name: (round(run.parts.get(name, 0.0), 4), round(share, 4)) for name, share in found.parts.items()}
    return {
        "faults": len(recovered),
        "minutes": round(run.wall / 60, 1),
        "ettr_predicted": round(found.predicted, 4),
        "ettr_low": round(found.low, 4),
        "ettr_high": round(found.high, 4),
        "ettr_measured": round(run.ettr, 4),
        "ettr_by_steps": round(long.steps * laws.run.step / run.wall, 4),
        "mean_gap_s": round(drawn, 3),
        "ettr_predicted_at_this_gap": round(predict_fleet(at_rate(laws.run, drawn), run.wall, 0).predicted, 4),
        "points": round(100 * (run.ettr - found.predicted), 2),
        "parts_measured_predicted": parts,
        "step_s": (round(run.step, 5), round(laws.run.step, 5)),
        "interval_s": round(laws.run.interval, 3),
        "named": dict(Counter(one.what for one in recovered)),
        "slowest_alone": _slowest(laws.run),
        "slowest": _slowest(run),
    }


def at_rate(run: FleetRun, mtbf: float) -> Conditions:
    """The laws of a run at another rate: `mtbf` seconds of training between faults."""
    laws = measured_conditions(run)
    rate = sum(laws.rate(kind) for _, kind in laws.kinds)
    return replace(laws, kinds=tuple((name, kind.often(1.0 / mtbf / rate)) for name, kind in laws.kinds))


def _slowest(run: FleetRun) -> tuple[str, float]:
    """Class and seconds of the incident that cost most."""
    slowest = max(run.incidents, key=lambda one: one.seconds.down)
    return slowest.what, round(slowest.seconds.down, 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--single", type=int, default=8, help="of each kind, for its laws")
    parser.add_argument("--mtbf", type=float, default=8.0, help="seconds of training between faults")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="a new folder for both runs; default: one that is removed")
    given = parser.parse_args()
    dice = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as place:
        folder = given.keep or Path(place)
        kinds = [kind for kind in SIGNALS for _ in range(given.single)]
        dice.shuffle(kinds)
        laws = soak(folder / "alone", [(dice.uniform(0.8, 2.2), kind) for kind in kinds], dice)
        found = predict_fleet(at_rate(laws.run, given.mtbf), given.faults * given.mtbf, 0)
        print(f"predicted beforehand: ETTR {found.predicted:.4f}", flush=True)
        faults = [(dice.expovariate(1.0 / given.mtbf), dice.choice(list(SIGNALS))) for _ in range(given.faults)]
        long = soak(folder / "long", faults, dice)
        answer = told(laws, long, given.mtbf)
    print(json.dumps(answer, indent=1))
    if given.json is not None:
        given.json.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
