"""Clocks that are wrong, dumps of hangs whose culprits are labelled, and the counts of other tests."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

from tests.faults.bench import MACHINES, Bench, Placed, machine
from tests.faults.outcome import Outcome
from tests.faults.run import finished, folder
from tests.faults.training import Job
from tests.helpers.fleet_clocks import negative_arrows
from windtunnel.fleet.findings.clocks import MachineClocks, align, clocks_of
from windtunnel.formats.traces.flight_recorder.reader import read_dumps
from windtunnel.records.sections import Sections

LARGEST_RESIDUAL = 1e-3
SAMPLES = Path(__file__).parents[3] / "shared/samples/5_logs_dumps/flight_recorder"
ROOT = Path(__file__).parents[2]


def clocks(bench: Bench, seed: int) -> Outcome:
    """Four machines whose clocks are up to 500 ms and 100 ppm wrong, either way."""
    dice = random.Random(seed)
    wrong = [(dice.randint(-500_000_000, 500_000_000), dice.uniform(-100.0, 100.0)) for _ in range(MACHINES)]
    with folder() as path:
        base, begun = time.monotonic_ns(), time.time()
        job = Job(path, steps=200, forward=0.004, backward=0.006, sizes=4096, seed=seed, clock_base=base)
        sections = finished(Placed(bench.zygote, wrong), job).sections
    found = clocks_of(sections)
    residual = _residual(sections, found, wrong, begun)
    before, after = negative_arrows(sections), negative_arrows(align(sections, found))
    details = {"residual µs": residual * 1e6, "arrows that arrive too early before": before, "and after": after}
    said = f"residual {residual * 1e6:.0f} µs, {after} arrows arrive before they were sent ({before} without correction)"
    return Outcome(residual <= LARGEST_RESIDUAL and after == 0, (), said, details=details)


def _residual(sections: Sections, found: MachineClocks, wrong: list[tuple[int, float]], base: float) -> float:
    """The largest error of a corrected begin, seconds. Clocks are right by their offsets at `base` (unix seconds), and drift from
    then on."""
    machines = {machine(index): one for index, one in enumerate(wrong)}
    offset, ppm = machines[found.reference]
    worst = 0.0
    for rank, host in sections.hosts.items():
        local = sections.begin[sections.rank == rank] + sections.zero
        since = (local - machines[host][0] * 1e-9 - base) / (1 + machines[host][1] * 1e-6)
        should = base + since * (1 + ppm * 1e-6) + offset * 1e-9
        is_now = local + found.correction(host, local - found.zero)
        worst = max(worst, float(np.abs(is_now - should).max()))
    return worst


def dumps(bench: Bench, seed: int) -> Outcome:
    """Dumps of PyTorch's flight recorder of 16 real ranks: the culprits are those that the fault injection's log labels."""
    cases = sorted(path for path in SAMPLES.glob("*_*") if path.is_dir())
    case = cases[seed % len(cases)]
    labelled = json.loads((case / "fault_injection.log").read_text(encoding="utf-8").split("Fault ranks:")[1].splitlines()[0])
    told = sorted(int(rank) for rank in read_dumps(sorted(case.glob("_dump*"))).facts["hang"]["culprits"])
    return Outcome(
        set(labelled) <= set(told), tuple(f"rank {rank}" for rank in told if rank not in labelled), f"{case.name}: {told}"
    )


def no_samples() -> str:
    """Why `dumps` cannot run; empty where it can."""
    return "" if SAMPLES.is_dir() else "the labelled dumps are not on this machine"


def tested(test: str, bench: Bench, seed: int) -> Outcome:
    """The outcome of a test of the suite, which counts by itself."""
    done = _tested(test)
    return Outcome(done.returncode == 0, (), done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:])


@cache
def _tested(test: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
