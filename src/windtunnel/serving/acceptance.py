"""How many tokens a pass yields with drafts where nothing states it: the middle of what is published (`catalog/drafts.toml`)."""

from __future__ import annotations

import functools
from statistics import median

from windtunnel.base.dataclasses import dataclass
from windtunnel.spec.loading.files import ROOT, read_table


@dataclass(frozen=True)
class PublishedDrafts:
    """An entry of the catalogue, whose head says what each field means."""

    method: str
    models: tuple[str, ...]
    task: str
    points: tuple[tuple[int, float], ...]
    source: str


@functools.cache
def published_drafts() -> tuple[PublishedDrafts, ...]:
    """All entries of the catalogue."""
    return tuple(
        PublishedDrafts(
            one["method"],
            tuple(one["models"]),
            one["task"],
            tuple((int(n), float(found)) for n, found in one["points"]),
            one["source"],
        )
        for one in read_table(ROOT / "drafts.toml")["published"]
    )


def accepted_tokens(method: str, model: str, drafts: int) -> tuple[float, int, str]:
    """Tokens of a pass with `drafts` of `method` for the model of that name; of how many published figures they are the middle, and
    for which models: those of its family (the longest beginning of its name that any entry has), else "" for all of the method.
    Figures of so many drafts count alone, where there are any."""
    mine = [one for one in published_drafts() if one.method == method]
    family = max((head for one in mine for head in one.models if model.startswith(head)), key=len, default="")
    found = [one for one in mine if family in one.models] if family else mine
    found = [one for one in found if drafts in dict(one.points)] or found
    return median(min(_tokens(one, drafts), drafts + 1.0) for one in found), len(found), family


def mean_tokens(rate: float, drafts: int) -> float:
    """Tokens of a mean pass, where each draft is right with the chance `rate` if the one before it was."""
    return sum(rate**n for n in range(drafts + 1))


def rate_of(accepted: float, drafts: int) -> float:
    """The chance of a draft to be right if the one before it was, at which a mean pass yields `accepted` tokens."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if mean_tokens(middle, drafts) < accepted else (low, middle)
    return 1.0 if accepted >= drafts + 1 else low


def _tokens(one: PublishedDrafts, drafts: int) -> float:
    """What an entry says of `drafts`, or what follows from its nearest point: what drafts bring grows as in the middle of its
    method's curves, since later drafts of one layer are worse; with drafts of a model or a text each is as good as the first."""
    known, accepted = min(one.points, key=lambda point: abs(point[0] - drafts))
    if known == drafts:
        return accepted
    curve = _curve(one.method)
    if not curve:
        return mean_tokens(rate_of(accepted, known), drafts)
    there, here = curve[min(drafts, len(curve)) - 1], curve[min(known, len(curve)) - 1]
    return 1.0 + (accepted - 1.0) * (there - 1.0) / (here - 1.0)


@functools.cache
def _curve(method: str) -> tuple[float, ...]:
    """[drafts - 1] the middle of the curves of a method that begin at one draft; empty without any."""
    curves = [dict(one.points) for one in published_drafts() if one.method == method and len(one.points) > 1]
    length = min((len(curve) for curve in curves), default=0)
    return tuple(median(curve[n] for curve in curves) for n in range(1, length + 1))
