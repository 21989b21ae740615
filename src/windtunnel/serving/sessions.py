"""Sessions: turns of a conversation or of an agent, each sent when the one before has been answered and the user or a tool has
taken its time. A turn's prompt begins with all that the session had before, and sessions may begin with one system prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.lengths import draw_lengths
from windtunnel.serving.load import SEED, ServeLoad
from windtunnel.serving.traces import read_rows

BLOCK = 128
"""Tokens of a named block: a multiple of each engine's blocks."""

_SESSION = ("session_id", "session", "conversation_id", "chat_id")
_PROMPT = ("isl", "input_length", "prompt_tokens", "input_tokens")
_NEW = ("new_isl", "new_tokens")
_OUTPUT = ("osl", "output_length", "output_tokens", "completion_tokens")
_WAIT = {"wait": 1.0, "wait_s": 1.0, "think": 1.0, "delay": 1e-3, "delay_ms": 1e-3}
_TIME = {"arrival": 1.0, "time": 1.0, "start": 1.0, "timestamp": 1e-3}
"""Columns of a file of sessions: seconds of a unit for waits and moments (AIPerf's and Mooncake's are milliseconds)."""


@dataclass(frozen=True)
class SharedPrefix:
    """A system prompt of `tokens` in front of a `share` of sessions, or of requests that are none."""

    tokens: int
    share: float = 1.0


@dataclass(frozen=True)
class Turn:
    """A turn: tokens of its whole prompt or, behind what the session had before, `new` ones; of its output; seconds of the user or
    the tool before it is sent; names of the blocks of its prompt, where a trace has them."""

    prompt: int
    new: bool
    output: int
    wait: float
    names: tuple[int, ...] = ()


def shared_of(text: str) -> SharedPrefix:
    """`2000`, or `2000:0.5` for half of the sessions. SpecError for other words."""
    head, _, tail = text.partition(":")
    try:
        found = SharedPrefix(int(head), float(tail) if tail else 1.0)
    except ValueError:
        found = SharedPrefix(0)
    if found.tokens < 1 or not 0.0 < found.share <= 1.0:
        raise SpecError("shared-prefix", text, "tokens, and a share of the sessions behind a colon, such as 2000 or 2000:0.5")
    return found


def drawn_sessions(
    isl: str | int, osl: str | int, turns: str | int, think: str | float, *, sessions: int, users: int | None = None,
    rate: float | None = None, burstiness: float = 1.0, arrival: Floats | None = None, shared: SharedPrefix | None = None,
    seed: int = SEED,
) -> ServeLoad:  # fmt: skip
    """`sessions` of `turns` each, whose turns have `isl` new tokens and `osl` output tokens, and `think` seconds between an answer
    and the next turn; all four as lengths are stated. They come from `users`, of whom each begins another one when the last has
    ended, or so that `rate` turns come a second (with `burstiness` of sessions), or at `arrival`. SpecError for what cannot be."""
    if not 0 < sessions <= 1_000_000:
        raise SpecError("sessions", sessions, "1 to 1,000,000")
    draws = np.random.default_rng(seed)
    counts = draw_lengths("turns", turns, sessions, draws)
    whole = int(counts.sum())
    if whole > 10_000_000:
        raise SpecError("requests", whole, "at most 10,000,000 turns in all")
    new, output = draw_lengths("isl", isl, whole, draws), draw_lengths("osl", osl, whole, draws)
    waits = _draw_waits(think, whole, draws)
    if arrival is None and rate is not None:
        gap = float(counts.mean()) / rate
        even = burstiness == 1.0
        gaps = draws.exponential(gap, sessions) if even else draws.gamma(burstiness, gap / burstiness, sessions)
        arrival = np.cumsum(gaps) - gaps[0]
    made, place = [], 0
    for count in counts.tolist():
        made.append([Turn(int(new[n]), True, int(output[n]), float(waits[n])) for n in range(place, place + count)])
        place += count
    return _load_of(made, arrival, users, shared, draws, ())


def _draw_waits(think: str | float, count: int, draws: np.random.Generator) -> Floats:
    """Seconds: a number, or drawn in whole seconds by the words of lengths."""
    try:
        return np.full(count, float(think))
    except ValueError:
        return draw_lengths("think", str(think), count, draws).astype(np.float64)


