"""Random number streams of a job's seed: one per random decision, so that they are independent of each other."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Chance(IntEnum):
    """Random decisions. The numbers are part of the seeds: a new entry takes a new number."""

    SPEEDS = 1  # of single GPUs
    EVENTS = 2  # pauses of hosts, slow links
    JITTER = 3  # of one stage's kernels, and the load of experts
    DOCUMENTS = 4  # in the sequences of micro batches, which all stages see


def stream(seed: int, chance: Chance, *numbers: int) -> np.random.Generator:
    """The stream of one decision; `numbers`: indices within it, such as draw and stage."""
    return np.random.default_rng([seed, chance, *numbers])


def stream_of_entry(seed: int, field: str, at: int) -> np.random.Generator:
    """The stream of entry number `at` of a list of `unequal`."""
    return np.random.default_rng([seed, *f"unequal.{field}.{at}".encode()])
