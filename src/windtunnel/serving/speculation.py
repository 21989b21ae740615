"""Speculative decoding: tokens that something cheap drafts, and how many of them a pass of the model keeps.

A pass of a decoding request computes its last token and `drafts` drafted ones. Each draft is right with the same chance if the one
before it was; the first wrong one ends the row, and the model's own token follows it. So a pass yields 1 to drafts + 1 tokens,

    accepted = 1 + rate + rate^2 + ... + rate^drafts

in the mean. Which pass yields how many is dealt, not thrown: every request goes through one long row of passes that holds each
number as often as its chance says, from a place of its own.

How many tokens a pass yields with drafts where nothing states it: the middle of what is published (`catalog/drafts.toml`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from statistics import median

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError, SpecError, WindtunnelError
from windtunnel.spec import Model
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


METHODS = ("mtp", "eagle", "draft", "ngram")
"""The model's own further layer; a dense layer that was trained on its hidden states; a small model; a look into the text."""

ROW = 1 << 14
"""Passes of the row from which all requests take theirs."""

AHEAD = 256
"""Passes that the row goes on beyond its end."""

MOST = 32
"""Drafted tokens at most."""

SHIFT = 6_700_417
"""Places by which requests lie apart in the row; prime."""

HEADS = r"eagle|speculator|medusa|dflash|dspark"
"""In names of checkpoints that are a head over a model's hidden states, and no model: one dense layer, as for "eagle"."""

FORM = "mtp,drafts=3,accepted=2.4, or eagle, ngram or draft=MODEL in place of mtp, or rate=0.7 or nothing in place of accepted"


@dataclass(frozen=True)
class Speculation:
    """`drafts` tokens of `method` are verified in each pass, of which `accepted` tokens come out in the mean, with the model's own.
    `model`: what drafts, for the method "draft". `published`: how many published figures `accepted` is the middle of, and of which
    family of models ("" for any); None where it was stated."""

    method: str
    drafts: int
    accepted: float
    model: Model | None = None
    seed: int = 1
    published: tuple[int, str] | None = None

    @cached_property
    def rate(self) -> float:
        """The chance of a draft to be right, if the one before it was."""
        return rate_of(self.accepted, self.drafts)

    @cached_property
    def tokens(self) -> Int64s:
        """[ROW + AHEAD] tokens of each pass of the row."""
        draws = np.random.default_rng(self.seed)
        chance = (draws.permutation(ROW) + 0.5) / ROW
        kept = sum((chance < self.rate**n).astype(np.int64) for n in range(1, self.drafts + 1)) + np.ones(ROW, np.int64)
        return np.asarray(np.resize(kept, ROW + AHEAD), np.int64)

    @cached_property
    def sums(self) -> Int64s:
        """[ROW + AHEAD + 1] tokens of all passes of the row before each one."""
        return np.asarray(np.concatenate([[0], np.cumsum(self.tokens)]), np.int64)

    @cached_property
    def areas(self) -> Int64s:
        """[ROW + AHEAD + 2] the sums of `sums` before each pass."""
        return np.asarray(np.concatenate([[0], np.cumsum(self.sums)]), np.int64)

    def begin(self, requests: int) -> Int64s:
        """The place in the row of each of `requests`."""
        return np.asarray((np.arange(requests, dtype=np.int64) * SHIFT) % ROW, np.int64)

    def grown(self, places: Int64s, passes: int) -> Int64s:
        """Tokens of the next `passes` passes at each place."""
        return np.asarray(self.sums[places + passes] - self.sums[places], np.int64)

    def passes_until(self, places: Int64s, tokens: Int64s) -> Int64s:
        """Passes at each place until `tokens` have come out; at most AHEAD."""
        found = np.searchsorted(self.sums, self.sums[places] + tokens) - places
        return np.asarray(np.minimum(found, AHEAD), np.int64)

    def mean_grown(self, places: Int64s, passes: int) -> float:
        """Tokens that have come out at all places before a pass, in the mean of the next `passes`."""
        area = self.areas[places + passes] - self.areas[places] - passes * self.sums[places]
        return float(area.sum()) / passes

    def words(self) -> str:
        """As `speculation_of` reads it."""
        method = f"draft={self.model.name}" if self.model is not None else self.method
        return f"{method},drafts={self.drafts},accepted={self.accepted:.4g}"


