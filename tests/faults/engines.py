"""`python -m tests.faults.engines [--count 20]`: faults of agents under each engine, and whether the engine tells and mends them.

The agents are stand-ins that write who they are and stay; what is tried is the engine. Slurm is a real one on loopback, Ray two
raylets.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.clusters import ray_cluster, slurm_cluster
from tests.slurm.cluster import why_not
from windtunnel.fleet.engines.engine import AgentCommand, Engine
from windtunnel.fleet.engines.local import LocalEngine, Process
from windtunnel.fleet.engines.ray_engine import RayEngine
from windtunnel.fleet.engines.slurm import SlurmEngine

AGENT = """
import os, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
path = os.path.join(given["--folder"], given["--node"] + ".is")
with open(path + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(path + ".new", path)
while True:
    time.sleep(60)
"""
FAULTS = ("killed", "ended", "stopped by the engine", "stopped by the engine of another driver", "machine lost")
PATIENCE = 60.0


@dataclass
class Tried:
    """An engine under test. `another`: as a driver that starts again makes it; `lose`: takes a node's machine away and gives it
    back."""

    engine: Engine
    another: Callable[[], Engine]
    folder: Path
    nodes: int
    lose: Callable[[str], Callable[[], object]] | None = None

    def pid(self, node: str) -> int:
        """Of the node's newest agent, once it is there."""
        file = self.folder / f"{node}.is"
        _wait(file.exists, f"an agent on {node}")
        return int(file.read_text())

    def fault(self, what: str, node: str) -> float:
        """Puts one fault in, and has it mended: seconds until the engine told it. AssertionError if anything is not as it must
        be."""
        before = {each: self.pid(each) for each in self._all}
        others = [each for each in self._all if each != node]
        begun, back = time.monotonic(), None
        if what == "killed" or what == "ended":
            os.kill(before[node], signal.SIGKILL if what == "killed" else signal.SIGTERM)
        elif what == "machine lost":
            assert self.lose is not None
            back = self.lose(node)
        else:
            (self.engine if what == "stopped by the engine" else self.another()).stop(node)
        _wait(lambda: not self.engine.is_running(node), f"{node} is not alive")
        told = time.monotonic() - begun
        _wait(lambda: Process.of(before[node]) is None, "the old agent is gone")
        assert all(self.engine.is_running(each) for each in others), "others live"
        assert all(Process.of(before[each]) is not None for each in others), "others are left alone"
        (self.folder / f"{node}.is").unlink()
        if what == "machine lost":
            self._all = self.engine.acquire(self.nodes)  # another machine takes its place
            assert node not in self._all
            (node,) = set(self._all) - set(others)
        self.engine.start((node,))
        assert self.pid(node) not in before.values()
        _wait(lambda: self.engine.is_running(node), f"{node} is alive")
        if back is not None:
            back()
        return told

    def begin(self) -> None:
        self._all = self.engine.acquire(self.nodes)
        self.engine.start(self._all)
        for node in self._all:
            self.pid(node)
            _wait(lambda node=node: self.engine.is_running(node), f"{node} is alive")

    def pick(self, number: int, dice: random.Random) -> tuple[str, str]:
        """The kinds take turns; the node is drawn."""
        known = FAULTS if self.lose is not None else FAULTS[:-1]
        return known[number % len(known)], dice.choice(self._all)


def _wait(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until, f"not in {PATIENCE:g} s: {what}"
        time.sleep(0.02)


@contextmanager
def _command(folder: Path) -> Iterator[AgentCommand]:
    program, secrets = folder / "agent.py", folder / "secrets"
    program.write_text(AGENT)
    secrets.write_text("hidden")
    secrets.chmod(0o600)
    yield AgentCommand("127.0.0.1:1", secrets, folder, (sys.executable, str(program)))


@contextmanager
def local(folder: Path) -> Iterator[Tried]:
    with _command(folder) as command:
        yield Tried(LocalEngine(command, folder), lambda: LocalEngine(command, folder), folder, 3)


@contextmanager
def slurm(folder: Path) -> Iterator[Tried]:
    with slurm_cluster(folder, 4) as cluster, _command(folder) as command:

        def lose(node: str) -> Callable[[], object]:
            cluster.down(node)
            return lambda: (
                cluster.up(node),
                cluster.slurm("scontrol", "update", f"nodename={node}", "state=resume"),
                _wait(lambda: cluster.states()[node] in ("idle", "alloc", "mix"), "it is back"),
            )

        try:
            yield Tried(SlurmEngine(command, folder, fresh=0.0), lambda: SlurmEngine(command, folder, fresh=0.0), folder, 3, lose)
        finally:
            SlurmEngine(command, folder).close()


@contextmanager
def with_ray(folder: Path) -> Iterator[Tried]:
    import ray

    with ray_cluster() as cluster, _command(folder) as command:
        try:
            yield Tried(RayEngine(command, "try", cluster.address), lambda: RayEngine(command, "try", cluster.address), folder, 2)
        finally:
            ray.shutdown()


ENGINES = {"local": local, "slurm": slurm, "ray": with_ray}


def tried(name: str, count: int, seed: int) -> dict[str, object]:
    """`count` faults under an engine, in its own folder."""
    dice, told, kinds = random.Random(seed), [], []
    with tempfile.TemporaryDirectory() as place, ENGINES[name](Path(place)) as one:
        try:
            one.begin()
            for number in range(count):
                what, node = one.pick(number, dice)
                told.append(one.fault(what, node))
                kinds.append(what)
        finally:
            one.engine.close()
    told.sort()
    return {
        "engine": name, "faults": count, "mended": len(told), "told_median_s": round(told[len(told) // 2], 3),
        "told_worst_s": round(told[-1], 3), "kinds": {what: kinds.count(what) for what in FAULTS if what in kinds},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for name in given.engines or ENGINES:
        if name == "slurm" and why_not():
            print(json.dumps({"engine": name, "skipped": why_not()}), flush=True)
            continue
        print(json.dumps(tried(name, given.count, given.seed)), flush=True)


if __name__ == "__main__":
    main()
