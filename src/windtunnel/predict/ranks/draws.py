"""Drawn steps: the hosts that pause and the links that are slow in each, and its share of all steps."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.predict.ranks.places import Chance, places_of, ranks_named, stream
from windtunnel.spec import Job
from windtunnel.spec.unequal import Unequal

Pauses = tuple[tuple[int, float, float], ...]
"""Pause of a host: (rank, place in the order of its passes from 0 to 1, seconds)."""


@dataclass(frozen=True)
class Draw:
    """A drawn step; `weight`: the share of all steps that it represents; `down` [entries of `unequal.links`]: slow links."""

    weight: float
    number: int
    down: Bools
    pauses: Pauses = ()


def draws_of(job: Job, unequal: Unequal) -> list[Draw]:
    """The steps to run; weights add up to 1.

    Each link entry and each pause (of a rank, or of all ranks at once) is an event with a probability per step. Steps without
    events are one entry with exact weight; `unequal.draws` others are drawn among the steps with at least one event.
    """
    chance = np.array([link.steps for link in unequal.links])
    pausing: list[tuple[int, Int64s]] = []  # for each event after the links: entry of pauses, and its ranks
    places = places_of(job)
    rates = [chance]
    for at, pause in enumerate(unequal.pauses):
        hit = np.flatnonzero(ranks_named(job, places, pause, "pauses", at))
        together = [hit] if pause.synchronised else list(hit[:, None])
        pausing += [(at, ranks) for ranks in together]
        rates.append(np.full(len(together), 1.0 / pause.every))
    rate = np.concatenate(rates)
    always = bool(unequal.jitter or unequal.documents or unequal.experts)
    none = float(np.prod(1.0 - rate)) if len(rate) else 1.0
    draws: list[Draw] = []

    def draw(weight: float, happens: Bools, rng: np.random.Generator) -> None:
        pauses: list[tuple[int, float, float]] = []
        for event in np.flatnonzero(happens[len(chance) :]).tolist():
            entry, ranks = pausing[event]
            place = 0.0 if unequal.pauses[entry].synchronised else float(rng.random())
            pauses += [(int(rank), place, unequal.pauses[entry].seconds) for rank in ranks]
        draws.append(Draw(weight, len(draws), happens[: len(chance)], tuple(pauses)))

    rng = stream(job.seed, Chance.EVENTS)
    if none > 0.0:
        times = unequal.draws if always else 1
        for _ in range(times):
            draw(none / times, np.zeros(len(rate), np.bool_), rng)
    if none < 1.0:
        certain = (len(rate) == 1 or bool((rate == 1.0).all())) and all(p.synchronised for p in unequal.pauses)
        times = 1 if certain and not always else unequal.draws
        for _ in range(times):
            draw((1.0 - none) / times, _at_least_one(rate, rng), rng)
    return draws


def _at_least_one(rate: Floats, rng: np.random.Generator) -> Bools:
    """Draws independent events, given that at least one happens: first the first event, then those after it independently."""
    before = np.concatenate([[1.0], np.cumprod(1.0 - rate)[:-1]])  # none of those before it
    first_is = rate * before
    first = int(rng.choice(len(rate), p=first_is / first_is.sum()))
    happens = rng.random(len(rate)) < rate
    happens[:first] = False
    happens[first] = True
    return np.asarray(happens, np.bool_)
