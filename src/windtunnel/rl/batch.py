"""The samples of a step: lengths of prompts and responses, drawn once for all phases."""

from __future__ import annotations

import csv
import heapq
from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, PlanError
from windtunnel.base.lengths import draw_lengths
from windtunnel.rl.spec import PostTraining


@dataclass(frozen=True)
class RLBatch:
    """Samples in the order of their prompts: `prompt` and `response` tokens (responses of all turns, without tools), `group`: their
    prompt. `trained`: samples that are learned from; the others are drawn and dropped."""

    prompt: Int64s
    response: Int64s
    group: Int64s
    trained: int
    tools: int

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def lengths(self) -> Int64s:
        """Tokens of each sample, with its prompt and what tools answered."""
        return self.prompt + self.response + self.tools


def draw_batch(rl: PostTraining, context: int) -> RLBatch:
    """The samples of a step. Responses are cut to the model's `context`. SpecError for lengths that are none, PlanError for prompts
    that leave no room in the context."""
    draws = np.random.default_rng(rl.seed)
    prompts = round(rl.prompts / rl.keep)
    prompt = np.repeat(_lengths("rl.prompt", rl.prompt, prompts, draws), rl.samples)
    response = np.maximum(_lengths("rl.response", rl.response, prompts * rl.samples, draws), rl.turns)
    tools = (rl.turns - 1) * rl.tool_tokens
    room = context - int(prompt.max()) - tools
    if room < rl.turns:
        said = f"prompts of {int(prompt.max()):,} tokens" + (f" and {tools:,} tokens of tools" if tools else "")
        raise PlanError("rl.prompt", said, f"less than the model's context of {context:,} tokens", "Or raise model.max_seq.")
    group = np.repeat(np.arange(prompts), rl.samples)
    return RLBatch(prompt, np.minimum(response, room), group, rl.prompts * rl.samples, tools)


def _lengths(path: str, text: str, count: int, draws: np.random.Generator) -> Int64s:
    """`count` lengths of a distribution, or drawn from the numbers in a file."""
    if "/" not in text and not text.endswith((".txt", ".csv")):
        return draw_lengths(path, text, count, draws)
    try:
        with open(Path(text), encoding="utf-8-sig", newline="") as file:
            words = [cell.strip() for row in csv.reader(file) for cell in row if cell.strip()]
        first = 0 if words and words[0].isdecimal() else 1  # a head
        known = np.array([int(word) for word in words[first:]], np.int64)
    except (OSError, ValueError) as error:
        raise FileError(path, text, "a file with one length in each line", f"{error}.") from None
    if not len(known) or int(known.min()) < 1 or int(known.max()) > 2**31:
        raise FileError(path, text, "a file with one length, of 1 token at least, in each line")
    return np.asarray(draws.choice(known, count), np.int64)


def balance(lengths: Int64s, ranks: int) -> Floats:
    """Tokens of each of `ranks` among which samples are dealt, the longest first to who has least (verl's `balance_batch`)."""
    load = [(0, rank) for rank in range(ranks)]
    if len(lengths) <= ranks:
        return np.concatenate([lengths, np.zeros(ranks - len(lengths))]).astype(np.float64)
    for length in np.sort(lengths)[::-1].tolist():
        least, rank = load[0]
        heapq.heapreplace(load, (least + length, rank))
    return np.array([tokens for tokens, _ in load], np.float64)
