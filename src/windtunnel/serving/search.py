"""Plans, numbers of users and formats of a server: which of them keep the limits, and which no other one beats."""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError, WindtunnelError
from windtunnel.base.processes import count_cores, ordered_map
from windtunnel.serving.answer import Served
from windtunnel.serving.drafting import times_of
from windtunnel.serving.engine import EngineSettings
from windtunnel.serving.load import SEED, ServeLoad, drawn_load
from windtunnel.serving.predict import check_latency_limits, floor_of, on_copies, serve, serve_sides
from windtunnel.serving.ratios import SideRatio, best_prefills, choose_fronts, decode_rate, prompt_rate, prompt_seconds
from windtunnel.serving.room import CacheRoom, room_of
from windtunnel.serving.server import ServePlan, server_of
from windtunnel.serving.simulate import most_tokens
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import Cluster, Model

USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Users of a copy that are tried."""

CLEARLY = 0.85
"""Share of another point's throughput below which one that is no faster for a user is not simulated."""

WAVES = 3
"""Requests of each user: one while users come, and two in the long run."""

DEGREES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ServeChoice:
    """A copy of the model with its users, or copies for prompts and copies for tokens (`served.prefill`), where `plan` is that of
    the latter and `users` are those of all. `served`: how it answers; the copies of a machine answer alike. `share`: of the GPUs
    that are compared, those that copies fill."""

    engine: str
    plan: ServePlan
    weights: str
    kv: str
    users: int
    served: Served
    share: float = 1.0

    @property
    def interactivity(self) -> float:
        """Tokens a second that a user sees."""
        return 1.0 / self.served.tpot.mean

    @property
    def throughput(self) -> float:
        """Output tokens a second of a GPU, those that no copy fills among them."""
        return self.served.tokens_per_s_gpu * self.share

    @property
    def dollars(self) -> float | None:
        """Dollars of a million output tokens, with those of GPUs that no copy fills; None without a price."""
        return None if self.served.dollars is None else self.served.dollars / self.share

    @property
    def has_sides(self) -> bool:
        """Whether prompts have copies of their own."""
        return self.served.prefill is not None

    def as_dict(self) -> dict[str, Any]:
        """The figures of `Served.as_dict`, with the number of users."""
        fields = {"users": self.users, "interactivity": self.interactivity, "throughput": self.throughput, "share": self.share}
        return {**fields, **self.served.as_dict()}


@dataclass(frozen=True)
class FleetSize:
    """How many copies serve a whole load. `served`: how one of them answers its part; `gpus`: of all copies."""

    choice: ServeChoice
    copies: int
    gpus: int
    served: Served

    @property
    def dollars_an_hour(self) -> float | None:
        """US dollars of an hour of all copies; None without a price."""
        dollars, tokens = self.served.dollars, self.served.tokens_per_s
        return None if dollars is None else self.copies * dollars * tokens * 3600.0 / 1e6

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the copies, and the figures of one of them."""
        fields = {"copies": self.copies, "gpus": self.gpus, "dollars_an_hour": self.dollars_an_hour}
        return {**fields, "users": self.choice.users, **self.served.as_dict(), "gpus_of_a_copy": self.choice.plan.gpus}


@dataclass(frozen=True)
class ServeFront:
    """`front`: choices that no other one beats in tokens a second of a GPU and of a user, the most throughput first; `best`: the
    one with most throughput that keeps the limits, if there is one; `nearest`: what the limits would have to be. `asked`: points
    of the space, `simulated` of these; the others do not fit (`unfit`) or cannot keep the limits by their bytes alone (`bound`).
    `choices`: all that were simulated. `kinds`: the best under the limits where prompts and tokens share copies, and where they do
    not; None for one that keeps none, empty if only one kind was tried. `beaten`: points with copies for prompts that another one
    beats clearly by the rates of its sides alone, and that were not simulated. `fleets`: of a whole load, the fewest GPUs
    first."""

    front: tuple[ServeChoice, ...]
    best: ServeChoice | None
    nearest: str
    asked: int
    simulated: int
    unfit: int
    bound: int
    seconds: float
    choices: tuple[ServeChoice, ...] = ()
    kinds: tuple[ServeChoice | None, ...] = ()
    beaten: int = 0
    fleets: tuple[FleetSize, ...] = ()

    @property
    def gain(self) -> float | None:
        """Throughput of the best choice with copies for prompts over that of the best without; None without both."""
        if len(self.kinds) < 2 or self.kinds[0] is None or self.kinds[1] is None:
            return None
        return self.kinds[1].throughput / self.kinds[0].throughput

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys, SI units."""
        return {
            "kinds": [None if one is None else one.as_dict() for one in self.kinds],
            "gain_of_prefill": self.gain,
            "front": [one.as_dict() for one in self.front],
            "best": None if self.best is None else self.best.as_dict(),
            "nearest": self.nearest,
            "asked": self.asked,
            "simulated": self.simulated,
            "unfit": self.unfit,
            "bound": self.bound,
            "beaten": self.beaten,
            **({"fleets": [one.as_dict() for one in self.fleets]} if self.fleets else {}),
        }


