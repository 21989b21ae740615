"""A first plan for a model on a cluster, if a user states no plan or only parts of one.

The rule is simple, so that its result can be explained in a line: the smallest number of nodes on which the job fits with room to
spare, and on them the fastest of a few plans that the framework's users run. It finds a plan that works, not the best one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from operator import itemgetter
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import PlanError, SpecError, WindtunnelError
from windtunnel.memory import memory_of
from windtunnel.predict.step import predict_built
from windtunnel.search.change import Change, apply_or_none, plain_text
from windtunnel.search.defaults import PLAIN, RECOMPUTE, SHARDINGS, WITHOUT_MODEL_PARALLELISM
from windtunnel.search.levers.pricing import GAIN, MEGATRON, can_do, list_offers
from windtunnel.search.levers.registry import LEVERS, recompute_choices
from windtunnel.search.margin import usual_margin
from windtunnel.search.space import even_stages, expert_parameters, powers_of_two
from windtunnel.spec import Cluster, Job, Model, check, load_job
from windtunnel.spec.common import divisors
from windtunnel.spec.loading.degrees import stated_in
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

TRIES, TRIES_OF_EXPERTS = 64, 128
"""Limit of plans of one number of GPUs whose memory is computed; mixtures have more degrees."""


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
    probe = load_job({**table, "plan": {"global_batch": 1, "seq": 1}}, overrides)
    cluster, framework = probe.cluster, probe.runtime.framework
    own = _stated_plan(overrides)
    found = _Found(usual_margin(), bool(model.experts))
    held = None if model.frozen or model.lora is not None else (parameter_count(model), expert_parameters(model))
    sizes = _sizes(cluster, own, model, framework)
    for gpus in sizes:
        found.tries = 0
        splits = _by_split(
            one for one in _candidates(model, cluster, own, framework, gpus) if _may_fit(held, cluster, {**one, **own}, gpus)
        )
        if not splits and gpus == sizes[-1]:
            splits = _by_split(_candidates(model, cluster, own, framework, gpus))[-1:]
        chosen = {"cluster.gpus": gpus} if "cluster.gpus" not in stated else {}
        for plans in _fastest_first(splits, cluster, bool(model.experts), gpus):

            def fits(plan: Mapping[str, Any], chosen: Mapping[str, Any] = chosen) -> int:
                fields = {f"plan.{key}": value for key, value in plan.items() if f"plan.{key}" not in stated}
                return found.try_plan(table, {**fields, **chosen}, overrides)

            if gpus != sizes[-1] and not found.tries and fits(_leanest(splits)) == TOO_LARGE:
                break  # nothing fits on so few
            _try_split(plans, fits)
            if found.is_done:
                break
        if found.roomy:
            break
    if (best := found.best(may_dispatch=DISPATCH not in stated | stated_in(table))) is None:
        raise found.trouble or _no_candidate(model, cluster, own)
    return best


MOST_ROOMY, MOST_PREDICTED = 40, 16
"""Plans that fit with room to spare at which the trying ends, and how many of these are predicted; half of both without experts."""


TOO_LARGE, TIGHT, ROOMY = range(3)


def _leanest(splits: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """The plan that divides the model most, with the strongest recompute and the smallest micro batch."""
    every = [plan for plans in splits for plan in plans]
    return max(
        every,
        key=lambda one: (
            one["tp"] * one["pp"] * one.get("cp", 1) * one.get("ep", 1),
            one["tp"] * one.get("cp", 1),
            _recompute_factor(one),
            -one["micro_batch"],
        ),
    )


def _by_split(plans: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Plans that differ only in recompute and micro batch, together."""
    splits: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for plan in plans:
        key = (plan["tp"], plan["pp"], plan.get("cp", 1), plan.get("ep", 1), plan["sharding"])
        splits.setdefault(key, []).append(plan)
    return list(splits.values())


def _try_split(plans: Sequence[dict[str, Any]], fits: Callable[[Mapping[str, Any]], int]) -> None:
    """Tries the leanest plan of a split, and if that fits the weakest recompute with room to spare, with larger micro batches; then
    stronger recompute with micro batches that are larger still."""
    ordered = sorted(plans, key=lambda one: (_recompute_factor(one), one["micro_batch"]))
    smallest = min(one["micro_batch"] for one in plans)
    leanest = [one for one in ordered if one["micro_batch"] == smallest][-1]
    lean = fits(leanest) if len(plans) > 1 else ROOMY
    if lean == TOO_LARGE:
        return
    largest = 0
    for _, same in groupby(ordered, key=_recompute_factor):
        for one in same:
            if one["micro_batch"] > largest:
                if (lean if one is leanest and len(plans) > 1 else fits(one)) != ROOMY:
                    break
                largest = one["micro_batch"]


