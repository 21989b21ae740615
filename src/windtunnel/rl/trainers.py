"""What an RL trainer does between the phases of a step: `catalog/rl_trainers.toml`, an entry for each that was read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from windtunnel.base.errors import SpecError
from windtunnel.spec.loading.files import ROOT, read_table

SERIALISED, DESERIALISED = 0.406e9, 1.42e9
"""B/s at which a controller writes a batch for its workers (torch.save into memory) and at which one is read: 2.58 and 0.74 s for
6,400 x 20,480 integers of 8 bytes (volcengine/verl pull request 3425)."""

RETURNED = 8
"""Bytes of each position of a response that workers send back from log-probabilities: these and entropies, of 4 bytes."""

PAGEABLE_OUT, PAGEABLE_BACK = 2.8e9, 6e9
"""B/s of a GPU's copy to host memory that is not pinned, allocated with each copy, and back. Out: H200, PCIe 5 (sgl-project/sglang
pull request 32032; 1.4 on an A100, pytorch/pytorch pull request 138018). Back, where pages are there already: assumed."""


@dataclass(frozen=True)
class RLTrainerFacts:
    """An entry of the catalogue, whose head says what each field means; the defaults are those of a trainer without one."""

    bins: bool = False
    scored_bytes: float = 0.0
    updated_bytes: float = 0.0
    padded_to: Literal["cap", "longest", "none"] = "longest"
    packs: bool = True
    pageable: Literal["none", "optimizer", "all"] = "none"
    moves_in_phases: bool = False
    swaps_reference: bool = False
    tensor_s: float = 0.3e-3
    overlaps_refit: bool = False
    keeps_cache: bool = False
    source: str = ""


PLAIN = RLTrainerFacts()
"""A trainer of which nothing is known: no path of data, pinned copies, 0.3 ms a tensor (assumed)."""


@functools.cache
def catalogue_trainers() -> Mapping[str, RLTrainerFacts]:
    """The catalogue's entries by name."""
    return {name: RLTrainerFacts(**entry) for name, entry in read_table(ROOT / "rl_trainers.toml").items()}


def check_trainer(name: object) -> object:
    """The name of an entry. SpecError for another."""
    if isinstance(name, str) and name not in catalogue_trainers():
        raise SpecError("rl.trainer", name, ", ".join(sorted(catalogue_trainers())), "Leave it out for another trainer.")
    return name


def trainer_facts(name: str | None) -> RLTrainerFacts:
    """The entry of `name`; `PLAIN` for None."""
    return PLAIN if name is None else catalogue_trainers()[name]
