"""Plans, numbers of users and formats of a server: which of them keep the limits, and which no other one beats."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.base.errors import PlanError, SpecError, WindtunnelError
from windtunnel.base.processes import count_cores, ordered_map
from windtunnel.serving.answer import Served
from windtunnel.serving.drafting import times_of
from windtunnel.serving.engines import ENGINES
from windtunnel.serving.load import SEED, drawn_load
from windtunnel.serving.predict import check_latency_limits, floor_of, serve
from windtunnel.serving.room import room_of
from windtunnel.serving.server import ServePlan, Server, server_of
from windtunnel.serving.simulate import most_tokens
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import Cluster, Model

USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Users of a copy that are tried."""

WAVES = 3
"""Requests of each user: one while users come, and two in the long run."""

DEGREES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ServeChoice:
    """A copy of the model with its users. `served`: how it answers; the copies of a machine answer alike."""

    engine: str
    plan: ServePlan
    weights: str
    kv: str
    users: int
    served: Served

    @property
    def interactivity(self) -> float:
        """Tokens a second that a user sees."""
        return 1.0 / self.served.tpot.mean

    @property
    def throughput(self) -> float:
        """Output tokens a second of a GPU."""
        return self.served.tokens_per_s_gpu

    def as_dict(self) -> dict[str, Any]:
        """The figures of `Served.as_dict`, with the number of users."""
        return {"users": self.users, "interactivity": self.interactivity, **self.served.as_dict()}


