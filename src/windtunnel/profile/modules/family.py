"""Implementations of the measured modules: windtunnel's own, or Hugging Face's, behind one interface.

The head without the final norm: logits over this rank's slice of the vocabulary, and the loss.

Token (and learned position) embedding, this rank's slice of the vocabulary.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol, cast

from torch import Tensor, arange, nn
from torch.nn import functional

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.profile.case import Case
from windtunnel.profile.modules.layer import MIXER_MODULES, Angles, DecoderLayer, HybridLayer, mixer_module, norm

LIBRARIES = ("windtunnel", "hf")
"""Values of the `library` column of whole modules."""


class ModuleFamily(Protocol):
    """Builders of one implementation. A layer is called with (x, angles), an embedding with tokens, a head with (x, labels)."""

    library: str

    def layer(self, case: Case) -> nn.Module: ...

    def embedding(self, case: Case) -> nn.Module: ...

    def head(self, case: Case) -> nn.Module: ...

    def name(self, layer: nn.Module) -> str:
        """The class of a layer."""
        ...

    def parts(self, layer: nn.Module) -> dict[str, list[nn.Module]]:
        """The layer's sub-modules by what they are (records.MODULES); equal ones share a list."""
        ...

    def call(self, op: str, part: nn.Module, x: Tensor, angles: Angles) -> Tensor:
        """A sub-module alone on its own input."""
        ...


class Own:
    """windtunnel's modules."""

    library = "windtunnel"

    def layer(self, case: Case) -> nn.Module:
        return DecoderLayer(case)

    def layers(self, case: Case) -> list[nn.Module]:
        """All layers of the model, each of its kind. SpecError for a kind that has no module here."""
        made: list[nn.Module] = []
        for kind in case.model.kinds:
            module = mixer_module(kind, case.model)
            if module is None:
                raise SpecError("model", f"layers with {kind.mixer}", f"layers with {', '.join(MIXER_MODULES)}")
            plain = module == "attention" and kind.feed != "none"
            made.append(DecoderLayer(case, kind.experts) if plain else HybridLayer(case, kind))
        return made

    def embedding(self, case: Case) -> nn.Module:
        return Embedding(case)

    def head(self, case: Case) -> nn.Module:
        return OutputHead(case)

    def name(self, layer: nn.Module) -> str:
        return type(layer).__name__

    def parts(self, layer: nn.Module) -> dict[str, list[nn.Module]]:
        norms = [layer.norm1, *([] if layer.norm2 is None else [layer.norm2])]
        return {"norm": norms, "attention": [layer.attention], "moe" if hasattr(layer.mlp, "router") else "mlp": [layer.mlp]}

    def call(self, op: str, part: nn.Module, x: Tensor, angles: Angles) -> Tensor:
        out: Tensor = part(x, angles) if op == "attention" else part(x)
        return out


def family_of(library: str, case: Case) -> ModuleFamily | str:
    """The implementation named `library`, or why this machine or this model has none."""
    if library == "windtunnel":
        return Own()
    if library != "hf":
        raise UnknownName("libraries", library, LIBRARIES)
    if find_spec("transformers") is None:
        return "transformers is not installed; type: pip install 'windtunnel[hf]'"
    try:
        from windtunnel.profile.modules.huggingface import twin_of
    except ImportError as error:
        return f"this version of transformers is not known: {error}; type: pip install 'windtunnel[hf]'"
    return twin_of(case)


class OutputHead(nn.Module):
    """(batch, seq, hidden) and labels (batch, seq) -> mean cross-entropy, in fp32 from the logits on."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.logits = nn.Linear(case.model.hidden, case.vocab, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        scores = self.logits(x).float()
        return cast(Tensor, functional.cross_entropy(scores.view(-1, scores.shape[-1]), labels.reshape(-1)))


class Embedding(nn.Module):
    """(batch, seq) whole numbers below the slice's size -> (batch, seq, hidden)."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        model = case.model
        self.words = nn.Embedding(case.vocab, model.hidden)
        self.positions = nn.Embedding(max(model.max_seq, case.seq), model.hidden) if model.position == "learned" else None
        self.norm = norm(case) if model.embedding_norm else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        if self.positions is not None:
            x = x + self.positions(arange(tokens.shape[1], device=tokens.device))
        return cast(Tensor, self.norm(x))
