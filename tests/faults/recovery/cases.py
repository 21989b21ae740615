"""The cases of recovery: each runs jobs until its fault has happened so often, and counts what became of it."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from tests import postgres
from tests.faults.recovery import links, memory
from tests.faults.recovery.kept import KeptJob, hurt
from tests.faults.recovery.proxy import Proxy
from windtunnel.fleet.driver.detect import DetectionLimits
from windtunnel.fleet.driver.plan import RecoveryPolicy

Counts = Counter[str]
STEPS = 400
LINK_KINDS = ("short", "down", "cut")
KINDS = {
    "nan": "nan", "cuda": "cuda", "segfault": "segfault", "early-exit": "early-exit", "oom-kill": "oom", "oom-limit": "oom",
    "data": "data",
}  # fmt: skip
"""What the script does -> the class that it has to be named."""


MEMORY = 2 << 30
"""Bytes of a node whose rank takes too many."""


def reference(folder: Path, steps: int = STEPS) -> bytes:
    """The final weights of a run that nothing happens to."""
    with KeptJob(folder, "--steps", str(steps), "--ms", "0", spares=0) as job:
        job.drive()
        if job.ended() != 0:
            raise RuntimeError(f"the job without faults failed: {job.said()[-3:]}")
        weights = job.weights()
    assert weights is not None
    return weights


def random_kills(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """F1: SIGKILL of a random rank at a random moment, until the job ends."""
    with KeptJob(folder, "--steps", str(STEPS), spares=0) as job:
        job.drive()
        killed = 0
        while killed < count and job.until(job.training):
            time.sleep(chance.uniform(0.0, 0.5))
            if not hurt(job.rank(chance.randrange(4))[0], signal.SIGKILL):
                continue
            killed += 1
            known = len(job.incidents())
            if not job.until(lambda known=known: len(job.incidents()) > known):
                break
            counts["kills"] += 1
        _finish(job, counts)
        crashes = [one for one in job.incidents() if one.what == "crash"]
        counts["crash named"] += len(crashes)
        counts["recovered"] += sum(one.outcome == "recovered" for one in crashes)
        counts["seen within 1 s"] += sum((one.seconds.detect or 0.0) <= 1.0 for one in crashes)


def driver_and_store(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """F3: SIGKILL of the driver, of rank 0, that holds the store of the ranks, and in turn the end of PostgreSQL, where it is
    installed, that holds what the driver knows."""
    here = not postgres.MISSING and find_spec("psycopg") is not None
    with ExitStack() as stack:
        server = stack.enter_context(postgres.PostgresServer()) if here else None
        job = stack.enter_context(KeptJob(folder, "--steps", str(STEPS), spares=0, store=server.url if server else ""))
        job.drive()
        stores = 0
        for turn in range(count):
            if not job.until(job.training):
                break
            time.sleep(chance.uniform(0.0, 0.3))
            what = turn % (3 if server else 2)
            if what == 1:
                known = len(job.incidents())
                if hurt(job.rank(0)[0], signal.SIGKILL):
                    stores += 1
                    counts["store killed"] += 1
                    job.until(lambda known=known: len(job.incidents()) > known)
            elif what == 2 and server:
                server.kill()
                time.sleep(chance.uniform(0.2, 4.0))
                server.start()
                counts["database killed"] += 1
            else:
                if job.over():
                    break
                job.kill_driver()
                counts["driver killed"] += 1
                job.drive()
                told = sum("driver is back" in line for line in job.said())
                job.until(lambda told=told: sum("driver is back" in line for line in job.said()) > told or job.training())
        _finish(job, counts)
        counts["attempts too many"] += job.attempts() - 1 - stores


def agents(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """F5: SIGSTOP or SIGKILL of an agent alone."""
    with KeptJob(folder, "--steps", str(STEPS), "--ms", "100", spares=0) as job:
        job.drive()
        for turn in range(count):
            if not job.until(job.training):
                break
            known = len(job.incidents())
            number = signal.SIGSTOP if turn % 2 else signal.SIGKILL
            if not hurt(job.agent(chance.choice(("node0", "node1"))), number):
                continue
            if not job.until(lambda known=known: len(job.incidents()) > known and not _open(job)):
                break
            counts["agents hurt"] += 1
            counts[f"named {job.incidents()[known].what}"] += 1
        _finish(job, counts)
        counts["restarts of training"] += job.attempts() - 1


def flaps(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """F8: first the way between an agent and the driver, then the one between the ranks of two nodes."""
    ranks = count // 2 if links.possible() else 0
    _agent_flaps(folder, count - ranks, chance, counts)
    if ranks:
        _link_flaps(folder.with_name(folder.name + "-link"), ranks, chance, counts)


def _link_flaps(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """A node's port to the network of the ranks' data is down for a while, is down until it is seen, or the connections of a rank
    are cut for good."""
    with KeptJob(
        folder, "--steps", str(STEPS), "--ms", "100", spares=0, limits=DetectionLimits(silent=3.0, stall=5.0), networks=True
    ) as job:
        job.drive()
        for turn in range(count):
            if not job.until(job.training):
                break
            time.sleep(chance.uniform(0.0, 0.3))
            known, attempts, kind = len(job.incidents()), job.attempts(), LINK_KINDS[turn % len(LINK_KINDS)]
            pid = job.rank(2 + chance.randrange(2))[0]
            if kind == "cut" and not (pid > 0 and links.cut(pid)):
                continue
            end = f"node{chance.randrange(2)}"
            if kind != "cut":
                links.turn(job.agent(end), up=False)
                if kind == "short":
                    time.sleep(chance.uniform(0.2, 1.2))
                else:
                    job.until(lambda known=known: len(job.incidents()) > known)
                links.turn(job.agent(end), up=True)
            counts[f"link {kind}"] += 1
            if kind == "short":
                before = job.done()
                job.until(lambda before=before: job.done() > before + 10)
                counts["link short: no incident"] += len(job.incidents()) == known
                continue
            job.until(lambda known=known: len(job.incidents()) > known and not _open(job))
            new = job.incidents()[known:]
            for one in new:
                counts[f"link {kind} named {one.what}"] += 1
                counts[f"link {kind}: its end named"] += kind == "down" and one.node == end
            counts[f"link {kind}: one restart"] += job.attempts() == attempts + 1
        _finish(job, counts)


def _agent_flaps(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """The way between a node's agent and the driver falls silent for less, or for more, than it may."""
    limits = DetectionLimits(silent=2.5)
    with KeptJob(folder, "--steps", str(STEPS), "--ms", "100", spares=1, limits=limits, adopt=1.5) as job:
        proxy = Proxy(job.port)
        job.detour = ("node1", f"127.0.0.1:{proxy.port}")
        try:
            job.drive()
            for turn in range(count):
                long = turn == count - 1  # after it the node is another one
                if not job.until(job.training):
                    break
                known, attempts = len(job.incidents()), job.attempts()
                proxy.open.clear()
                time.sleep(9.0 if long else chance.uniform(0.2, 1.2))
                proxy.open.set()
                if not job.until(job.training):
                    break
                restarts = job.attempts() - attempts
                counts["long flaps" if long else "short flaps"] += 1
                counts["long: one restart" if long else "short: no incident"] += (
                    restarts == 1 if long else not restarts and len(job.incidents()) == known
                )
            _finish(job, counts)
        finally:
            proxy.close()


