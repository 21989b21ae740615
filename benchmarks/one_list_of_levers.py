"""Do `predict`'s advice, `sensitivity` and `search` name the same first lever, and does a lever beat search's winner?

Random jobs: a model of the catalogue on a machine and number of GPUs, with a framework, a first plan that is changed at random.

    python benchmarks/one_list_of_levers.py --jobs 100
"""

from __future__ import annotations

import argparse
import random

from windtunnel.base.errors import WindtunnelError
from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict
from windtunnel.search import advise
from windtunnel.search.api import search
from windtunnel.search.find import SearchLimits
from windtunnel.search.levers.pricing import GAIN, first_lever, price_levers
from windtunnel.search.levers.sensitivity import sensitivity
from windtunnel.search.margin import usual_margin
from windtunnel.search.outcome import outcome_of
from windtunnel.spec import Job

MODELS = ("llama3-8b", "llama2-13b", "qwen3-30b-a3b", "mixtral-8x7b", "llama2-70b")
MACHINES = ("a100-ib", "h100-ib", "b200-ib")
FRAMEWORKS = ("megatron-core", "nemo", "torchtitan", "fsdp", "deepspeed")
CHANGES = (
    "plan.recompute=full",
    "plan.micro_batch=2",
    "runtime.overlap_grad_reduce=false",
    "runtime.overlap_param_gather=false",
    "runtime.fused_rope=false",
    "runtime.overlap_tp=false",
    "plan.tp=2",
    "plan.tp=4",
    "plan.pp=2",
    "plan.sharding=zero1",
)
DEAREST = 0.02
"""Gap of the searches, so that a hundred take minutes."""


def draw(random_: random.Random) -> Job:
    """A random job that can be predicted."""
    while True:
        framework = random_.choice(FRAMEWORKS)
        overrides = [
            f"cluster.gpus={random_.choice((8, 16, 32, 64))}",
            f"runtime.framework={framework}",
            "plan.seq=4096",
            f"plan.global_batch={random_.choice((64, 128, 256))}",
            *random_.sample(CHANGES, random_.randint(0, 2)),
        ]
        try:
            job = load_described_job(random_.choice(MODELS), overrides, random_.choice(MACHINES)).job
            if predict(job).fits:
                return job
        except WindtunnelError:
            continue


def disagreement(job: Job) -> str:
    """How the first levers differ; empty where they agree."""
    base = predict(job)
    listed = price_levers(base)
    first = next((one.change for one in listed if one.helps), None)
    helping = {one.change for one in listed if one.helps}
    advised = next((one.change for one in advise(base, 50) if one.change in helping), None)
    turned = next((one.change for one in sensitivity(job).switches if one.gain > GAIN and one.fits), None)
    named = first_lever(job)
    searched = None if named is None else named.change
    if first == advised == turned == searched:
        return ""
    return f"list {first}, predict {advised}, sensitivity {turned}, search {searched}"


def better_lever(job: Job) -> str:
    """A lever of the list that beats the winner of a search; empty if none does."""
    result = search(job, margin=usual_margin(), limits=SearchLimits(gap=DEAREST), processes=1, explained=False)
    best = result.ranked[0]
    winner = result.job_of(best)
    for one in price_levers(predict(winner), 0.0):
        if one.gain > GAIN and not one.trains_otherwise and not one.change.fields[0][0].startswith(("cluster.", "unequal")):
            outcome = outcome_of(winner, one.change, usual_margin())
            if outcome.fits and outcome.step_time_s < best.outcome.step_time_s * (1.0 - GAIN):
                return f"{one.change.sets} gains {one.gain:.2%} at the winner {best.change.sets}"
    return ""


def check_jobs(jobs: int, seed: int) -> list[str]:
    """What is wrong with the levers of random jobs, in words; prints each."""
    random_, wrong, gaining = random.Random(seed), list[str](), 0
    for number in range(jobs):
        job = draw(random_)
        found = [disagreement(job)]
        gaining += first_lever(job) is not None
        try:
            found.append(better_lever(job))
        except WindtunnelError as error:
            print(f"job {number}: no plan with the margin: {str(error)[:100]}", flush=True)
        for text in filter(None, found):
            wrong.append(f"{job.name} on {job.cluster.gpus} {job.cluster.id}, {job.runtime.framework}: {text}")
            print(f"job {number}: {wrong[-1]}", flush=True)
    print(f"{jobs} jobs, {gaining} with a lever that gains: {len(wrong)} disagreements or levers that beat a winner")
    return wrong


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    raise SystemExit(bool(check_jobs(asked.jobs, asked.seed)))


if __name__ == "__main__":
    main()
