"""`python -m tests.faults.recovery.speed [--count N]`: from a rank's death to the first new step, beside a plain start.

Eight ranks on two nodes with a warm, tested spare. The spare takes the killed rank's node over at once (`replace`), or the ranks
are started again in place (`retry`). The plain start is torchrun's of the same script, from its command to
its first step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.faults.recovery.kept import SCRIPT, KeptJob, hurt
from windtunnel.fleet.driver.plan import ACTIONS_BY_FAULT, RecoveryPolicy
from windtunnel.records.incidents import Action

PER_NODE = 4
RANKS = 2 * PER_NODE


def plain(folder: Path) -> float:
    """Seconds from torchrun's command to the first step of the script."""
    folder.mkdir(parents=True)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(SCRIPT), "--folder", str(folder)]
    began = time.time()
    job = subprocess.Popen(
        [sys.executable, *words, "--steps", "2"], env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL
    )
    if job.wait(300) != 0:
        raise RuntimeError("the plain start failed")
    return _stepped(folder) - began


def recovered(folder: Path, action: Action, chance: random.Random) -> tuple[float, float]:
    """Seconds from the death of a rank until it was seen, and until the first new step."""
    policy = RecoveryPolicy(tests=(("memory-copy", "--seconds", "0.2"),), actions={**ACTIONS_BY_FAULT, "crash": (action, action)})
    with KeptJob(folder, "--steps", "100000", "--ms", "50", spares=1, policy=policy, per_node=PER_NODE) as job:
        job.drive()
        job.until(job.training)
        before, pid = _stepped(folder), job.rank(chance.randrange(RANKS))[0]
        killed = time.time()
        if not hurt(pid, signal.SIGKILL):
            raise RuntimeError(f"the job does not train: {job.said()[-3:]}")
        job.until(lambda: _stepped(folder) > before)
        job.until(lambda: job.training() and len(job.incidents()) == 1)
        (incident,) = job.incidents()
        if incident.action != action:
            raise RuntimeError(f"the driver chose {incident.action}, not {action}")
        return incident.seen - killed, _stepped(folder) - killed


def _stepped(folder: Path) -> float:
    """Unix seconds of the last first step; 0 before the first one."""
    mark = folder / "first-step"
    return mark.stat().st_mtime if mark.exists() else 0.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=5)
    given = parser.parse_args()
    chance = random.Random(1)
    times: dict[str, list[float]] = {"plain": [], "seen": [], "retry": [], "replace": []}
    with tempfile.TemporaryDirectory() as place:
        for number in range(given.count):
            times["plain"].append(plain(Path(place, f"plain-{number}")))
            for action in ("retry", "replace"):
                seen, stepped = recovered(Path(place, f"{action}-{number}"), action, chance)
                times["seen"].append(seen)
                times[action].append(stepped)
            print(json.dumps({name: round(each[-1], 3) for name, each in times.items()}), flush=True)
    middle = {name: round(median(each), 3) for name, each in times.items()}
    worst = {name: round(max(each), 3) for name, each in times.items()}
    print(json.dumps({"median": middle, "worst": worst, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