@dataclass(frozen=True)
class ServeQuestion:
    """What is searched: plans of at most `gpus` GPUs of `cluster`, engines, formats and users; `ttft`, `tpot`: limits that nine of
    ten requests keep, in seconds. `speculations`: what drafts, each of which is tried; None: nothing. `prefill`:
    prompts on copies of their own are tried too, with `gpus` GPUs in all for either kind. `settings`, `attention_weights`,
    `context`: of every copy, as `server_of` has them; `burstiness`: of a whole load's rate."""

    model: Model
    cluster: Cluster
    gpus: int
    engines: tuple[str, ...]
    weights: tuple[str | None, ...]
    kv: tuple[str | None, ...]
    users: tuple[int, ...]
    isl: str
    osl: str
    ttft: float | None
    tpot: float | None
    seed: int = SEED
    speculations: tuple[Speculation | None, ...] = (None,)
    prefill: bool = False
    settings: EngineSettings = EngineSettings()
    attention_weights: str | None = None
    context: int | None = None
    burstiness: float = 1.0


@dataclass(frozen=True)
class _Copy:
    """What one process tries: a copy of the model with each of `users`; `apart`: as one that decodes, beside others for prompts."""

    question: ServeQuestion
    engine: str
    plan: ServePlan
    weights: str | None
    kv: str | None
    speculation: Speculation | None
    users: tuple[int, ...]
    apart: bool = False


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
        question.settings.engine(name, question.cluster.gpu)
    began = time.monotonic()
    plans = list(plans_of(question.model, question.gpus))
    space = list(itertools.product(question.engines, plans, question.weights, question.kv, question.speculations))
    copies = [_Copy(question, *one, question.users) for one in space]
    apart = [replace(one, apart=True) for one in copies] if question.prefill else []
    tried = []
    beaten, done, whole = 0, 0, len(copies) + 2 * len(apart)
    with ordered_map(min(processes or count_cores(), len(copies) or 1), _begin) as mapped:
        guesses = []
        for guess in mapped(_guess_apart, apart):
            guesses.append(guess)
            done = _tell(progress, done, whole)
        worth, beaten = _worth(apart, guesses)
        whole = done + len(copies) + len(worth)
        for one in mapped(_try_copy, [*copies, *worth]):
            tried.append(one)
            done = _tell(progress, done, whole)
    tried += [_Tried((), guess.unfit, guess.bound) for guess in guesses]
    choices = [choice for one in tried for choice in one.choices]
    if not choices:
        _explain_nothing(question, tried)
    kept = [one for one in choices if keeps_limits(one)]
    best = max(kept, key=lambda one: one.throughput, default=None)
    unfit, bound = sum(one.unfit for one in tried), sum(one.bound for one in tried)
    nearest = "" if best is not None else _nearest(question, choices)
    asked = (len(copies) + len(apart)) * len(question.users)
    kinds = tuple(
        max((one for one in kept if one.has_sides == apart), key=lambda one: one.throughput, default=None)
        for apart in ((False, True) if question.prefill else ())
    )
    took = time.monotonic() - began
    return ServeFront(front_of(choices), best, nearest, asked, len(choices), unfit, bound, took, tuple(choices), kinds, beaten)


def front_of(choices: Sequence[ServeChoice]) -> tuple[ServeChoice, ...]:
    """Choices that no other one beats in throughput and in interactivity, the most throughput first."""
    found: list[ServeChoice] = []
    for one in sorted(choices, key=lambda one: (-one.throughput, -one.interactivity)):
        if not found or one.interactivity > found[-1].interactivity:
            found.append(one)
    return tuple(found)


def _begin() -> None:
    """A process begins with all that it needs imported."""


class _Guess(NamedTuple):
    """What rates by passes alone say of a copy that decodes: (users, tokens/s of a user, tokens/s a GPU) where it fits."""

    points: tuple[tuple[int, float, float], ...]
    unfit: int
    bound: int


def _tell(progress: Callable[[float], object] | None, done: int, whole: int) -> int:
    """One step more of `whole`."""
    if progress is not None:
        progress(min(1.0, (done + 1) / whole))
    return done + 1


