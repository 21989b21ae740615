"""A first plan for a model on a cluster, if a user states no plan or only parts of one.

The rule is simple, so that its result can be explained in a line: the smallest number of nodes, and on them the least model
parallelism, on which the job fits. It finds a plan that works, not the best one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.memory import memory_of
from windtunnel.search.layouts import even_stages, expert_parameters, powers_of_two
from windtunnel.spec import Cluster, Job, Model, check, load_job
from windtunnel.spec.common import divisors
from windtunnel.spec.loading.load import override
from windtunnel.workload import build, parameter_count

START_TOKENS = 4 * 2**20
"""Tokens of a step if the user states no batch, as in published runs of 7B to 405B (Llama 2 and 3 papers: 4 to 16 Mi)."""

START_SEQ = 8192
"""Tokens of a sequence if the user states none and the model's `max_seq` allows it."""

WEIGHT_AND_GRADIENT = 6
"""Bytes per parameter that optimizer sharding does not reduce: a 16-bit weight and an fp32 gradient."""

ALL_STATE = 18
"""Bytes a parameter of mixed-precision Adam over all GPUs: 16-bit weight, fp32 gradient, master copy and two moments."""

TRIES = 64
"""Limit of plans whose memory is computed; then the last one is taken."""


@dataclass(frozen=True)
class Start:
    """The job of the first plan, what was assumed for it (`plan.tp = 8`, …) and whether it fits."""

    job: Job
    assumed: tuple[str, ...]
    fits: bool


def start(table: Mapping[str, Any], model: Model, overrides: Sequence[str], stated: frozenset[str]) -> Start:
    """A job from `table` (model, runtime and cluster, no plan) and `overrides`; fields that neither states are chosen.

    `model` is that of the table with the overrides applied; `stated`: the paths that the user fixed, such as `plan.tp`. If
    nothing fits, the job is the tried one with most model parallelism. Raises the PlanError or SpecError of the first candidate if
    no candidate is a valid job.
    """
    cluster = load_job({**table, "plan": {"global_batch": 1, "seq": 1}}, overrides).cluster
    own = _stated_plan(overrides)
    candidates = list(_candidates(model, cluster, own))
    promising = [one for one in candidates if _may_fit(model, cluster, {**one[0], **own}, one[1])]
    trouble: PlanError | SpecError | None = None
    last: Start | None = None
    tries = 0
    for plan, gpus in promising or candidates[-1:]:
        fields = {f"plan.{key}": value for key, value in plan.items() if f"plan.{key}" not in stated}
        if "cluster.gpus" not in stated:
            fields["cluster.gpus"] = gpus
        try:
            job = check(load_job(table, [*(f"{path}={_toml(value)}" for path, value in fields.items()), *overrides]))
        except (PlanError, SpecError) as error:
            trouble = trouble or error
            continue
        fits = all(stage.fits for stage in memory_of(job, build(job)))
        last = Start(job, tuple(f"{path} = {_toml(value)}" for path, value in fields.items()), fits)
        tries += 1
        if fits or tries >= TRIES:
            break
    if last is None:
        raise trouble or _no_candidate(model, cluster, own)
    return last


def _no_candidate(model: Model, cluster: Cluster, own: Mapping[str, Any]) -> PlanError:
    """Which stated degree leaves no plan: one that does not divide the heads, or the GPUs."""
    heads, tp = model.heads, own.get("tp", 1)
    if isinstance(tp, int) and heads % tp:
        able = ", ".join(map(str, divisors(heads)))
        return PlanError("plan.tp", tp, f"a divisor of model.heads = {heads}", f"Divisors: {able}.")
    gpus = own.get("gpus", cluster.gpus)
    for name in ("tp", "cp", "pp", "dp"):
        degree = own.get(name, 1)
        if isinstance(degree, int) and isinstance(gpus, int) and gpus % degree:
            able = ", ".join(map(str, divisors(gpus)[:14]))
            return PlanError(f"plan.{name}", degree, f"a divisor of cluster.gpus = {gpus}", f"Divisors: {able}.")
    return PlanError("cluster.gpus", gpus, "a multiple of tp*cp*pp, with as many ranks as ep asks for")


