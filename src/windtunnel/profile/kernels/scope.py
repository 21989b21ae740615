"""The scope of a sweep: models, tp sizes, token counts and formats, each from the most valuable to the least.

A case's rank is the sum of the costs of its parts: common models, tp 1 and 8, 4096 and 8192 tokens and bf16 come first. Classes
alternate by rank, so a sweep that is stopped has the same kinds of shapes in every class.
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError
from windtunnel.spec import Model, load_model
from windtunnel.spec.mixer import MIXERS

MODELS = (
    "llama3-8b",
    "llama3-70b",
    "gpt3-175b",
    "llama3.1-405b",
    "qwen2.5-7b",
    "llama2-7b",
    "qwen2.5-32b",
    "llama2-13b",
    "gpt-neox-20b",
    "nemotron4-15b",
    "llama3.2-1b",
    "gpt-1.7b",
    "nemotron4-340b",
    "megatron-22b",
    "qwen2.5-1.5b",
    "gpt-18.4b",
)
"""Catalogue models whose shapes are measured unless others are named: the most trained first, then other widths."""

TP = (1, 8, 4, 2)
TOKENS = (4096, 8192, 2048, 16384, 1024, 512, 32768)
SEQUENCES = (4096, 8192, 2048, 16384, 32768, 1024, 65536, 131072)
PAD = 128
"""The vocabulary is padded to this times tp, as Megatron does."""


@dataclass(frozen=True)
class Scope:
    """What to measure; every tuple is in the order of value, so its index is a cost."""

    models: tuple[Model, ...]
    tp: tuple[int, ...] = TP
    tokens: tuple[int, ...] = TOKENS
    sequences: tuple[int, ...] = SEQUENCES
    dtypes: tuple[str, ...] = ("bf16", "fp8", "fp16")
    cuda: bool = True
    variants: bool = True

    def rank(self, model: int = 0, tp: int = 1, tokens: int = 4096, dtype: str = "bf16", more: float = 0.0) -> float:
        """Cost of a case from its parts; `more` is its class's own."""

        def at(values: tuple[int, ...], value: int) -> float:
            return float(values.index(value)) if value in values else float(len(values))

        return (
            1.0 * model
            + 0.8 * at(self.tp, tp)
            + 0.9 * at(self.tokens, tokens)
            + 1.2 * (self.dtypes.index(dtype) if dtype in self.dtypes else 0)
            + more
        )

    @property
    def wide_dtypes(self) -> tuple[str, ...]:
        """The formats of kernels that do not multiply: 8-bit formats are for products only."""
        return tuple(name for name in self.dtypes if name != "fp8") or ("bf16",)


@dataclass(frozen=True)
class Shard:
    """One GPU's share of a model's layer cut over `tp`; `index` is the model's place in the scope."""

    model: Model
    tp: int
    index: int

    @property
    def heads(self) -> int:
        return self.model.heads // self.tp

    @property
    def groups(self) -> int:
        """Key-value heads; ranks beyond one a head hold copies."""
        return max(1, self.model.groups // self.tp)

    @property
    def ffn(self) -> int:
        return self.model.ffn // self.tp

    @property
    def recurrences(self) -> set[str]:
        """The measured scans of the model's layers."""
        return recurrences_of(self.model)

    @property
    def vocab(self) -> int:
        step = PAD * self.tp
        return -(-self.model.vocab // step) * step // self.tp


def recurrences_of(model: Model) -> set[str]:
    """The measured scans of a model's layers."""
    return {MIXERS[kind.mixer].recurrence_in(model) for kind in model.kinds} - {""}


def shards(scope: Scope) -> list[Shard]:
    """Every model with every cut that divides its heads and its MLP."""
    return [
        Shard(model, tp, index)
        for index, model in enumerate(scope.models)
        for tp in scope.tp
        if model.heads % tp == 0 and model.ffn % tp == 0
    ]


def scope_of(
    models: tuple[str, ...] = (),
    tp: tuple[int, ...] = (),
    tokens: tuple[int, ...] = (),
    dtypes: tuple[str, ...] = (),
    cuda: bool = True,
) -> Scope:
    """A scope by names; empty means the whole of it. Raises UnknownName for a model, PlanError for a tp that cuts none of them."""
    chosen = tuple(load_model(name) for name in models or MODELS)
    ordered = tuple(sorted(tokens, key=lambda value: (TOKENS.index(value) if value in TOKENS else len(TOKENS), value)))
    formats = dtypes or (("bf16", "fp8", "fp16") if cuda else ("fp32", "bf16"))
    scope = Scope(chosen, tp or TP, ordered or TOKENS, ordered or SEQUENCES, formats, cuda, variants=not models)
    if not shards(scope):
        raise PlanError("--tp", ",".join(map(str, scope.tp)), "a divisor of the heads and of ffn of at least one model")
    return scope
