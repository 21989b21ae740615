"""Faults of a job that goes on: slow ranks, slow links, and steps that grow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from time import sleep

from tests.faults.bench import MACHINES, RATE, Bench, machine
from tests.faults.outcome import Outcome, named, wrong_names
from tests.faults.run import duty_cycle, finished, folder
from tests.faults.training import Job
from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.finding import Finding, Verdict
from windtunnel.fleet.findings.judge import Judgement, judge
from windtunnel.fleet.findings.slow_ranks import WARM_UP
from windtunnel.fleet.recorded import Recorded
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import ring_path

NAMED_WITHIN = 20
"""Steps after the warm-up from which a slow rank has to be named."""
DECLINE_STEPS = 80
_PAYLOAD = 1 << 16


NAMED_FROM = 0.1
"""Share of the time below which a rank's excess is a figure only."""


def straggler(share: float, bench: Bench, seed: int) -> Outcome:
    """A random rank is stopped for `share` of the time, in periods of 20 ms. Whether it is named counts from 10 % on."""
    rank = random.Random(seed).randrange(8)
    with folder() as path:
        recorded = finished(bench.zygote, Job(path, steps=WARM_UP + NAMED_WITHIN, seed=seed), duty_cycle(rank, share))
        judged = _judged(recorded)
    outcome = named(judged.findings, lambda one: one.verdict is Verdict.SLOW_RANK and one.ranks == (rank,))
    excess = float(judged.pace.excess[judged.pace.ranks.tolist().index(rank)])
    details = {"excess": excess, "named": float(bool(outcome.right))}
    return Outcome(outcome.right if share >= NAMED_FROM else None, outcome.wrong, outcome.said, details=details)


def clean(bench: Bench, seed: int) -> Outcome:
    """No fault: nobody is named."""
    with folder() as path:
        recorded = finished(bench.zygote, Job(path, steps=WARM_UP + NAMED_WITHIN, seed=seed))
        judged = _judged(recorded)
    starved = judged.table.starved.sum() / (judged.table.own.sum() + judged.table.starved.sum())
    wrong, said = wrong_names(judged.findings), "; ".join(one.text for one in judged.findings)
    return Outcome(None, wrong, said, details={"waits for a core": float(starved)})


def _two_machines(seed: int) -> tuple[int, int]:
    return random.Random(seed).choice(list(combinations(range(MACHINES), 2)))


@contextmanager
def _restored(bench: Bench, pair: tuple[int, int]) -> Iterator[Callable[[float], None]]:
    """Sets the rate of a link, as a share of its own; it has all of it again afterwards."""
    try:
        yield lambda share: bench.network.machines.shape(*pair, RATE * share)
    finally:
        bench.network.machines.shape(*pair, RATE)


def link(share: float, bench: Bench, seed: int) -> Outcome:
    """The link of a random pair of machines has `share` of the rate of the others: the pair is named, and no rank."""
    pair = _two_machines(seed)
    with _restored(bench, pair) as rate, folder() as path:
        rate(share)
        recorded = finished(bench.network, Job(path, steps=WARM_UP + NAMED_WITHIN, sizes=_PAYLOAD, seed=seed))
        judged = _judged(recorded)
    if share == 1:
        return Outcome(None, wrong_names(judged.findings), "; ".join(one.text for one in judged.findings))
    hosts = tuple(machine(index) for index in pair)
    return named(judged.findings, lambda one: one.verdict is Verdict.SLOW_LINK and one.hosts == hosts and not one.ranks)


def launch_skew(bench: Bench, seed: int) -> Outcome:
    """Garbage collections of a random rank take 0.3 ms longer in each step than in the one before."""
    rank = random.Random(seed).randrange(8)
    with folder() as path:
        job = Job(path, steps=DECLINE_STEPS, gap_rank=rank, gap_growth=0.0003, seed=seed)
        judged = _judged(finished(bench.zygote, job))
    return _decline(judged, lambda one: one.verdict is Verdict.LAUNCH_SKEW and one.ranks == (rank,), Verdict.BANDWIDTH)


def fade(bench: Bench, seed: int) -> Outcome:
    """The link of a random pair of machines loses three quarters of its rate over the run."""
    pair = _two_machines(seed)
    with _restored(bench, pair) as rate, folder() as path:
        job = Job(path, steps=DECLINE_STEPS, sizes=_PAYLOAD, seed=seed)
        judged = _judged(finished(bench.network, job, partial(_fading, job, rate)))
    about = tuple(machine(index) for index in pair)
    return _decline(judged, lambda one: one.verdict is Verdict.BANDWIDTH, Verdict.LAUNCH_SKEW, about)


def _fading(job: Job, rate: Callable[[float], None], pids: dict[int, int]) -> None:
    """Follows the steps of rank 0 and lowers the rate with them."""
    reader, told = None, -1
    while Path(f"/proc/{pids[0]}").exists():
        sleep(0.05)
        if reader is None:
            with suppress(FileError):
                reader = RingReader(ring_path(Path(job.folder, "job"), 0))
            continue
        step = reader.read(reader.head()).step
        if step >= told + 2:
            told = step
            rate(max(1.0 - 0.75 * step / job.steps, 0.2))
    if reader is not None:
        reader.close()


def _judged(recorded: Recorded) -> Judgement:
    return judge(recorded.sections, recorded.meshes)


def _decline(judged: Judgement, fits: Callable[[Finding], bool], other: Verdict, link_of: tuple[str, ...] = ()) -> Outcome:
    """Right where the decline has this verdict and says why it is not `other`. A link that fades is slow, too."""
    findings = [one for one in judged.findings if not (link_of and one.verdict is Verdict.SLOW_LINK and one.hosts == link_of)]
    return named(findings, lambda one: fits(one) and any(text.startswith(str(other)) for text in one.excluded))
