"""`python -m tests.faults.engine_jobs [local] [slurm] [ray] [--count 20]`: a cut of the recovery matrix under each engine.

A real job (gloo on loopback) with the real driver and agents. Ranks, agents and drivers are killed, and ranks stopped, in turn; at
the end the weights have to be those of a run without faults.
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
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.clusters import ray_cluster, slurm_cluster
from tests.faults.recovery.cases import reference
from tests.faults.recovery.kept import NODES, PER_NODE, ROOT, KeptJob, hurt
from tests.slurm.cluster import why_not

FAULTS: dict[str, tuple[str, ...]] = {
    "rank killed": ("crash",), "agent killed": ("agent-lost", "node-lost"), "rank stopped": ("hang",), "driver killed": (),
}  # fmt: skip
"""Fault -> the classes of incident that are right. An engine may end a node's ranks with its agent: then the node is lost."""
STEPS = 1200


class EngineJob(KeptJob):
    """The same job with agents from another engine."""

    engine = "local"

    def drive(self) -> None:
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        with (self.folder / "driver.out").open("ab") as out:
            command = [sys.executable, "-m", "windtunnel", "fleet", "driver", str(self.state_folder), "--engine", self.engine]
            self.driver = subprocess.Popen(command, env=variables, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def agent(self, node: str) -> int:
        """Its process id, by its command line: engines keep it in different places."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                here = str(self.folder).encode() in words and node.encode() in words
                if here and b"windtunnel.fleet.agent" in words and b"srun" not in words[0]:
                    return int(entry.name)
        return -1


@contextmanager
def local(folder: Path) -> Iterator[None]:
    yield


@contextmanager
def slurm(folder: Path) -> Iterator[None]:
    with slurm_cluster(folder, NODES):
        yield


@contextmanager
def with_ray(folder: Path) -> Iterator[None]:
    with ray_cluster() as cluster:
        os.environ["RAY_ADDRESS"] = cluster.address
        try:
            yield
        finally:
            del os.environ["RAY_ADDRESS"]


ENGINES = {"local": local, "slurm": slurm, "ray": with_ray}


def strike(job: EngineJob, what: str, chance: random.Random) -> bool:
    """Puts a fault in; whether there was somebody to hurt."""
    if what == "driver killed":
        if job.over():
            return False
        job.kill_driver()
        job.drive()
        return True
    if what == "agent killed":
        state = job.state()
        assert state is not None
        pid = job.agent(chance.choice(state.nodes))
    else:
        pid = job.rank(chance.randrange(NODES * PER_NODE))[0]
    return hurt(pid, signal.SIGSTOP if what == "rank stopped" else signal.SIGKILL)


def cut(name: str, folder: Path, count: int, seed: int, wanted: bytes) -> dict[str, object]:
    """`count` faults in a job under an engine: counts of what became of them."""
    chance, counts, right, begun = random.Random(seed), Counter[str](), Counter[str](), time.monotonic()
    with ENGINES[name](folder), EngineJob(folder / "job", "--steps", str(STEPS), "--ms", "40", spares=0) as job:
        job.engine = name
        job.drive()
        while sum(counts.values()) < count and job.until(job.training):
            what = list(FAULTS)[sum(counts.values()) % len(FAULTS)]
            time.sleep(chance.uniform(0.1, 0.6))
            known, told = len(job.incidents()), len(job.said())
            if not strike(job, what, chance):
                continue
            counts[what] += 1
            job.until(
                lambda known=known, told=told, what=what: len(job.incidents()) > known if FAULTS[what] else len(job.said()) > told
            )
            job.until(job.training)
            named = [one.what for one in job.incidents()[known:]]
            right[what] += set(named) <= set(FAULTS[what]) and bool(named) == bool(FAULTS[what])
        code = job.ended(600.0)
        incidents = job.incidents()
        same = job.weights() == wanted
    return {
        "engine": name, "faults": dict(counts), "named right": dict(right), "code": code,
        "weights as without faults": same, "attempts": job.attempts(),
        "incidents": dict(Counter(f"{one.what} {one.outcome}" for one in incidents)), "seconds": round(time.monotonic() - begun),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        wanted = reference(Path(place, "reference"), STEPS)
        for name in given.engines or ENGINES:
            if name == "slurm" and why_not():
                print(json.dumps({"engine": name, "skipped": why_not()}), flush=True)
                continue
            print(json.dumps(cut(name, Path(place, name), given.count, given.seed, wanted)), flush=True)


if __name__ == "__main__":
    main()
