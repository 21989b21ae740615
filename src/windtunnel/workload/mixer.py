"""A mixer as rows of a layer, as counts of papers, and as what an inference engine keeps and computes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, cast

from windtunnel.spec.mixer import MIXERS, Mixer
from windtunnel.spec.model import Model
from windtunnel.workload.identity import Module
from windtunnel.workload.tape import Tape


@dataclass(frozen=True)
class Mixing:
    """What mixes tokens in layers of one kind, on one GPU. Attention: `queries` heads of `dim` over keys, `value` wide; `cache`:
    elements of a token in the cache; `window`: tokens that are seen at most. A recurrence: `state` bytes of a request, `scan`: its
    row for some tokens. Latent attention multiplies queries with the cached vectors themselves (`absorbed` > 0: FLOP for each
    cached token and query)."""

    queries: int = 0
    groups: int = 1
    dim: int = 0
    value: int = 0
    cache: float = 0.0
    window: int | None = None
    state: float = 0.0
    absorbed: float = 0.0
    scan: bool = False

    def seen_pairs(self, pairs: float, prompt: int) -> float:
        """`pairs` of `prompt` tokens, under the window."""
        return pairs if self.window is None else min(pairs, float(prompt) * self.window)

    def read_tokens(self, cached: float, decodes: int) -> float:
        """Cached tokens that `decodes` requests read, of `cached`."""
        return cached if self.window is None else min(cached, float(decodes) * self.window)


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
