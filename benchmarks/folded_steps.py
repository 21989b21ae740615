"""What a prediction costs with the steady state of its schedule folded, and whether folded steps are whole ones; asserts nothing.

    python benchmarks/folded_steps.py [TREE]               CPU milliseconds and ratios; TREE: another version's working tree
    python benchmarks/folded_steps.py --random 3000        folded against full steps of random jobs

Medians of CPU time in one process each, in turn with the other version's. The machine's load moves both.
"""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from windtunnel.predict import predict
from windtunnel.spec import Job, load_job, names

HERE = Path(__file__).resolve()
ROUNDS, REPEATS = 3, 5
MICRO_BATCHES = {name: (8, 128, 512, 2048) for name in ("llama2-70b-64xh100", "gpt3-175b-64", "plain 1f1b")}
PLAIN = ["plan.tp=2", "plan.pp=4", "plan.dp=1", "plan.schedule=1f1b"]


def cases() -> list[str]:
    """The catalogue's jobs, then three by micro batches."""
    return [*names("jobs"), *(f"{name}@{number}" for name, numbers in MICRO_BATCHES.items() for number in numbers)]


def job_of(case: str) -> Job:
    """A job of the catalogue, with another number of micro batches behind an @."""
    name, _, number = case.partition("@")
    job = load_job("llama3-8b-8xh100", PLAIN) if name == "plain 1f1b" else load_job(name)
    return with_micro_batches(job, int(number)) if number else job


def with_micro_batches(job: Job, number: int) -> Job:
    """The job with so many micro batches."""
    batch = number * job.plan.micro_batch * job.dp
    return job.model_copy(update={"plan": job.plan.model_copy(update={"global_batch": batch})})


def measure() -> None:
    """Prints each case's median CPU milliseconds."""
    for case in cases():
        job, seconds = job_of(case), []
        predict(job)
        for _ in range(REPEATS):
            begin = time.process_time()
            predict(job)
            seconds.append(time.process_time() - begin)
        print(f"{case}\t{statistics.median(seconds) * 1e3}", flush=True)


def compare(tree: Path | None) -> None:
    """Prints medians of this version, and beside another one."""
    trees = [HERE.parents[1]] + ([tree] if tree else [])
    found: list[dict[str, list[float]]] = [{case: [] for case in cases()} for _ in trees]
    for _ in range(ROUNDS):
        for of, root in zip(found, trees, strict=True):
            python = root / ".venv" / "bin" / "python"
            ran = subprocess.run([python, HERE, "--measure"], capture_output=True, text=True, check=True)
            for line in ran.stdout.splitlines():
                case, milliseconds = line.split("\t")
                of[case].append(float(milliseconds))
    print(f"{'job @ micro batches':32}{'this, ms':>10}" + (f"{'other, ms':>12}{'ratio':>8}" if tree else ""))
    for case in cases():
        this, *other = (statistics.median(of[case]) for of in found)
        print(f"{case:32}{this:10.1f}" + "".join(f"{ms:12.1f}{ms / this:8.2f}" for ms in other))


def check_random(number: int) -> None:
    """Compares folded and full steps of random jobs."""
    sys.path.insert(0, str(HERE.parents[1] / "tests"))
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from random_jobs import jobs

    equal, counts, worst = importlib.import_module("windtunnel.predict.runs.equal"), Counter[str](), [0.0, 0.0]
    fold = equal.fold

    @settings(max_examples=number, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(jobs(), st.integers(24, 80))
    def check_one(job: Job, rounds: int) -> None:
        job = with_micro_batches(job, job.plan.pp * rounds)
        ways = []
        for folder in (lambda *given: ways.append(fold(*given)) or ways[-1], lambda *_: None):
            equal.fold = folder
            ways.append(predict(job))
        counts[f"{job.plan.schedule_name} {'folded' if ways[0] else 'in full'}"] += 1
        worst[0] = max(worst[0], abs(ways[1].step_time_s / ways[2].step_time_s - 1.0))
        for one, other in zip(ways[1].by_stage, ways[2].by_stage, strict=True):
            apart = max(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())
            worst[1] = max(worst[1], apart / ways[2].step_time_s)
            counts["stages whose waits rounding splits otherwise"] += apart > 1e-12 * ways[2].step_time_s
        for one, other in zip(ways[1].memory, ways[2].memory, strict=True):
            worst[0] = max(worst[0], abs(one.total / other.total - 1.0))

    check_one()
    for kind, count in sorted(counts.items()):
        print(f"{kind:48}{count:6}")
    print(f"largest difference: of step and memory {worst[0]:.1e}, of a part of the step {worst[1]:.1e}")


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure()
    elif "--random" in sys.argv:
        check_random(int(sys.argv[-1]))
    else:
        compare(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
