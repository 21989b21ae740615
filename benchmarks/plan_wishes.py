"""Is a wish of `windtunnel plan` called impossible that is not?

Random wishes (a model, tokens, a budget, a deadline, machines) against a brute force over every number of GPUs of a fine grid, with
the best plan of each. Plans are kept by model, machine and number, so that a wish costs little after the first ones.

    python benchmarks/plan_wishes.py --wishes 200
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict.prediction import Prediction
from windtunnel.search.budget.counts import grid
from windtunnel.search.budget.planner import best_plan, plan
from windtunnel.search.budget.wish import Wish
from windtunnel.spec import Model, load_cluster, load_law, load_model
from windtunnel.workload import parameter_count

MODELS = ("llama3-8b", "llama2-70b", "qwen3-30b-a3b", "mixtral-8x7b", "qwen3-235b-a22b")
MACHINES = ("a100-ib", "h100-ib", "b200-ib", "mi300x-roce")
ODD, MOST = 15, 2048
"""The grid of the brute force, and the GPUs up to which it goes: the clusters are made so small."""
DAY = 86400.0

Plan = Callable[[Model, Any, Sequence[str]], Prediction]


@dataclass
class Kept:
    """Plans by model, machine and number of GPUs."""

    plans: dict[tuple[str, str, int], Prediction | WindtunnelError] = field(default_factory=dict)

    def of(self, model: Model, cluster: dict[str, Any], overrides: Sequence[str]) -> Prediction:
        """What `best_plan` answers, asked once."""
        gpus = int(overrides[0].partition("=")[2])
        key = (model.name, str(cluster["base"]), gpus)
        if key not in self.plans:
            try:
                self.plans[key] = best_plan(model, {"base": cluster["base"]}, [f"cluster.gpus={gpus}"])
            except WindtunnelError as error:
                self.plans[key] = error
        found = self.plans[key]
        if isinstance(found, WindtunnelError):
            raise found
        return found


def counts_of(machine: str) -> list[int]:
    """The numbers of GPUs of the brute force."""
    cluster = load_cluster(machine)
    return [count for count in grid(cluster.gpus, cluster.node.gpus, ODD) if count <= MOST]


def runs_of(kept: Kept, model: Model, tokens: float, machine: str) -> list[tuple[float, float]]:
    """(days, dollars) of every number of GPUs of a machine on which the model fits."""
    price, runs = load_cluster(machine).price_per_gpu_hour or 0.0, []
    for count in counts_of(machine):
        try:
            found = kept.of(model, {"base": machine}, [f"cluster.gpus={count}"])
        except WindtunnelError:
            continue
        if found.fits:
            days = tokens / found.tokens_per_s / DAY
            runs.append((days, days * 24.0 * count * price))
    return runs


def possible(kept: Kept, model: Model, tokens: float, budget: float, days: float, machines: Sequence[str]) -> str:
    """A machine whose best plans meet a wish, in words; empty if there is none."""
    for machine in machines:
        for needed, dollars in runs_of(kept, model, tokens, machine):
            if needed <= days and dollars <= budget:
                return f"{machine} takes {needed:.2f} days and ${dollars:,.0f}"
    return ""


def draw(random_: random.Random, kept: Kept, models: Sequence[str], machines: Sequence[str]) -> tuple[Any, ...]:
    """(model, tokens, budget, days, machines) near the border of what is possible."""
    model = load_model(random_.choice(models))
    tokens = 10.0 ** random_.uniform(9.5, 12.7)
    chosen = random_.sample(list(machines), min(len(machines), random_.choice((1, 1, 2))))
    runs = [run for machine in chosen for run in runs_of(kept, model, tokens, machine)]
    count_days, count_dollars = random_.choice(runs)  # what one of the numbers of GPUs needs
    least = min(dollars for _, dollars in runs)
    about = random_.choice((random_.uniform(0.6, 1.5), random_.uniform(0.97, 1.03)))
    budget = random_.choice((count_dollars, least)) * about
    days = min(3650.0, count_days * random_.choice((random_.uniform(0.6, 1.5), random_.uniform(0.97, 1.03))))
    which = random_.choice(("both", "both", "budget", "days"))
    return model, tokens, budget if which != "days" else None, days if which != "budget" else None, chosen


def check_wishes(wishes: int, seed: int, models: Sequence[str] = MODELS, machines: Sequence[str] = MACHINES) -> list[str]:
    """Wishes that `plan` calls impossible, each with what meets it; prints a summary."""
    random_, kept, law = random.Random(seed), Kept(), load_law("epoch")
    wrong, met, impossible, cautious = list[str](), 0, 0, 0
    for number in range(wishes):
        model, tokens, budget, days, chosen = draw(random_, kept, models, machines)
        wish = Wish(law, budget, days, None, model, parameter_count(model), tokens)
        try:
            answer = plan(wish, chosen, planned=kept.of)
            good = any(one.good for one in answer.alternatives)
        except WindtunnelError:
            good = False
        way = possible(kept, model, tokens, budget or 1e99, days or 1e99, chosen)
        met, impossible = met + good, impossible + (not good and not way)
        cautious += good and not way  # a plan of the larger space
        if way and not good:
            words = f"{model.name}, {tokens:.3g} tokens, budget {budget}, days {days}, {chosen}"
            wrong.append(f"{words}: called impossible, but {way}")
            print(f"wish {number}: {wrong[-1]}", flush=True)
    print(f"{wishes} wishes: {met} met ({cautious} by the larger space alone), {impossible} impossible, {len(wrong)} wrongly")
    print(f"{len(kept.plans)} plans of a model on a machine were looked for")
    return wrong


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wishes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--machines", nargs="*", default=MACHINES)
    asked = parser.parse_args()
    raise SystemExit(bool(check_wishes(asked.wishes, asked.seed, asked.models, asked.machines)))


if __name__ == "__main__":
    main()