def _stated_plan(overrides: Sequence[str]) -> dict[str, Any]:
    """The plan's fields that the overrides state, as numbers where they are whole numbers; `gpus` is the cluster's."""
    own: dict[str, Any] = {}
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key == "cluster.gpus" or key.startswith("plan.") and key.count(".") == 1:
            section, name = key.split(".")
            own[name] = override(text)[section][name]
    return own


def _candidates(model: Model, cluster: Cluster, own: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Plans and numbers of GPUs: no recompute first, then fewest nodes, then least model parallelism."""

    def choices(name: str, otherwise: Sequence[Any]) -> list[Any]:
        return [own[name]] if name in own else list(otherwise)

    node = cluster.node
    seq, micro = choices("seq", [min(model.max_seq, START_SEQ)])[0], choices("micro_batch", [1])[0]
    degrees = (
        choices("tp", [p for p in powers_of_two(min(node.domain, 8)) if model.heads % p == 0]),
        choices("pp", powers_of_two(min(model.layers, 16))),
        choices("cp", [1]),
        choices("ep", [p for p in powers_of_two(64) if model.experts % p == 0] if model.experts else [1]),
    )
    splits = sorted(product(*degrees), key=lambda split: (split[0] * split[1] * split[2], split))
    for recompute, gpus in product(choices("recompute", ["none", "full"]), _sizes(cluster, own, splits)):
        for tp, pp, cp, ep in splits:
            dp, rest = divmod(gpus, tp * pp * cp)
            if rest or not dp or tp * cp * dp % ep or choices("dp", [dp])[0] != dp:
                continue
            micro_batches = max(pp, math.ceil(START_TOKENS / (seq * micro * dp)))
            plan = {
                "tp": tp,
                "pp": pp,
                **({"ep": ep} if ep > 1 else {}),
                **({"stages": list(stages)} if "vpp" not in own and (stages := even_stages(model.layers, pp)) else {}),
                "micro_batch": micro,
                "global_batch": choices("global_batch", [micro_batches * micro * dp])[0],
                "seq": seq,
                "recompute": recompute,
                "sequence_parallel": tp > 1,
                "sharding": "zero1" if dp > 1 else "none",
            }
            yield plan, gpus


def _sizes(cluster: Cluster, own: Mapping[str, Any], splits: Sequence[tuple[int, int, int, int]]) -> list[int]:
    """Numbers of GPUs to try: the stated one, those that a stated dp asks for, or nodes in powers of two."""
    if "gpus" in own:
        return [own["gpus"]]
    if "dp" in own:
        return sorted({tp * pp * cp * own["dp"] for tp, pp, cp, _ in splits})
    per_node = cluster.node.gpus
    return [per_node * p for p in powers_of_two(cluster.gpus // per_node)] or [cluster.gpus]


def _may_fit(model: Model, cluster: Cluster, plan: Mapping[str, Any], gpus: int) -> bool:
    """Whether a lower bound of weights, gradients and optimizer state fits, before a graph is built."""
    if model.frozen or any(str(key).startswith("offload") for key in plan):
        return True
    parameters, experts = parameter_count(model), expert_parameters(model)
    bytes_per_gpu = parameters * ALL_STATE / gpus
    if plan["sharding"] in ("none", "zero1"):
        pp = plan["pp"]
        bytes_per_gpu = (parameters - experts) / (plan["tp"] * pp) + experts / (plan.get("ep", 1) * pp)
        bytes_per_gpu = bytes_per_gpu * WEIGHT_AND_GRADIENT + parameters * (ALL_STATE - WEIGHT_AND_GRADIENT) / gpus
    return bytes_per_gpu <= cluster.node.gpu.memory


def _toml(value: object) -> str:
    """A value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
