"""How many copies of a server a whole load takes: users, or requests a second."""

from __future__ import annotations

import math
from dataclasses import replace

from windtunnel.serving.drafting import times_of
from windtunnel.serving.load import drawn_load
from windtunnel.serving.predict import serve
from windtunnel.serving.search import FleetSize, ServeChoice, ServeFront, ServeQuestion, keeps_limits, load_of

MOST_FLEETS = 6
"""Kinds of copies whose number is tried for a whole load: those that need the fewest GPUs by what they reach."""

_DEPTH = 2.0
"""Copies that are tried at most, over those that throughput alone asks for."""


def size_fleets(question: ServeQuestion, front: ServeFront, rate: float | None, all_users: int | None) -> tuple[FleetSize, ...]:
    """Copies for a whole load of `rate` requests a second or `all_users`, of choices that keep the limits: the fewest GPUs first.

    One copy is simulated with its part of the users, or of Poisson arrivals: the fewest copies at which nine of ten requests keep
    the limits and the copy keeps up.
    """
    guesses: dict[tuple[object, ...], tuple[int, int, ServeChoice]] = {}
    for choice in front.choices:
        if choice.has_sides or not keeps_limits(choice):
            continue
        share = rate / choice.served.requests_per_s if rate is not None else (all_users or 1) / choice.users
        copies = max(1, math.ceil(share - 1e-9))
        key = (choice.engine, choice.plan, choice.weights, choice.kv, choice.served.server.speculation)
        guess = (copies * choice.plan.gpus, copies, choice)
        if key not in guesses or guess[:2] < guesses[key][:2]:
            guesses[key] = guess
    nearest = sorted(guesses.values(), key=lambda guess: guess[:2])[:MOST_FLEETS]
    if rate is None:
        found = [_size_for_users(question, all_users or 1, choice, copies) for _, copies, choice in nearest]
    else:
        found = [size for _, copies, choice in nearest if (size := _size_for_rate(question, rate, choice, copies)) is not None]
    return tuple(sorted(found, key=lambda size: (size.gpus, size.copies)))


def _size_for_users(question: ServeQuestion, all_users: int, choice: ServeChoice, most: int) -> FleetSize:
    """The fewest copies at which `all_users` divided by them keep the limits. `most`: as many as the users of `choice` ask for; a
    search tries some numbers of users alone, so that a copy may serve more."""
    times, best = times_of(choice.served.server), FleetSize(choice, most, most * choice.plan.gpus, choice.served)
    if question.ttft is None and question.tpot is None:
        return best
    least = 1
    while least < best.copies:
        copies = (least + best.copies) // 2
        users = math.ceil(all_users / copies)
        served = serve(times.server, load_of(question, users), ttft=question.ttft, tpot=question.tpot, times=times)
        if keeps_limits(replace(choice, served=served)):
            best = FleetSize(replace(choice, users=users), copies, copies * choice.plan.gpus, served)
        else:
            least = copies + 1
    return best


def _size_for_rate(question: ServeQuestion, rate: float, choice: ServeChoice, first: int) -> FleetSize | None:
    """The fewest copies from `first` on of which each keeps the limits at its part of the rate; None where twice as many do not."""
    times, requests = times_of(choice.served.server), 4 * max(choice.users, 64)
    for copies in range(first, math.ceil(_DEPTH * first) + 2):
        load = drawn_load(
            question.isl, question.osl, requests=requests, rate=rate / copies, burstiness=question.burstiness, seed=question.seed
        )
        served = serve(times.server, load, ttft=question.ttft, tpot=question.tpot, times=times)
        if served.paced and keeps_limits(replace(choice, served=served)):
            return FleetSize(choice, copies, copies * choice.plan.gpus, served)
    return None
