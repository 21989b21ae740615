"""`python -m tests.faults.recovery.rejoin [--count N]`: a job of eight ranks on two nodes: N are killed and N raise, at random
moments, while the others stay. Prints seconds from each fault until all ranks have finished a step, and whether the final weights
are bit-equal to those of a job without faults."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.faults.recovery.kept import PRELOAD, KeptJob, hurt

SCRIPT = Path(__file__).parent / "rejoining.py"


def rejoining_job(folder: Path, steps: int, ms: float, per_node: int) -> KeptJob:
    """A job whose ranks are started anew alone."""
    words = ("--steps", str(steps), "--ms", str(ms))
    return KeptJob(
        folder, *words, spares=0, script=SCRIPT, per_node=per_node, preload=(*PRELOAD, "windtunnel.fleet.recovery"), rejoin=True
    )


def events(job: KeptJob) -> list[list[dict[str, Any]]]:
    """What each rank has written, whole lines only."""
    files = [job.folder / f"steps-{rank}.jsonl" for rank in range(2 * job.plan.per_node)]
    lines = [file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else [] for file in files]
    return [[json.loads(line) for line in own if line.endswith("\n")] for own in lines]


def seconds_to_step(written: list[list[dict[str, Any]]], rank: int, since: float, pid: int = 0) -> float | None:
    """Seconds from a fault of `rank` until all ranks have finished the first step that it finished after; None before. `pid`: the
    process that was killed."""
    own = [one for one in written[rank] if one["event"] == "step" and one["unix"] > since and one["pid"] != pid]
    if not own:
        return None
    done = [
        [one["unix"] for one in other if one["event"] == "step" and one["unix"] > since and one["step"] >= own[0]["step"]]
        for other in written
    ]
    return max(times[0] for times in done) - since if all(done) else None


def fault(job: KeptJob, rank: int, kind: str) -> float:
    """Kills a rank, or has it raise; seconds until all have finished a step."""
    pid, asked = job.rank(rank)[0], time.time()
    if kind == "kill":
        if not hurt(pid, signal.SIGKILL):
            raise RuntimeError(f"the job does not train: {job.said()[-3:]}")
    else:
        (job.folder / f"raise-{rank}").touch()
        job.until(lambda: any(one["event"] == "raised" and one["unix"] > asked for one in events(job)[rank]))
        asked = max(one["unix"] for one in events(job)[rank] if one["event"] == "raised")
        pid = 0
    job.until(lambda: seconds_to_step(events(job), rank, asked, pid) is not None)
    taken = seconds_to_step(events(job), rank, asked, pid)
    if taken is None:
        raise RuntimeError(f"training did not go on: {job.said()[-3:]}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--ms", type=float, default=50.0)
    given = parser.parse_args()
    chance, times, loads = random.Random(1), dict[str, list[float]](kill=[], **{"raise": []}), list[float]()
    with tempfile.TemporaryDirectory() as place:
        with rejoining_job(Path(place, "hurt"), given.steps, given.ms, 4) as job:
            job.drive()
            for kind in ["kill", "raise"] * given.count:
                job.until(job.training)
                time.sleep(chance.uniform(0.1, 1.0))
                times[kind].append(fault(job, chance.randrange(8), kind))
                loads.append(os.getloadavg()[0])
                print(json.dumps({"fault": kind, "seconds": round(times[kind][-1], 3), "load": round(loads[-1], 1)}), flush=True)
            code, weights, attempts = job.ended(600), job.weights(), job.attempts()
        with rejoining_job(Path(place, "plain"), given.steps, 0.0, 4) as plain:
            plain.drive()
            same = plain.ended(600) == code == 0 and plain.weights() == weights
    for kind, taken in times.items():
        print(json.dumps({"fault": kind, "count": len(taken), "median": round(median(taken), 2), "worst": round(max(taken), 2)}))
    print(json.dumps({"bit-equal": same, "attempts": attempts, "load": [round(min(loads), 1), round(max(loads), 1)]}))


if __name__ == "__main__":
    main()