def classes(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """F13: seven kinds of errors of the script, of six classes, in a random order; no kill for memory without cgroups."""
    del count
    real = memory.possible()
    kinds = [kind for kind in KINDS if real or kind != "oom-kill"]
    chance.shuffle(kinds)
    steps = [30 + 50 * number + chance.randrange(20) for number in range(len(kinds))]
    fails = [f"{step}:{kind}" for step, kind in zip(steps, kinds, strict=True)]
    with KeptJob(folder, "--steps", str(STEPS), "--ms", "3", "--fail", *fails, spares=0, memory=MEMORY if real else 0) as job:
        job.drive()
        _finish(job, counts)
        said = [one.what for one in job.incidents()]
        for kind, what in zip(kinds, said, strict=False):
            counts[f"{kind} named {what}"] += 1
        counts["incidents too many"] += len(said) - len(kinds)
        counts["recovered"] += sum(one.outcome == "recovered" for one in job.incidents())


def doubles(folder: Path, count: int, chance: random.Random, counts: Counts) -> None:
    """F14: two ranks at once; a rank, and another when the next attempt begins; a spare that fails its test."""
    with KeptJob(folder, "--steps", str(STEPS), spares=0) as job:
        job.drive()
        for turn in range(count):
            if not job.until(job.training):
                break
            known = len(job.incidents())
            first, second = chance.sample(range(4), 2)
            pids = job.rank(first)[0], job.rank(second)[0]
            if not hurt(pids[0], signal.SIGKILL):
                break
            if turn % 2:
                hurt(pids[1], signal.SIGKILL)
                counts["two at once"] += 1
            else:
                job.until(lambda old=pids[1], second=second: job.rank(second)[0] not in (-1, old))
                counts["one amid recovery"] += hurt(job.rank(second)[0], signal.SIGKILL)
            job.until(lambda known=known: len(job.incidents()) > known)
        _finish(job, counts)
        counts["incidents"] += len(job.incidents())
        counts["recovered"] += sum(one.outcome == "recovered" for one in job.incidents())
    bad = RecoveryPolicy(retries=10_000, tests=(("memory-copy", "--expect", "1e30", "--seconds", "0.1"),))
    with KeptJob(folder.with_name(folder.name + "-spare"), "--steps", str(STEPS), spares=1, policy=bad) as job:
        job.drive()
        if job.until(job.training):
            for pid in (job.agent("node1"), job.keeper_of(2)):
                hurt(pid, signal.SIGKILL)
            code, state = job.ended(), job.state()
            counts["bad spare"] += 1
            counts["bad spare: blocked"] += state is not None and "node2" in state.blocked and "node2" not in state.nodes
            counts["bad spare: stopped with a reason"] += code == 1 and any("no spare" in line for line in job.said())
            counts["bad spare: the node came back, right weights"] += code == 0 and job.weights() == WANTED[STEPS]


CASES: dict[str, tuple[Callable[[Path, int, random.Random, Counts], None], int]] = {
    "F1": (random_kills, 20), "F3": (driver_and_store, 10), "F5": (agents, 6), "F8": (flaps, 14), "F13": (classes, 7),
    "F14": (doubles, 8),
}  # fmt: skip
"""What a job does, and how many faults it has at most."""


def _finish(job: KeptJob, counts: Counts) -> None:
    counts["jobs"] += 1
    counts["jobs ended with 0"] += job.ended() == 0
    wanted = WANTED.get(STEPS)
    counts["weights bit-equal"] += wanted is not None and job.weights() == wanted
    counts["incidents left open"] += _open(job)


WANTED: dict[int, bytes] = {}
"""Steps -> final weights without faults."""


def _open(job: KeptJob) -> int:
    return sum(one.outcome == "open" for one in job.incidents())