def speculation_of(text: str, model: Model, load: Callable[[str], Model], path: str = "--speculate") -> Speculation | None:
    """What a text such as "mtp,drafts=3,accepted=2.4" says of `model`; None for "none" and for no drafts. `load`: a model by name.
    Without accepted or rate, the middle of what is published for such drafts.

    A model whose drafter is a checkpoint of its own (Gemma 4's assistants) has it for mtp; draft= with the name of an EAGLE head is
    eagle.

    SpecError at `path` for words that are none and for numbers that cannot be, PlanError for a model without such layers or a
    drafting one with other tokens.
    """
    words = [word.strip().partition("=") for word in text.split(",")]
    fields = {name.strip(): value.strip() for name, _, value in words}
    if text.strip() == "none":
        return None
    method = next((name for name in METHODS if name in fields), None)
    known = {method, "drafts", "accepted", "rate"}
    if method is None or len(fields) != len(words) or not set(fields) <= known or bool(fields[method]) != (method == "draft"):
        raise SpecError(path, text, FORM)
    drafts, stated = _numbers(path, text, fields)
    if not drafts:
        return None
    accepted, published = (stated, None) if stated is not None else _find_published(method, model, drafts, fields)
    if method == "draft" and re.search(HEADS, fields["draft"].lower()):
        return Speculation("eagle", drafts, accepted, published=published)
    if method == "mtp" and not model.mtp_layers:
        with suppress(WindtunnelError):
            return Speculation("draft", drafts, accepted, load(f"{model.name}-assistant"), published=published)
        hint = "Write eagle for a head trained on its hidden states, or draft=MODEL for a small model, by name or config.json."
        raise PlanError(path, text, f"a model with layers that predict further tokens; {model.name} has none", hint)
    if method != "draft":
        return Speculation(method, drafts, accepted, published=published)
    try:
        small = load(fields["draft"])
    except WindtunnelError as error:
        raise SpecError(path, text, "draft= and a model that is known", str(error)) from None
    if abs(small.vocab - model.vocab) > 0.01 * model.vocab:  # the same tokenizer, padded otherwise
        allowed = f"a model with the {model.vocab:,} tokens of {model.name}; {small.name} has {small.vocab:,}"
        raise PlanError(path, text, allowed)
    return Speculation(method, drafts, accepted, small, published=published)


def _find_published(method: str, model: Model, drafts: int, fields: dict[str, str]) -> tuple[float, tuple[int, str]]:
    """Tokens of a pass as published, and of how many figures of which family they are the middle."""
    name = fields["draft"].lower() if method == "draft" else ""
    trained = "eagle" if re.search(HEADS, name) else "mtp" if name.endswith("-assistant") else method
    accepted, count, family = accepted_tokens(trained, model.name, drafts)
    return round(accepted, 3), (count, family)


def _numbers(path: str, text: str, fields: dict[str, str]) -> tuple[int, float | None]:
    """Drafts of a pass, and the tokens that come out; None where none are stated."""
    try:
        drafts = int(fields["drafts"])
        stated = [float(fields[name]) for name in ("accepted", "rate") if name in fields]
    except (KeyError, ValueError):
        raise SpecError(path, text, FORM) from None
    if len(stated) > 1 or not 0 <= drafts <= MOST or not all(math.isfinite(one) for one in stated):
        raise SpecError(path, text, f"{FORM}; 0 to {MOST} drafts, and accepted, rate or neither")
    if not stated:
        return drafts, None
    if "rate" in fields:
        if not 0.0 <= stated[0] <= 1.0:
            raise SpecError(path, text, "a rate between 0 and 1: the chance of a draft to be right if the one before it was")
        return drafts, mean_tokens(stated[0], drafts)
    if not 1.0 <= stated[0] <= drafts + 1.0:
        allowed = f"accepted between 1 and drafts + 1 = {drafts + 1}: it counts the model's own token of a pass"
        raise SpecError(path, text, allowed, f"For {stated[0]:g} accepted drafts write accepted={min(stated[0], drafts) + 1.0:g}.")
    return drafts, stated[0]
