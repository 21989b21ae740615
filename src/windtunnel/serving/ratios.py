"""How many copies compute prompts and how many decode, on the same number of GPUs in all.

Both sides have a rate by their passes alone: prompts a second of a prefill copy, and requests a second of a decode copy with its
users. Of all divisions of the GPUs, the one is simulated whose slower side is fastest.
"""

from __future__ import annotations

import math

from windtunnel.base.dataclasses import dataclass
from windtunnel.serving.lengths import Passing
from windtunnel.serving.server import ServePlan
from windtunnel.serving.step_times import StepTimes

NEAR = 0.9
"""Share of the fastest division's rate from which shorter prompts are worth a look."""


@dataclass(frozen=True)
class SideRatio:
    """`prefill` and `decode` copies, as a unit without a common divisor; `units` of it fill `share` of the GPUs."""

    prefill: int
    decode: int
    units: int
    share: float


def divide_gpus(gpus: int, plans: tuple[ServePlan, ServePlan], rates: tuple[float, float]) -> SideRatio | None:
    """The copies of both sides on `gpus` GPUs whose slower side has most of the `rates`, the fewest GPUs of equal ones; None if one
    copy of each does not fit."""
    front, back = plans[0].gpus, plans[1].gpus
    found: tuple[float, int, int, int] | None = None
    for prefill in range(1, (gpus - back) // front + 1):
        most = (gpus - prefill * front) // back
        enough = min(most, math.ceil(prefill * rates[0] / rates[1]))
        rate = min(prefill * rates[0], enough * rates[1])
        used = prefill * front + enough * back
        if found is None or (rate, -used) > (found[0], found[1]):
            found = rate, -used, prefill, enough
    if found is None:
        return None
    _, used, prefill, decode = found
    units = math.gcd(prefill, decode)
    return SideRatio(prefill // units, decode // units, units, -used / gpus)


def prompt_rate(times: StepTimes, prompt: float) -> float:
    """Prompts of `prompt` tokens a second that a copy computes when all its passes are full."""
    engine, plan = times.server.engine, times.server.plan
    budget = engine.prefill_chunk or engine.step_tokens
    together = max(1, int(budget / prompt))
    return plan.dp * plan.pp * together / prompt_seconds(times, prompt, together)


def prompt_seconds(times: StepTimes, prompt: float, together: int = 1) -> float:
    """Seconds of the passes over `together` prompts of `prompt` tokens, in chunks as the engine cuts them."""
    engine = times.server.engine
    budget, done, seconds, length = engine.prefill_chunk or engine.step_tokens, 0, 0.0, max(1, round(prompt))
    while done < length:
        chunk = min(length - done, max(1, budget // together))
        pairs = together * (chunk * done + chunk * (chunk + 1) / 2.0)
        seconds += times.seconds(Passing(chunk * together, together, pairs, 0, 0.0), together if done + chunk == length else 0)
        done += chunk
    return seconds


def decode_rate(times: StepTimes, users: int, prompt: float, output: float) -> float:
    """Requests a second that a copy with `users` decodes."""
    server = times.server
    lane = max(1, math.ceil(users / (server.plan.dp * server.plan.pp)))
    one = Passing(0, 0, 0.0, lane, lane * (prompt + output / 2.0), lane * server.drafts)
    accepted = 1.0 if server.speculation is None else server.speculation.accepted
    return users * accepted / (max(output, 1.0) * times.seconds(one, one.decodes + one.verified))


def best_prefills(sides: list[StepTimes], prompt: float) -> list[StepTimes]:
    """Prefill copies that no other one beats in the seconds of a prompt and in prompts a second of a GPU, the shortest first."""
    scored = sorted(
        (prompt_seconds(times, prompt), -prompt_rate(times, prompt) / times.server.plan.gpus, place)
        for place, times in enumerate(sides)
    )
    found: list[StepTimes] = []
    least = math.inf
    for _, rate, place in scored:
        if rate < least:
            found.append(sides[place])
            least = rate
    return found


def choose_fronts(
    gpus: int, fronts: list[StepTimes], back: StepTimes, prompt: float, rate: float
) -> list[tuple[StepTimes, SideRatio]]:
    """Of `fronts`, the shortest prompts first, those that come near the fastest division beside copies of `back` with `rate`
    requests a second: the one with the shortest prompts, and the one whose prompts queue least, since it has most of them a
    second."""
    tried = []
    for front in fronts:
        rates = prompt_rate(front, prompt), rate
        ratio = divide_gpus(gpus, (front.server.plan, back.server.plan), rates)
        if ratio is not None:
            sides = ratio.units * ratio.prefill * rates[0], ratio.units * ratio.decode * rates[1]
            tried.append((min(sides), sides[0], front, ratio))
    if not tried:
        return []
    fastest = max(slower for slower, _, _, _ in tried)
    near = [one for one in tried if one[0] >= NEAR * fastest]
    quick, wide = near[0], max(near, key=lambda one: one[1])
    return [(front, ratio) for _, _, front, ratio in ([quick] if quick is wide else [quick, wide])]
