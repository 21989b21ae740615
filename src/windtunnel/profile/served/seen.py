"""What streams of tokens say of passes: seconds of a pass, and what it computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from windtunnel.profile.served.client import StreamedAnswer

WINDOW = 8
"""Passes over which a decoding request's time is divided: chunks may hold several tokens, or come two at a time."""

TOGETHER = 0.5
"""Share of a pass within which the first tokens of all prompts of it come."""


@dataclass(frozen=True)
class SeenPass:
    """`seconds`: each time that a pass was seen, host time after it included; `cached`: tokens that its requests read in all;
    `front`: seconds of first tokens that lie outside of the pass."""

    seconds: tuple[float, ...]
    cached: float = 0.0
    front: tuple[float, ...] = ()


def decoding_passes(answers: Sequence[StreamedAnswer]) -> SeenPass:
    """Passes in which all of `answers` decode: after the last one's first token, before the first one's last. No seconds where that
    lasts less than a window."""
    begin, end = max(one.first_moment for one in answers), min(one.last_moment for one in answers)
    seconds, cached = [], 0.0
    for one in answers:
        steady = [(moment, count) for moment, count in one.came if begin <= moment <= end]
        place = 0
        for later, (moment, count) in enumerate(steady):
            before, had = steady[place]
            if count - had >= WINDOW:
                seconds.append((moment - before) / (count - had))
                place = later
        if len(steady) > 1:  # the pass of a request's token number c reads its prompt and c - 1 tokens
            cached += len(one.asked.prompt) + (steady[0][1] + 1 + steady[-1][1]) / 2.0 - 1.0
    return SeenPass(tuple(one for one in seconds if one > 0.0), cached)


def prompts_beside(answers: Sequence[StreamedAnswer], prompts: Sequence[StreamedAnswer]) -> SeenPass:
    """The passes in which prompts were computed beside decoding requests: the one at whose end both had a token."""
    seconds, cached, front = [], [], []
    for prompt in prompts:
        spans, read = [], 0.0
        for one in answers:
            ends = [place for place in range(1, len(one.came)) if one.came[place][1] - one.came[place - 1][1] == 1]
            if not ends:
                continue
            place = min(ends, key=lambda place: abs(one.came[place][0] - prompt.first_moment))
            spans.append(one.came[place][0] - one.came[place - 1][0])
            read += len(one.asked.prompt) + one.came[place][1] - 1.0
        around = all(one.first_moment < prompt.sent and prompt.first_moment < one.last_moment for one in answers)
        if around and len(spans) == len(answers):
            took = median(spans)
            seconds.append(took)
            cached.append(read)
            front.append(max(0.0, prompt.first_moment - prompt.sent - took))
    return SeenPass(tuple(seconds), median(cached) if cached else 0.0, tuple(front))


def prompts_behind(blocker: StreamedAnswer, prompts: Sequence[StreamedAnswer], shortest: float) -> float | None:
    """Seconds of the pass of `prompts` that were waiting when the pass of `blocker` ended: from its token to theirs. None where one
    of them came too late for that, or they were computed in several passes. `shortest`: seconds of a short prompt's first token."""
    first, last = min(one.first_moment for one in prompts), max(one.first_moment for one in prompts)
    took = median([one.first_moment for one in prompts]) - blocker.first_moment
    late = blocker.first_moment - max(one.sent for one in prompts) < shortest
    return None if late or first <= blocker.first_moment or last - first > TOGETHER * took else took