def _worth(apart: Sequence[_Copy], guesses: Sequence[_Guess]) -> tuple[list[_Copy], int]:
    """The copies with those users that no other point beats clearly in both rates; how many points are beaten."""
    points = sorted(((user, gpu) for guess in guesses for _, user, gpu in guess.points), reverse=True)
    users, most = [user for user, _ in points], list(itertools.accumulate((gpu for _, gpu in points), max))
    worth, beaten = [], 0
    for copy, guess in zip(apart, guesses, strict=True):
        kept = []
        for count, user, gpu in guess.points:
            ahead = bisect.bisect_right(users, -user, key=lambda value: -value)
            if gpu >= CLEARLY * most[ahead - 1]:
                kept.append(count)
        beaten += len(guess.points) - len(kept)
        if kept:
            worth.append(replace(copy, users=tuple(kept)))
    return worth, beaten


class _Ready(NamedTuple):
    """A copy that fits: its passes and its memory."""

    times: StepTimes
    room: CacheRoom


_READY: dict[tuple[object, ...], _Ready | None] = {}
"""Copies that a process has made, of the question of `_ASKED`."""

_ASKED: list[ServeQuestion] = []


def _make_ready(
    question: ServeQuestion, engine: str, plan: ServePlan, weights: str | None, kv: str | None, drafted: Speculation | None
) -> _Ready | None:
    """A copy, made once in a process; None if it does not fit."""
    if not _ASKED or _ASKED[0] is not question and _ASKED[0] != question:
        _ASKED[:] = [question]
        _READY.clear()
    key = (engine, plan, weights, kv, None if drafted is None else drafted.words())
    if key not in _READY:
        try:
            server = server_of(
                question.model, question.cluster, plan.gpus, engine, plan, weights=weights, kv=kv, speculation=drafted,
                attention_weights=question.attention_weights, context=question.context, **vars(question.settings),
            )  # fmt: skip
            times = times_of(server)
            _READY[key] = _Ready(times, room_of(server, times))
        except PlanError:
            _READY[key] = None
    return _READY[key]


def _try_copy(copy: _Copy) -> _Tried:
    """One copy with every number of users."""
    question, count = copy.question, len(copy.question.users)
    ready = _make_ready(question, copy.engine, copy.plan, copy.weights, copy.kv, copy.speculation)
    if ready is None:
        return _Tried((), count, 0)
    if copy.apart:
        return _try_apart(copy, ready)
    times, room = ready
    length, _ = _mean_lengths(question)
    share = question.gpus // copy.plan.gpus * copy.plan.gpus / question.gpus if question.prefill else 1.0
    found, unfit, bound = [], 0, 0
    for users in question.users:
        if question.tpot is not None and _floor(times, users, length) > question.tpot:
            bound += 1
            continue
        load = load_of(question, users)
        if int((load.prompt + load.output).max()) > min(most_tokens(times, room.lane_tokens), times.server.model.max_seq):
            unfit += 1
            continue
        served = serve(times.server, load, ttft=question.ttft, tpot=question.tpot, times=times)
        found.append(ServeChoice(copy.engine, copy.plan, times.server.weights, times.server.kv, users, served, share))
        if users > served.most_requests:  # more users wait in the queue
            unfit += count - question.users.index(users) - 1
            break
    return _Tried(tuple(found), unfit, bound)


def _guess_apart(copy: _Copy) -> _Guess:
    """What the rates of both sides say of a copy that decodes, with each of its users."""
    question = copy.question
    ready = _make_ready(question, copy.engine, copy.plan, copy.weights, copy.kv, copy.speculation)
    if ready is None:
        return _Guess((), len(copy.users), 0)
    times, room = ready
    prompt, output = _mean_lengths(question)
    fronts, _ = _front_sides(copy, prompt)
    points: list[tuple[int, float, float]] = []
    unfit, bound = 0, 0
    for users in copy.users:
        rate = decode_rate(times, users, prompt, output)
        late = question.ttft is not None and all(prompt_seconds(front, prompt) > question.ttft for front in fronts)
        if late or question.tpot is not None and users / (rate * output) > question.tpot:  # by passes alone
            bound += 1
            continue
        if users > room.requests(prompt + output) * times.server.plan.dp * times.server.plan.pp:
            unfit += 1
            continue
        chosen = choose_fronts(question.gpus, fronts, times, prompt, rate)
        if not chosen:
            unfit += 1
            continue
        front, ratio = chosen[0]
        slower = ratio.units * min(ratio.prefill * prompt_rate(front, prompt), ratio.decode * rate)
        points.append((users, rate * output / users, slower * output / question.gpus))
    return _Guess(tuple(points), unfit, bound)


