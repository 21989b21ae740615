"""Does `compare` name the cause, and does `calibrate` find the factor? Synthetic runs whose causes are known.

    python benchmarks/known_causes.py [CASES]

Cases: a kernel class 20 % slower, calls of an axis at half the rate, the calls of one group at half the rate, one rank 20 % slower,
launches three times as dear, over several jobs, with 2 % noise on every kernel and call. Prints the cases that went wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from tests.synthetic_runs import graph_of_job, with_known_factor, with_slow_tasks
from windtunnel.runs.comparison import compare_run
from windtunnel.spec import Job, load_job

SMALL = ["cluster.gpus=8", "plan.dp=none", "plan.global_batch=16", "plan.seq=4096", "model.layers=8", "plan.vpp=1"]
EXPERTS = ["cluster.gpus=16", "plan.dp=none", "plan.pp=2", "plan.vpp=1", "plan.global_batch=32", "model.layers=8"]
JOBS = {
    "dense": ("llama2-70b-64xh100", [*SMALL, "model=llama3.1-8b", "plan.tp=2", "plan.pp=2"]),
    "sharded": ("llama3-8b-8xh100", ["model.layers=8"]),
    "experts": ("mixtral-8x7b-64xh100", EXPERTS),
}
CLASSES = ("gemm", "attention", "elementwise", "norm", "grouped_gemm")
AXES = ("tp", "dp", "pp", "ep")


def cases(count: int) -> Iterator[tuple[str, Job, str, float, str]]:
    """(name, job, what to change, factor, the key that should come first)."""
    draw = np.random.default_rng(7)
    jobs = {name: load_job(base, sets) for name, (base, sets) in JOBS.items()}
    graphs = {"dense": graph_of_job(jobs["dense"])}
    for number in range(count):
        kind = ("kernel", "axis", "rank", "host", "group")[number % 5]
        name = str(draw.choice(list(jobs)))
        if kind in ("rank", "group"):
            job, graph = jobs["dense"], graphs["dense"]
            if kind == "rank":
                rank = int(draw.integers(job.cluster.gpus))
                yield f"{number} rank {rank}", job, f"rank {rank}", 1.2, f"rank {rank}"
            else:
                equals = [i for i, ranks in enumerate(graph.groups) if len(ranks) == 2 and ranks[1] == ranks[0] + 1]
                group = int(draw.choice(equals))
                ranks = graph.groups[group]
                yield f"{number} group {ranks}", job, f"group {group}", 2.0, f"group {ranks[0]}-{ranks[-1]}"
        elif kind == "host":
            yield f"{number} {name} host", jobs[name], "host", 3.0, "host"
        else:
            of = CLASSES if kind == "kernel" else AXES
            path = f"{'kernels' if kind == 'kernel' else 'calls'}.{draw.choice(of)}"
            yield f"{number} {name} {path}", jobs[name], path, 1.2 if kind == "kernel" else 2.0, path


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    right, errors, skipped = 0, list[float](), 0
    graph = graph_of_job(load_job(*JOBS["dense"]))
    for name, job, change, value, key in cases(count):
        what, _, number = change.partition(" ")
        if what in ("rank", "group"):
            run = with_slow_tasks(
                job, graph, int(number) if what == "rank" else None, int(number) if what == "group" else None, value
            )
        else:
            run = with_known_factor(job, change, value, seed=int(name.split()[0]))
        comparison = compare_run(run, job)
        factor = None if comparison.fit is None else next((f for f in comparison.fit.factors.factors if f.path == key), None)
        if what not in ("rank", "group") and (factor is None or factor.expected_s == 0.0):
            skipped += 1  # the job has no such kernels or calls
            continue
        first = comparison.causes[0].key if comparison.causes else "none"
        right += first == key
        found = factor.value if factor is not None else comparison.causes[0].factor if comparison.causes else float("nan")
        errors.append(abs(found / value - 1.0))
        if first != key or errors[-1] > 0.03:
            print(f"{name}: first cause {first}, factor {found:.3f} of {value}")
    done = count - skipped
    print(f"{right} of {done} causes named first; {skipped} cases without such a part")
    within = sum(error <= 0.03 for error in errors)
    print(f"factors: error {np.median(errors):.2%} (median), {max(errors):.2%} (largest); within 3 %: {within} of {done}")


if __name__ == "__main__":
    main()
