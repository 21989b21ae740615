"""Random machines of dimensions, plans on them and calls; `drawn_machine(number)` and the rest are the same every time."""

from __future__ import annotations

import math
import random

import numpy as np
import numpy.typing as npt

from windtunnel.base.errors import WindtunnelError
from windtunnel.network.grids.machine import Axes, axes_of
from windtunnel.network.groups.shape import Group, grid_group, members
from windtunnel.spec import Job, check, load_job
from windtunnel.workload.ops import Axis

KINDS = ("ring", "fully_connected", "switch")
MOST = 64


def builder(rng: random.Random) -> tuple[str, int]:
    """A torus, mesh or ndim of at most `MOST` accelerators, and how many those are."""
    count = rng.choice([1, 2, 2, 3, 3])
    sizes = [rng.choice([1, 2, 2, 3, 4, 4, 4, 6, 8]) for _ in range(count)]
    while math.prod(sizes) > MOST or math.prod(sizes) < 2:
        sizes = [rng.choice([1, 2, 3, 4, 8]) for _ in range(count)]
    text = "x".join(map(str, sizes))
    rates = "+".join(f"{rng.choice([25, 50, 50, 50, 100])}GB/s" for _ in sizes)
    times = "+".join(f"{rng.choice([200, 500, 1000])}ns" for _ in sizes)
    launch = rng.choice(["0us", "3us"])
    name = rng.choice(["torus", "torus", "mesh", "ndim"])
    more = f",kinds={'+'.join(rng.choice(KINDS) for _ in sizes)}" if name == "ndim" else ""
    if name == "torus" and rng.random() < 0.3:
        more = rng.choice([",wrap=4", ",cube=2"])
    return f"{name}:sizes={text},link={rates},latency={times},launch={launch}{more}", math.prod(sizes)


def plan_of(rng: random.Random, gpus: int) -> dict[str, object]:
    """Axes whose product is the accelerators."""
    left, plan = gpus, {}
    for name in ("tp", "cp", "pp"):
        fits = [d for d in (1, 1, 2, 4, 8) if left % d == 0 and (name != "pp" or d <= 4) and (name != "cp" or d <= 2)]
        plan[name] = rng.choice(fits)
        left //= plan[name]
    placement = ["tp", "cp", "ep", "dp", "pp"]
    if rng.random() < 0.3:
        placement = ["tp", "cp", "ep", "pp", "dp"]
    return {**plan, "dp": left, "placement": placement}


def drawn_job(number: int, moe: bool = False) -> Job:
    """A whole job on a machine of dimensions: the first of the number's draws that is accepted."""
    rng = random.Random(number)
    while True:
        text, gpus = builder(rng)
        plan = plan_of(rng, gpus)
        dp, pp = int(str(plan["dp"])), int(str(plan["pp"]))
        plan |= {
            "micro_batch": 1, "global_batch": dp * rng.choice([1, 2, 4]) * pp, "seq": rng.choice([1024, 4096]),
            "sequence_parallel": int(str(plan["tp"])) > 1 and rng.random() < 0.7,
            "sharding": rng.choice(["none", "zero1", "fsdp", "zero3"]), "recompute": rng.choice(["none", "full"]),
        }  # fmt: skip
        model = {"base": "mixtral-8x7b" if moe else "llama3-8b", "layers": pp * rng.choice([1, 2])}
        if moe:
            plan["ep"] = rng.choice([d for d in (1, 2, 4, 8) if dp % d == 0])
        machine = {
            "base": "tpu-v5p", "gpus": gpus, "node": {"gpus": 1, "scale_up": {"size": gpus}},
            "fabric": {"slices": False, "builder": text},
        }  # fmt: skip
        runtime = {
            "framework": "maxtext",
            "dimension_order": rng.choice([None, None, "rotated", "innermost", "themis"]),
            "dimension_chunks": rng.choice([None, None, 2, 5]),
        }
        try:
            job = check(load_job({"name": "drawn", "model": model, "plan": plan, "runtime": runtime, "cluster": machine}))
            for axis in (Axis.TP, Axis.DP, Axis.SHARD, Axis.EP, Axis.EXPERT_DP):
                grid_group(job, axis)
            return job
        except WindtunnelError:
            continue


def groups_of(job: Job) -> list[tuple[Axis, Group, npt.NDArray[np.int64]]]:
    """Each axis of more than one rank with its group and rows."""
    found = []
    for axis in (Axis.TP, Axis.CP, Axis.DP, Axis.SHARD, Axis.WORLD, Axis.PP):
        shape = grid_group(job, axis)
        if shape.ranks > 1:
            found.append((axis, shape, members(job, axis, None if axis == Axis.WORLD else 0)))
    return found


def axes(job: Job) -> Axes:
    """The axes of the job's plan."""
    return axes_of(job)