def _try_apart(copy: _Copy, ready: _Ready) -> _Tried:
    """A copy that decodes with each of its users, beside good copies for prompts in the number that it needs."""
    question, found = copy.question, []
    prompt, output = _mean_lengths(question)
    fronts, rooms = _front_sides(copy, prompt)
    for users in copy.users:
        rate = decode_rate(ready.times, users, prompt, output)
        for front, ratio in choose_fronts(question.gpus, fronts, ready.times, prompt, rate):
            found += _serve_apart(copy, (front, ready.times), (rooms[id(front)], ready.room), ratio, users)
    return _Tried(tuple(found), 0 if found else len(copy.users), 0)


def _front_sides(copy: _Copy, prompt: float) -> tuple[list[StepTimes], dict[int, CacheRoom]]:
    """Good copies for prompts beside `copy`, and the memory of each by its identity."""
    others = [_make_ready(copy.question, copy.engine, plan, copy.weights, copy.kv, copy.speculation) for plan in _fronts(copy)]
    rooms = {id(one.times): one.room for one in others if one is not None}
    return best_prefills([one.times for one in others if one is not None], prompt), rooms


def _fronts(copy: _Copy) -> list[ServePlan]:
    """Plans of copies for prompts that leave room for one copy that decodes."""
    return [plan for plan in plans_of(copy.question.model, copy.question.gpus) if plan.gpus + copy.plan.gpus <= copy.question.gpus]


def _serve_apart(
    copy: _Copy, sides: tuple[StepTimes, StepTimes], rooms: tuple[CacheRoom, CacheRoom], ratio: SideRatio, users: int
) -> list[ServeChoice]:
    """How one unit of `ratio` answers; nothing if a request does not fit."""
    question = copy.question
    load = load_of(question, users * ratio.decode)
    counts = (ratio.prefill, ratio.decode)
    wide = tuple(on_copies(times, count) for times, count in zip(sides, counts, strict=True))
    try:
        served = serve_sides((wide[0], wide[1]), rooms, load, ttft=question.ttft, tpot=question.tpot)
    except WindtunnelError:
        return []
    server = served.server
    return [ServeChoice(copy.engine, copy.plan, server.weights, server.kv, users * ratio.decode, served, ratio.share)]


def _mean_lengths(question: ServeQuestion) -> tuple[float, float]:
    """Mean tokens of a prompt and of an output."""
    load = drawn_load(question.isl, question.osl, requests=64, concurrency=1, seed=question.seed)
    return float(load.prompt.mean()), float(load.output.mean())


def load_of(question: ServeQuestion, users: int) -> ServeLoad:
    """What `users` send."""
    return drawn_load(question.isl, question.osl, requests=max(WAVES * users, 8), concurrency=users, seed=question.seed)


def _floor(times: StepTimes, users: int, length: float) -> float:
    """Seconds that a pass of one lane takes at least, for the bytes that it reads of weights and of prompts of `length` tokens."""
    server = times.server
    lane = users / (server.plan.dp * server.plan.pp)
    return floor_of(server, times, max(1.0, lane), length)


def keeps_limits(one: ServeChoice) -> bool:
    """Whether nine of ten requests keep the limits."""
    return one.served.limits is None or one.served.limits.kept >= 0.9


def nine_of_ten(served: Served) -> tuple[float, float]:
    """Seconds to the first and to each further token that nine of ten requests keep: of those that are judged by limits."""
    limits = served.limits
    return (served.ttft.p90, served.tpot.p90) if limits is None else (limits.ttft_p90, limits.tpot_p90 or 0.0)


def _nearest(question: ServeQuestion, choices: Sequence[ServeChoice]) -> str:
    """Limits that the choice which misses them least would keep."""

    def miss_of(one: ServeChoice) -> float:
        first, each = nine_of_ten(one.served)
        return max(first / question.ttft if question.ttft is not None else 0.0, each / question.tpot if question.tpot else 0.0)

    first, each = nine_of_ten(min(choices, key=miss_of).served)
    words = [f"--ttft {first:.3g}"] if question.ttft is not None else []
    words += [f"--tpot {each:.3g}"] if question.tpot is not None else []
    return f"the nearest would keep {' '.join(words)}"


def _explain_nothing(question: ServeQuestion, tried: Sequence[_Tried]) -> None:
    """PlanError: nothing fits, or the bytes of every plan take longer than the limit."""
    name = question.model.name
    if any(one.bound for one in tried):
        allowed = f"a limit that the bytes of some plan of {question.gpus} GPUs allow"
        raise PlanError("--tpot", question.tpot, allowed, "Raise --tpot or --gpus.")
    hint = "Write --gpus with more, narrower --weights, or choose a GPU with more memory."
    raise PlanError("--gpus", question.gpus, f"GPUs that hold {name} and a request", hint)
