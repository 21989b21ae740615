"""Implementations of the measured modules: windtunnel's own, or Hugging Face's, behind one interface."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

from torch import Tensor, nn

from windtunnel.base.errors import UnknownName
from windtunnel.profile.case import Case
from windtunnel.profile.modules.embedding import Embedding
from windtunnel.profile.modules.head import OutputHead
from windtunnel.profile.modules.layer import Angles, DecoderLayer

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
