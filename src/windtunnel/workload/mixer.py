"""A mixer as rows of a layer, as counts of papers, and as what an inference engine keeps and computes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, cast

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.spec.mixer import MIXERS, Mixer
from windtunnel.spec.model import Model
from windtunnel.workload.identity import Module
from windtunnel.workload.tape import Tape


@dataclass(frozen=True)
class Mixing:
    """What mixes tokens in layers of one kind, on one GPU. Attention: `queries` heads of `dim` over keys, `value` wide; `cache`:
    elements of an entry in the cache, which stands for `stride` tokens; `window`: tokens that are seen at most, and kept at most
    where all entries are single tokens; `picked`: entries of all that are seen at most, which an indexer picks. Where entries stand
    for several tokens the window's are seen beside them. `index`: bytes of the indexer's key of a token, `index_flops`: its FLOP
    for a token and a query. A recurrence: `state` bytes of a request, `scan`: its row for some tokens. Latent attention multiplies
    queries with the cached vectors themselves (`absorbed` > 0: FLOP for each cached entry and query). `reused`: the
    cache is an earlier layer's, which is read and not kept again."""

    queries: int = 0
    groups: int = 1
    dim: int = 0
    value: int = 0
    cache: float = 0.0
    window: int | None = None
    state: float = 0.0
    absorbed: float = 0.0
    scan: bool = False
    picked: int | None = None
    stride: int = 1
    index: float = 0.0
    index_flops: float = 0.0
    reused: bool = False

    @property
    def keeps_all(self) -> bool:
        """Whether the cache has entries for all tokens of a request, and not the window's alone."""
        return self.window is None or self.stride > 1

    @property
    def most(self) -> int | None:
        """Entries that a query sees at most; None for all."""
        if self.stride > 1:
            return None if self.picked is None else self.picked + (self.window or 0)
        return self.window if self.picked is None else self.picked

    def seen_pairs(self, pairs: float, prompt: int) -> float:
        """`pairs` of `prompt` tokens, of which those count that are seen."""
        return float(self.read_tokens(np.float64(pairs), np.float64(prompt)))

    def read_tokens(self, cached: Floats | float, decodes: Floats | float) -> Floats:
        """Entries that `decodes` requests read, of `cached` tokens."""
        if self.stride == 1:
            return np.asarray(cached if self.most is None else np.minimum(cached, decodes * np.float64(self.most)), np.float64)
        far = np.asarray(cached, np.float64) / self.stride
        far = far if self.picked is None else np.minimum(far, decodes * np.float64(self.picked))
        return np.asarray(far + np.minimum(cached, decodes * np.float64(self.window or 0)), np.float64)


class LayerMixer(Mixer, ABC):
    """A mixer with its rows. Models are those that its layers see (`Model.seen_by`)."""

    module: ClassVar[Module] = Module.NONE
    """The part of the model that its rows belong to."""
    shares_gather: ClassVar[bool] = False
    """Whether the MLP of a parallel block may have its gathered input, and add to its output before one collective."""

    @abstractmethod
    def write(self, tape: Tape) -> None:
        """Appends its units to the tape, forward: (tokens, hidden) -> (tokens, hidden) on one GPU."""

    def reads_norm_once(self, model: Model) -> bool:
        """Whether one product alone reads the output of the norm before it."""
        return False

    @abstractmethod
    def matrices(self, model: Model) -> int:
        """Elements of its matrices, of the whole layer."""

    def small_parameters(self, model: Model) -> int:
        """Elements of its biases, inner norms and the like, without the output's bias."""
        return 0

    def score_flops(self, model: Model, layers: int, seq: int, local: bool, causal: bool) -> float:
        """FLOPs of `layers` such layers for a token, forward and backward, beside those of its matrices. `local`: they have the
        window; `causal`: only keys that a token sees are counted."""
        return 0.0

    def adapter_sides(self, model: Model, separate: bool) -> dict[str, list[tuple[int, int]]]:
        """(inputs, outputs) of the products of each target in `adapted`; `separate`: of each of their modules."""
        return {}

    @abstractmethod
    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        """What an inference engine keeps and computes of it on one of `tp` ranks. `model` is the whole one."""


def mixer_of(name: str) -> LayerMixer:
    """The mixer of a `LayerKind`."""
    return cast(LayerMixer, MIXERS[name])