@dataclass
class _Found:
    """What became of the plans that were tried: `roomy` ones keep the share `margin` of the memory free, `tight` ones fit."""

    margin: float
    experts: bool
    roomy: list[Start] = field(default_factory=list)
    tight: list[Start] = field(default_factory=list)
    last: Start | None = None
    trouble: PlanError | SpecError | None = None
    tries: int = 0

    @property
    def is_done(self) -> bool:
        if self.experts:
            return self.tries >= TRIES_OF_EXPERTS or len(self.roomy) >= MOST_ROOMY
        return self.tries >= TRIES or len(self.roomy) >= MOST_ROOMY // 2

    def try_plan(self, table: Mapping[str, Any], fields: Mapping[str, Any], overrides: Sequence[str]) -> int:
        """Counts the memory of one more plan: ROOMY, TIGHT or TOO_LARGE."""
        try:
            job = check(load_job(table, [*(f"{path}={plain_text(value)}" for path, value in fields.items()), *overrides]))
        except (PlanError, SpecError) as error:
            self.trouble = self.trouble or error
            return TOO_LARGE
        begun, room = self._begin(job, tuple(f"{path} = {plain_text(value)}" for path, value in fields.items()))
        self.last = begun
        self.tries += 1
        if room != TOO_LARGE:
            (self.roomy if room == ROOMY else self.tight).append(begun)
        return room

    def _begin(self, job: Job, assumed: tuple[str, ...]) -> tuple[Start, int]:
        """A job with the room that it leaves."""
        stages = memory_of(job, build(job))
        if not all(stage.fits for stage in stages):
            return Start(job, assumed, False), TOO_LARGE
        roomy = all(stage.missing + self.margin * stage.usable <= 0.0 for stage in stages)
        return Start(job, assumed, True), ROOMY if roomy else TIGHT

    def best(self, may_dispatch: bool) -> Start | None:
        """The fastest predicted of the plans with room, or else of those that fit; the last one if none does.

        `may_dispatch`: tokens may go to experts in another way than by the framework's default. The ways are tried on the fastest
        plan, then the fastest way on all of them.
        """
        some = sorted(self.roomy or self.tight, key=lambda one: _guess_of(one.job))[
            : MOST_PREDICTED if self.experts else MOST_PREDICTED // 2
        ]
        if not some:
            return self.last
        if len(some) == 1 and not self.experts:
            return some[0]
        rate, best = max(((_rate(one.job), one) for one in some), key=itemgetter(0))
        ways: dict[float, tuple[Change, Start]] = {}
        for change in _dispatches(best.job) if may_dispatch else ():
            for faster, sent in self._rate_with_dispatch([best], change):
                ways[faster] = change, sent
        if not ways or max(ways) <= (1.0 + GAIN) * rate:
            return best
        change, sent = ways[max(ways)]
        others = self._rate_with_dispatch((one for one in some if one is not best), change)
        return max(((max(ways), sent), *others), key=itemgetter(0))[1]

    def _rate_with_dispatch(self, some: Iterable[Start], change: Change) -> Iterator[tuple[float, Start]]:
        """Plans with another way to dispatch tokens that leave as much room, each with its rate."""
        for begun in some:
            after = apply_or_none(begun.job, change.without_no_ops(begun.job))
            if after is not None and can_do(after, change):
                sent, room = self._begin(
                    after, (*begun.assumed, *(f"{path} = {plain_text(value)}" for path, value in change.fields))
                )
                if room == ROOMY or room == TIGHT and not self.roomy:
                    yield _rate(after), sent


DISPATCH = "runtime.moe_dispatch"


def _dispatches(job: Job) -> list[Change]:
    """The other ways to dispatch tokens to experts that the framework of `job` has."""
    if job.plan.ep == 1:
        return []
    experts = tuple(lever for lever in LEVERS if lever.name == "experts")
    return [change for _, change in list_offers(job, experts) if any(path == DISPATCH for path, _ in change.fields)]


MANY_BATCHES = 6
"""Micro batches of a step, in multiples of the stages, from which a step is told from two shorter ones."""