@dataclass(frozen=True)
class ServeFront:
    """`front`: choices that no other one beats in tokens a second of a GPU and of a user, the most throughput first; `best`: the
    one with most throughput that keeps the limits, if there is one; `nearest`: what the limits would have to be. `asked`: points
    of the space, `simulated` of these; the others do not fit (`unfit`) or cannot keep the limits by their bytes alone (`bound`)."""

    front: tuple[ServeChoice, ...]
    best: ServeChoice | None
    nearest: str
    asked: int
    simulated: int
    unfit: int
    bound: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys, SI units."""
        return {
            "front": [one.as_dict() for one in self.front],
            "best": None if self.best is None else self.best.as_dict(),
            "nearest": self.nearest,
            "asked": self.asked,
            "simulated": self.simulated,
            "unfit": self.unfit,
            "bound": self.bound,
        }


@dataclass(frozen=True)
class ServeQuestion:
    """What is searched: plans of at most `gpus` GPUs of `cluster`, engines, formats and users; `ttft`, `tpot`: limits that nine of
    ten requests keep, in seconds. `speculations`: what drafts, each of which is tried; None: nothing."""

    model: Model
    cluster: Cluster
    gpus: int
    engines: tuple[str, ...]
    weights: tuple[str, ...]
    kv: tuple[str, ...]
    users: tuple[int, ...]
    isl: str
    osl: str
    ttft: float | None
    tpot: float | None
    seed: int = SEED
    speculations: tuple[Speculation | None, ...] = (None,)


@dataclass(frozen=True)
class _Copy:
    """What one process tries: a copy of the model with all numbers of users."""

    question: ServeQuestion
    engine: str
    plan: ServePlan
    weights: str
    kv: str
    speculation: Speculation | None


@dataclass(frozen=True)
class _Tried:
    choices: tuple[ServeChoice, ...]
    unfit: int
    bound: int


def plans_of(model: Model, gpus: int) -> Iterator[ServePlan]:
    """Degrees in powers of two that divide what they cut, on at most `gpus` GPUs. DP attention goes with experts only."""
    groups = DEGREES if model.experts else (1,)
    for tp, pp, dp in itertools.product(DEGREES, DEGREES[:4], groups):
        if tp * pp * dp > gpus or model.heads % tp or pp > model.layers or pp > 1 and dp > 1:
            continue
        ranks = tp * dp
        parts = [ep for ep in DEGREES if ranks % ep == 0 and (model.experts or 1) % ep == 0] if model.experts else [1]
        for ep in parts if dp == 1 else [ep for ep in parts if ep == ranks]:
            yield ServePlan(tp=tp, pp=pp, dp=dp, ep=ep)


def search_servers(
    question: ServeQuestion, processes: int | None = None, progress: Callable[[float], object] | None = None
) -> ServeFront:
    """Every plan, engine, format and number of users of `question`, simulated where the memory holds it and its bytes allow the
    limits. `processes`: default one for each core; the answer does not depend on it. Raises SpecError for limits that are none and
    unknown engines, PlanError if nothing fits."""
    check_latency_limits(question.ttft, question.tpot)
    for name in question.engines:
        if name not in ENGINES:
            raise SpecError("engine", name, ", ".join(ENGINES))
    began = time.monotonic()
    plans = list(plans_of(question.model, question.gpus))
    space = itertools.product(question.engines, plans, question.weights, question.kv, question.speculations)
    copies = [_Copy(question, *one) for one in space]
    tried = []
    with ordered_map(min(processes or count_cores(), len(copies) or 1), _begin) as mapped:
        for done, one in enumerate(mapped(_try_copy, copies), 1):
            tried.append(one)
            if progress is not None:
                progress(done / len(copies))
    choices = [choice for one in tried for choice in one.choices]
    if not choices:
        _explain_nothing(question, tried)
    kept = [one for one in choices if _keeps(one)]
    best = max(kept, key=lambda one: one.throughput, default=None)
    unfit, bound = sum(one.unfit for one in tried), sum(one.bound for one in tried)
    nearest = "" if best is not None else _nearest(question, choices)
    asked = len(copies) * len(question.users)
    return ServeFront(front_of(choices), best, nearest, asked, len(choices), unfit, bound, time.monotonic() - began)


def front_of(choices: Sequence[ServeChoice]) -> tuple[ServeChoice, ...]:
    """Choices that no other one beats in throughput and in interactivity, the most throughput first."""
    found: list[ServeChoice] = []
    for one in sorted(choices, key=lambda one: (-one.throughput, -one.interactivity)):
        if not found or one.interactivity > found[-1].interactivity:
            found.append(one)
    return tuple(found)


def _begin() -> None:
    """A process begins with all that it needs imported."""


def _try_copy(copy: _Copy) -> _Tried:
    """One copy with every number of users."""
    question, count = copy.question, len(copy.question.users)
    try:
        server = server_of(
            question.model,
            question.cluster,
            copy.plan.gpus,
            copy.engine,
            copy.plan,
            weights=copy.weights,
            kv=copy.kv,
            speculation=copy.speculation,
        )
        times = times_of(server)
        room = room_of(server, times)
    except WindtunnelError:
        return _Tried((), count, 0)
    length = float(drawn_load(question.isl, question.osl, requests=64, concurrency=1, seed=question.seed).prompt.mean())
    found, unfit, bound = [], 0, 0
    for users in question.users:
        if question.tpot is not None and _floor(server, times, users, length) > question.tpot:
            bound += 1
            continue
        load = drawn_load(question.isl, question.osl, requests=max(WAVES * users, 8), concurrency=users, seed=question.seed)
        if int((load.prompt + load.output).max()) > min(most_tokens(times, room.lane_tokens), question.model.max_seq):
            unfit += 1
            continue
        served = serve(server, load, ttft=question.ttft, tpot=question.tpot, times=times)
        found.append(ServeChoice(copy.engine, copy.plan, copy.weights, copy.kv, users, served))
        if users > served.most_requests:  # more users wait in the queue
            unfit += count - question.users.index(users) - 1
            break
    return _Tried(tuple(found), unfit, bound)


def _floor(server: Server, times: StepTimes, users: int, length: float) -> float:
    """Seconds that a pass of one lane takes at least, for the bytes that it reads of weights and of prompts of `length` tokens."""
    lane = users / (server.plan.dp * server.plan.pp)
    return floor_of(server, times, max(1.0, lane), length)


def _keeps(one: ServeChoice) -> bool:
    """Whether nine of ten requests keep the limits."""
    return one.served.limits is None or one.served.limits.kept >= 0.9


def _nearest(question: ServeQuestion, choices: Sequence[ServeChoice]) -> str:
    """Limits that the choice which misses them least would keep."""

    def miss_of(one: ServeChoice) -> float:
        first = one.served.ttft.p90 / question.ttft if question.ttft is not None else 0.0
        each = one.served.tpot.p90 / question.tpot if question.tpot is not None else 0.0
        return max(first, each)

    one = min(choices, key=miss_of)
    words = [f"--ttft {one.served.ttft.p90:.3g}"] if question.ttft is not None else []
    words += [f"--tpot {one.served.tpot.p90:.3g}"] if question.tpot is not None else []
    return f"the nearest would keep {' '.join(words)}"


def _explain_nothing(question: ServeQuestion, tried: Sequence[_Tried]) -> None:
    """PlanError: nothing fits, or the bytes of every plan take longer than the limit."""
    name = question.model.name
    if any(one.bound for one in tried):
        allowed = f"a limit that the bytes of some plan of {question.gpus} GPUs allow"
        raise PlanError("--tpot", question.tpot, allowed, "Raise --tpot or --gpus.")
    hint = "Write --gpus with more, --weights fp8, or choose a GPU with more memory."
    raise PlanError("--gpus", question.gpus, f"GPUs that hold {name} and a request", hint)
