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

from tests.faults.recovery.cases import reference
from tests.faults.recovery.kept import NODES, PER_NODE, ROOT, KeptJob
from tests.slurm.cluster import SlurmCluster, why_not

FAULTS = ("rank killed", "agent killed", "rank stopped", "driver killed")
STEPS = 600


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
    with SlurmCluster(folder / "slurm", NODES) as cluster:
        os.environ.update(cluster.variables)
        try:
            yield
        finally:
            del os.environ["SLURM_CONF"]


@contextmanager
def with_ray(folder: Path) -> Iterator[None]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        os.environ["RAY_ADDRESS"] = cluster.address
        yield
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        cluster.shutdown()


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
    if pid <= 0:
        return False
    try:
        os.kill(pid, signal.SIGSTOP if what == "rank stopped" else signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def cut(name: str, folder: Path, count: int, seed: int, wanted: bytes) -> dict[str, object]:
    """`count` faults in a job under an engine: counts of what became of them."""
    chance, counts, begun = random.Random(seed), Counter[str](), time.monotonic()
    with ENGINES[name](folder), EngineJob(folder / "job", "--steps", str(STEPS), "--ms", "40", spares=0) as job:
        job.engine = name
        job.drive()
        while sum(counts.values()) < count and job.until(job.training):
            what = FAULTS[sum(counts.values()) % len(FAULTS)]
            time.sleep(chance.uniform(0.1, 0.6))
            known = len(job.incidents())
            if not strike(job, what, chance):
                continue
            counts[what] += 1
            if what.startswith("rank"):
                job.until(lambda known=known: len(job.incidents()) > known)
            else:
                time.sleep(0.5)  # so that it can be seen before the job is asked whether it trains
        code = job.ended(600.0)
        incidents = job.incidents()
        same = job.weights() == wanted
    return {
        "engine": name, "faults": dict(counts), "code": code, "weights as without faults": same, "attempts": job.attempts(),
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
