"""Steps that chance makes differ: which hosts pause and which links are slow in each, and what share of all steps it stands for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.predict.ranks.places import named, places_of
from windtunnel.predict.ranks.streams import Chance, stream
from windtunnel.spec import Job
from windtunnel.spec.unequal import Unequal

Pauses = tuple[tuple[int, float, float], ...]
"""(rank, place in the order of its passes from 0 to 1, seconds)."""


@dataclass(frozen=True)
class Draw:
    """A step, and `weight`, the share of all steps that it stands for. `down` [entries of `unequal.links`]."""

    weight: float
    number: int
    down: Bools
    pauses: Pauses = ()


def draws_of(job: Job, unequal: Unequal) -> list[Draw]:
    """The steps to run; weights add up to 1.

    Each link entry and each pause (of a rank, or of all ranks at once) is an event with a probability a step. Steps without any
    are one part with its exact weight; `unequal.draws` others are drawn among those that have at least one.
    """
    chance = np.array([link.steps for link in unequal.links])
    where: list[tuple[int, Int64s]] = []  # of the events that follow: entry of pauses, and its ranks
    places = places_of(job)
    rates = [chance]
    for at, pause in enumerate(unequal.pauses):
        hit = np.flatnonzero(named(job, places, pause, f"unequal.pauses.{at}"))
        together = [hit] if pause.synchronised else list(hit[:, None])
        where += [(at, ranks) for ranks in together]
        rates.append(np.full(len(together), 1.0 / pause.every))
    rate = np.concatenate(rates)
    always = bool(unequal.jitter or unequal.documents or unequal.experts)
    none = float(np.prod(1.0 - rate)) if len(rate) else 1.0
    made: list[Draw] = []

    def draw(weight: float, happens: Bools, rng: np.random.Generator) -> None:
        pauses: list[tuple[int, float, float]] = []
        for event in np.flatnonzero(happens[len(chance) :]).tolist():
            entry, ranks = where[event]
            place = 0.0 if unequal.pauses[entry].synchronised else float(rng.random())
            pauses += [(int(rank), place, unequal.pauses[entry].seconds) for rank in ranks]
        made.append(Draw(weight, len(made), happens[: len(chance)], tuple(pauses)))

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
    return made


def _at_least_one(rate: Floats, rng: np.random.Generator) -> Bools:
    """Independent events of these probabilities, given that one happens: the first that does, then the rest freely."""
    before = np.concatenate([[1.0], np.cumprod(1.0 - rate)[:-1]])  # none of those before it
    first_is = rate * before
    first = int(rng.choice(len(rate), p=first_is / first_is.sum()))
    happens = rng.random(len(rate)) < rate
    happens[:first] = False
    happens[first] = True
    return np.asarray(happens, np.bool_)