def _rate(job: Job) -> float:
    """Tokens a second; of a long pipeline from two short ones, since each further micro batch takes as long as the one before."""
    pp, count = job.plan.pp, job.micro_batches
    try:
        if count <= MANY_BATCHES * pp:
            return predict_built(build(job)).tokens_per_s
        few, more = (predict_built(build(check(_with_batches(job, rounds * pp)))).step_time_s for rounds in (2, 3))
    except WindtunnelError:
        return 0.0
    return job.plan.global_batch * job.plan.seq / (more + (count - 3 * pp) * (more - few) / pp)


def _with_batches(job: Job, count: int) -> Job:
    plan = job.plan.model_copy(update={"global_batch": count * job.plan.micro_batch * job.dp})
    return job.model_copy(update={"plan": plan})


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


def _candidates(model: Model, cluster: Cluster, own: Mapping[str, Any], framework: str, gpus: int) -> Iterator[dict[str, Any]]:
    """Plans on `gpus` GPUs that the framework's users run."""

    def choices(name: str, otherwise: Sequence[Any]) -> list[Any]:
        return [own[name]] if name in own else list(otherwise)

    node = cluster.node
    seq = choices("seq", [min(model.max_seq, START_SEQ)])[0]
    alone = framework in WITHOUT_MODEL_PARALLELISM
    shardings = SHARDINGS.get(framework, ("zero1",))
    names = RECOMPUTE.get(framework, ("none", "full") if alone else ("none", "selective", "full"))
    policies: list[dict[str, Any]] = [{"recompute": name} for name in choices("recompute", names)]
    if framework in MEGATRON and model.experts and not {"recompute", "recompute_modules"} & own.keys():
        modules = [choice for choice in recompute_choices(model) if choice != ("core_attn",)]
        policies += [{"recompute": "selective", "recompute_modules": list(choice)} for choice in modules]
    contexts = powers_of_two(min(gpus, max(1, seq // LONG_SEQ))) if seq > LONG_SEQ else [1]
    for tp, pp, cp, ep, policy, micro, sharding in product(
        choices("tp", [1] if alone else [p for p in powers_of_two(min(node.domain, 8)) if model.heads % p == 0]),
        choices("pp", [1] if alone or framework == "maxtext" else powers_of_two(min(model.layers, 16))),
        choices("cp", contexts),
        choices("ep", [p for p in powers_of_two(64) if model.experts % p == 0] if model.experts and framework != "fsdp" else [1]),
        policies,
        choices("micro_batch", [1, 2, 4]),
        choices("sharding", shardings),
    ):
        dp, rest = divmod(gpus, tp * pp * cp)
        if rest or not dp or tp * cp * dp % ep or choices("dp", [dp])[0] != dp:
            continue
        if "sharding" not in own and not _shards(sharding, dp * cp, max(1, cluster.domain // tp)):
            sharding = "none" if dp * cp == 1 else ""
        micro_batches = max(pp, math.ceil(START_TOKENS / (seq * micro * dp)))
        batch = choices("global_batch", [micro_batches * micro * dp])[0]
        if not sharding or "global_batch" in own and micro > 1 and batch % (micro * dp):
            continue
        vpp = 1
        if (
            1 < pp <= model.layers // 4
            and framework not in PLAIN
            and not {"pp", "vpp"} & own.keys()
            and not batch // (micro * dp) % pp
        ):
            vpp = 4 if batch < 4 * pp * micro * dp and pp <= model.layers // 8 else 2  # few micro batches: a large bubble
        yield {
            "tp": tp,
            "pp": pp,
            **({"cp": cp} if cp > 1 else {}),
            **({"ep": ep} if ep > 1 else {}),
            **({"vpp": vpp} if vpp > 1 else {}),
            **({"stages": list(stages)} if "vpp" not in own and (stages := even_stages(model.layers, pp * vpp)) else {}),
            "micro_batch": micro,
            "global_batch": batch,
            "seq": seq,
            **policy,
            "sequence_parallel": tp > 1,
            "sharding": sharding,
            **({"shard_group": max(1, cluster.domain // tp)} if sharding == "hsdp" and "shard_group" not in own else {}),
        }


LONG_SEQ = 16384
"""Tokens of a sequence that one rank may hold before sequences are shared by ranks."""


def _shards(sharding: str, ranks: int, near: int) -> bool:
    """Whether a way to shard is one for so many ranks, `near` of them in a node."""
    return ranks > 1 and (sharding != "hsdp" or 1 < near < ranks and ranks % near == 0)


AGAIN = {"none": 1.0, "selective": 1.02, "ops": 1.15, "full": 1.33}
"""Time of a step with recompute over one without, to order plans before any is predicted."""
AGAIN_OF_MODULES = {"moe": 1.2, "moe_act": 1.05}
"""The same for selective recompute of modules, by the last of them."""


def _recompute_factor(plan: Mapping[str, Any]) -> float:
    modules = plan.get("recompute_modules") or ("core_attn",)
    return AGAIN_OF_MODULES.get(modules[-1], AGAIN[plan["recompute"]])


def _fastest_first(
    splits: Iterable[list[dict[str, Any]]], cluster: Cluster, experts: bool, gpus: int
) -> list[list[dict[str, Any]]]:
    """Splits by the least guess of their plans."""

    def least(plans: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
        return min(_guess(plan, cluster, experts, _micro_batches(plan, gpus)) for plan in plans)

    return sorted(splits, key=least)


def _micro_batches(plan: Mapping[str, Any], gpus: int) -> int:
    """Micro batches of a candidate's step."""
    dp = max(1, gpus // (int(plan["tp"]) * int(plan["pp"]) * int(plan.get("cp", 1))))
    return max(1, int(plan["global_batch"]) // (int(plan["micro_batch"]) * dp))


def _guess(plan: Mapping[str, Any], cluster: Cluster, experts: bool, micro_batches: int) -> tuple[float, int]:
    """A rule of thumb of a plan's time, the least first: recompute, calls inside layers, calls that leave a domain, the bubble;
    then micro batches, the smallest first."""
    tp, pp, cp, ep = plan["tp"], plan["pp"], plan.get("cp", 1), plan.get("ep", 1)
    calls = 1.0 + 0.1 * (tp.bit_length() - 1) + 0.04 * (cp.bit_length() - 1) + 0.05 * (pp.bit_length() - 1)
    calls += (0.3 if tp * cp > cluster.domain else 0.0) + 0.3 * max(
        0.0, 1.0 - cluster.domain / ep
    )  # the tokens that leave a domain
    full = plan["sharding"] in ("zero3", "fsdp", "hsdp")
    calls += (0.05 if full else 0.0) + (0.4 if full and experts and ep == 1 else 0.0)  # all experts of a layer are gathered
    bubble = (pp - 1) / (plan.get("vpp", 1) * micro_batches)
    return _recompute_factor(plan) * calls * (1.0 + bubble), plan["micro_batch"]


def _guess_of(job: Job) -> float:
    """`_guess` of a job; micro batches of several sequences make larger products."""
    plan = job.plan
    names = ("tp", "pp", "cp", "ep", "vpp", "recompute", "recompute_modules", "sharding", "micro_batch")
    experts = bool(getattr(job.model, "experts", None))
    guess, _ = _guess({name: getattr(plan, name) for name in names}, job.cluster, experts, job.micro_batches)
    return guess * 0.98 ** (plan.micro_batch.bit_length() - 1)


def _sizes(cluster: Cluster, own: Mapping[str, Any], model: Model, framework: str) -> list[int]:
    """Numbers of GPUs to try: the stated one, those that a stated dp asks for, or nodes in powers of two."""
    if "gpus" in own:
        return [own["gpus"]]
    if "dp" in own:
        alone = framework in WITHOUT_MODEL_PARALLELISM
        tps = (
            [own["tp"]]
            if "tp" in own
            else [1]
            if alone
            else [p for p in powers_of_two(min(cluster.domain, 8)) if model.heads % p == 0]
        )
        pps = [own["pp"]] if "pp" in own else [1] if alone else powers_of_two(min(model.layers, 16))
        return sorted({tp * pp * own.get("cp", 1) * own["dp"] for tp, pp in product(tps, pps)})
    per_node = cluster.node.gpus
    return [per_node * p for p in powers_of_two(cluster.gpus // per_node)] or [cluster.gpus]


def _may_fit(held: tuple[float, float] | None, cluster: Cluster, plan: Mapping[str, Any], gpus: int) -> bool:
    """Whether a lower bound of weights, gradients and optimizer state fits, before a graph is built. `held`: trained parameters,
    and those of experts among them; None: not all are trained."""
    if held is None or any(str(key).startswith("offload") for key in plan):
        return True
    parameters, experts = held
    bytes_per_gpu = parameters * ALL_STATE / gpus
    if plan["sharding"] in ("none", "zero1"):
        pp = plan["pp"]
        bytes_per_gpu = (parameters - experts) / (plan["tp"] * pp) + experts / (plan.get("ep", 1) * pp)
        bytes_per_gpu = bytes_per_gpu * WEIGHT_AND_GRADIENT + parameters * (ALL_STATE - WEIGHT_AND_GRADIENT) / gpus
    return bytes_per_gpu <= cluster.node.gpu.memory
