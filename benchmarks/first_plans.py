"""How much slower the first plan of a model is than the best that a search finds for the same framework, machine and batch.

python benchmarks/first_plans.py --jobs 60
"""

from __future__ import annotations

import argparse
import random
import time

from windtunnel.base.errors import WindtunnelError
from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict
from windtunnel.search.api import search
from windtunnel.search.find import SearchLimits
from windtunnel.search.margin import usual_margin

MODELS = ("llama3-8b", "llama2-13b", "llama2-70b", "qwen3-30b-a3b", "mixtral-8x7b", "qwen3-8b", "gpt3-6.7b")
MACHINES = ("a100-ib", "h100-ib", "b200-ib", "h200-ib")
FRAMEWORKS = ("megatron-core", "nemo", "torchtitan", "fsdp", "deepspeed", "maxtext")
WITHIN = 1.25


def ratio(model: str, machine: str, overrides: list[str]) -> tuple[float, str] | None:
    """The step of the first plan over the best, with both in words; None where no plan fits with the margin."""
    begun = time.perf_counter()
    job = load_described_job(model, overrides, machine).job
    taken = time.perf_counter() - begun
    first = predict(job)
    if not first.fits:
        return None
    try:
        result = search(job, margin=usual_margin(), limits=SearchLimits(gap=0.03), processes=1, explained=False, levers=False)
    except WindtunnelError:
        return None
    best, plan = result.ranked[0], job.plan
    degrees = f"tp {plan.tp} pp {plan.pp} vpp {plan.vpp} ep {plan.ep}"
    mine = f"{degrees} mb {plan.micro_batch} {plan.recompute} {plan.sharding}, {taken:.1f} s"
    return first.step_time_s / best.outcome.step_time_s, f"{mine}; best {' '.join(best.change.without_no_ops(job).sets)}"


def check_plans(jobs: int, seed: int, within: float = WITHIN) -> list[str]:
    """Random jobs whose first plan is farther from the best than `within`; prints the distribution."""
    random_, ratios, wrong = random.Random(seed), dict[str, list[float]](), list[str]()
    number = 0
    while number < jobs:
        model, machine, framework = random_.choice(MODELS), random_.choice(MACHINES), random_.choice(FRAMEWORKS)
        gpus, lora = random_.choice((8, 16, 32, 64)), random_.random() < 0.2
        overrides = [
            f"cluster.gpus={gpus}",
            f"runtime.framework={framework}",
            f"plan.seq={random_.choice((2048, 4096, 8192))}",
            f"plan.global_batch={random_.choice((64, 128, 256))}",
            *(["model.lora.rank=16"] if lora else []),
        ]
        try:
            found = ratio(model, machine, overrides)
        except WindtunnelError:
            found = None
        if found is None:
            continue
        number += 1
        ratios.setdefault(framework, []).append(found[0])
        if found[0] > within:
            wrong.append(f"{model} on {machine}, {' '.join(overrides)}: {found[0]:.2f} times the best; {found[1]}")
            print(wrong[-1], flush=True)
    for framework, some in sorted(ratios.items()):
        ordered = sorted(some)
        print(f"{framework:15} {len(some):3} jobs: median {ordered[len(some) // 2]:.2f}, largest {ordered[-1]:.2f}")
    return wrong


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    raise SystemExit(bool(check_plans(asked.jobs, asked.seed)))


if __name__ == "__main__":
    main()