def with_shared_prefix(load: ServeLoad, shared: SharedPrefix, seed: int = SEED) -> ServeLoad:
    """`load` with a system prompt in front of a share of its requests. SpecError where a trace names blocks already."""
    if load.blocks:
        raise SpecError("shared-prefix", shared.tokens, "a load whose trace names no blocks")
    has = np.random.default_rng([seed, 3]).random(len(load)) < shared.share
    names = tuple(range(1, shared.tokens // BLOCK + 1))
    blocks = tuple(names if mine else () for mine in has.tolist())
    return replace(load, prompt=load.prompt + shared.tokens * has, blocks=blocks, block=BLOCK)


def _load_of(
    sessions: Sequence[Sequence[Turn]], arrival: Floats | None, users: int | None, shared: SharedPrefix | None,
    draws: np.random.Generator, notes: tuple[str, ...],
) -> ServeLoad:  # fmt: skip
    """The turns of all sessions as requests. With `users` session s follows on session s - users."""
    prompt: list[int] = []
    output: list[int] = []
    after: list[int] = []
    pauses: list[float] = []
    moments: list[float] = []
    blocks: list[tuple[int, ...]] = []
    ends: list[int] = []
    pause = max((float(np.mean([turn.wait for turn in turns])) for turns in sessions[:1000]), default=0.0)
    starts = draws.random(len(sessions)) * pause if arrival is None else arrival  # users come within a pause of theirs
    for number, turns in enumerate(sessions):
        has = shared is not None and (shared.share >= 1.0 or draws.random() < shared.share)
        begun = shared.tokens if has and shared is not None else 0
        names = list(range(1, begun // BLOCK + 1))
        known, before = begun, ends[number - users] if users and number >= users else -1
        for turn in turns:
            length = known + turn.prompt if turn.new else max(turn.prompt, 1)
            whole = length + turn.output
            while len(names) < whole // BLOCK:
                names.append((number + 1) << 20 | len(names))
            blocks.append(turn.names or tuple(names[: whole // BLOCK]))
            prompt.append(length)
            output.append(turn.output)
            after.append(before)
            pauses.append(turn.wait)
            moments.append(float(starts[number]))
            before, known = len(prompt) - 1, whole
        ends.append(len(prompt) - 1)
    size = 512 if sessions[0][0].names else BLOCK
    return ServeLoad(
        np.array(prompt, np.int64), np.array(output, np.int64), np.array(moments), 0, tuple(blocks), size, notes, size == BLOCK,
        np.array(after, np.int64), 0.0, np.array(pauses),
    )  # fmt: skip


def read_sessions(
    path: str | Path, *, users: int | None = None, speed: float = 1.0, shared: SharedPrefix | None = None, seed: int = SEED
) -> ServeLoad:
    """The turns of a file of sessions: CSV, or JSON lines, also with .gz.

    Columns: a session's id, tokens of the whole prompt of a turn (`isl`, `input_length`) or of what is new (`new_isl`), output
    tokens, and what the user or a tool takes before it (`wait` in seconds, `delay` in milliseconds). Turns are in the order of the
    file, or of a column `turn`. A session comes at the time of its first row, or from `users` one after the other. Mooncake's
    `hash_ids` name blocks of 512 tokens of prompts; else a turn begins with all that its session had before. FileError for a file
    that has none of these.
    """
    if not (math.isfinite(speed) and speed > 0.0):
        raise SpecError("speed", speed, "a positive number")
    name = str(path)
    rows = list(read_rows(name))
    if not rows:
        raise FileError("sessions", name, "a file with rows")
    key, output = _first_column(rows[0], _SESSION), _first_column(rows[0], _OUTPUT)
    new, whole = _first_column(rows[0], _NEW), _first_column(rows[0], _PROMPT)
    if key is None or output is None or (new is None and whole is None):
        wanted = f"columns of a session ({', '.join(_SESSION)}), prompt ({', '.join((*_PROMPT, *_NEW))}) and output tokens"
        raise FileError("sessions", name, wanted, f"It has {', '.join(map(str, rows[0]))}.")
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    left = 0
    for row in rows:
        lengths = _tokens(row, new or whole or "", output)
        if lengths is None:
            left += 1
        else:
            grouped.setdefault(str(row.get(key)), []).append(row)
    if not grouped:
        raise FileError("sessions", name, "rows with numbers of prompt and output tokens")
    named = all(isinstance(row.get("hash_ids"), list) for found in grouped.values() for row in found)
    sessions, starts = [], []
    for found in grouped.values():
        found = sorted(found, key=lambda row: _number(row.get("turn", 0))) if "turn" in rows[0] else found
        starts.append(_seconds(found[0], _TIME))
        turns = []
        for place, row in enumerate(found):
            tokens = _tokens(row, new or whole or "", output)
            assert tokens is not None
            wait = max(0.0, _seconds(row, _WAIT)) / speed if place else 0.0
            blocks = tuple(int(number) for number in row["hash_ids"]) if named else ()
            turns.append(Turn(tokens[0], new is not None, tokens[1], 0.0 if math.isnan(wait) else wait, blocks))
        sessions.append(turns)
    notes = [f"{left} of {len(rows)} rows have no lengths and were left out"] if left else []
    arrival = None
    if users is None:
        if not all(math.isfinite(start) for start in starts):
            raise FileError("sessions", name, "a moment in the first row of each session", "Or state users, who send them in turn.")
        arrival = (np.array(starts) - min(starts)) / speed
    return _load_of(sessions, arrival, users, shared, np.random.default_rng(seed), tuple(notes))


def _first_column(row: Mapping[str, Any], known: Sequence[str]) -> str | None:
    return next((name for name in known if name in row), None)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _tokens(row: Mapping[str, Any], prompt: str, output: str) -> tuple[int, int] | None:
    """Prompt and output tokens of a row; None without numbers."""
    found = _number(row.get(prompt)), _number(row.get(output))
    if not all(math.isfinite(value) and 1.0 <= value < 2**31 for value in found):
        return None
    return int(found[0]), int(found[1])


def _seconds(row: Mapping[str, Any], known: Mapping[str, float]) -> float:
    """Seconds of the first column of `known` that a row has; not a number without one."""
    name = _first_column(row, tuple(known))
    return math.nan if name is None else _number(row.get(name)) * known[name]
