"""Hugging Face's decoder layers at the same shapes, and how their weights are named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, MixtralConfig, Qwen2Config
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mixtral.modeling_mixtral import MixtralDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from windtunnel.profile.case import Case
from windtunnel.profile.modules.layer import EPSILON, Angles

NAMES = {
    "norm1": "inner.input_layernorm",
    "norm2": "inner.post_attention_layernorm",
    "attention.q": "inner.self_attn.q_proj",
    "attention.k": "inner.self_attn.k_proj",
    "attention.v": "inner.self_attn.v_proj",
    "attention.o": "inner.self_attn.o_proj",
    "mlp.gate": "inner.mlp.gate_proj",
    "mlp.up": "inner.mlp.up_proj",
    "mlp.down": "inner.mlp.down_proj",
    "mlp.router": "inner.block_sparse_moe.gate",
}
"""windtunnel's name of a module -> Hugging Face's."""


def twin_of(case: Case) -> HuggingFace | str:
    """The family whose layer computes the same as windtunnel's, or why there is none."""
    model = case.model
    if model.norm != "rmsnorm" or model.activation != "swiglu" or model.position != "rope" or model.parallel_block:
        return "Hugging Face's layers are compared for RMS norm, SwiGLU and rotary positions"
    if model.qk_norm or (model.window is not None and model.window < case.seq):
        return "Hugging Face's layers are compared without query-key norms and sliding windows"
    if case.experts:
        return "Mixtral's layers have no biases" if model.attention_bias or model.linear_bias else HuggingFace(MixtralDecoderLayer)
    if model.attention_bias == model.linear_bias:
        return HuggingFace(LlamaDecoderLayer)
    return HuggingFace(Qwen2DecoderLayer) if model.attention_bias else "no layer has biases in its MLP only"


class Wrapped(nn.Module):
    """A Hugging Face layer, called as windtunnel's: (x, angles) -> x."""

    def __init__(self, inner: nn.Module, masked: bool) -> None:
        super().__init__()
        self.inner, self.masked = inner, masked

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        out = self.inner(x, attention_mask=self.mask(x), position_embeddings=_batch_angles(angles))
        first: Tensor = out[0] if isinstance(out, tuple) else out
        return first

    def mask(self, x: Tensor) -> Tensor | None:
        """The unfused core adds a mask; the fused one is told that it is causal."""
        if not self.masked:
            return None
        seq = x.shape[1]
        blocked = torch.full((seq, seq), float("-inf"), dtype=x.dtype, device=x.device)
        return blocked.triu(1)[None, None]


class HeadLoss(nn.Module):
    """Logits and Hugging Face's loss of a causal model."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.logits = nn.Linear(case.model.hidden, case.vocab, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        scores = self.logits(x)
        loss: Tensor = ForCausalLMLoss(scores, labels, scores.shape[-1], shift_labels=labels)
        return loss


class HuggingFace:
    """Layers of `kind` over the case's local heads and widths."""

    library = "hf"

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def layer(self, case: Case) -> nn.Module:
        model = case.model
        common: dict[str, Any] = dict(
            hidden_size=model.hidden,
            num_attention_heads=case.heads,
            num_key_value_heads=case.kv_heads,
            intermediate_size=case.ffn,
            head_dim=model.dim_per_head,
            rms_norm_eps=EPSILON,
            num_hidden_layers=1,
            vocab_size=case.vocab,
            attn_implementation="sdpa" if case.attention == "flash" else "eager",
        )
        if self.kind is MixtralDecoderLayer:
            config = MixtralConfig(**common, num_local_experts=case.experts, num_experts_per_tok=case.top_k, sliding_window=None)
        elif self.kind is Qwen2DecoderLayer:
            config = Qwen2Config(**common)
        else:
            config = LlamaConfig(**common, attention_bias=model.attention_bias, mlp_bias=model.linear_bias)
        return Wrapped(self.kind(config, 0), case.attention != "flash")

    def embedding(self, case: Case) -> nn.Module:
        return nn.Embedding(case.vocab, case.model.hidden)

    def head(self, case: Case) -> nn.Module:
        return HeadLoss(case)

    def name(self, layer: nn.Module) -> str:
        return type(layer.inner).__name__

    def parts(self, layer: nn.Module) -> dict[str, list[nn.Module]]:
        inner = layer.inner
        mlp = {"moe": [inner.block_sparse_moe]} if hasattr(inner, "block_sparse_moe") else {"mlp": [inner.mlp]}
        return {"norm": [inner.input_layernorm, inner.post_attention_layernorm], "attention": [inner.self_attn], **mlp}

    def call(self, op: str, part: nn.Module, x: Tensor, angles: Angles) -> Tensor:
        if op == "attention":
            mask = Wrapped(part, part.config._attn_implementation == "eager").mask(x)
            out = part(hidden_states=x, position_embeddings=_batch_angles(angles), attention_mask=mask)
        else:
            out = part(x)
        first: Tensor = out[0] if isinstance(out, tuple) else out
        return first


def rename_weights(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """windtunnel's weights of a layer (or their gradients), by name, as Hugging Face names and lays them out."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in named.items():
        module, _, kind = name.rpartition(".")
        if name in ("mlp.up", "mlp.down"):  # of a mixture: (experts, in, out), gate and up side by side
            halves = tensor.chunk(2, dim=-1) if name == "mlp.up" else (tensor,)
            for number, weights in zip(("w1", "w3") if name == "mlp.up" else ("w2",), halves, strict=True):
                tensors |= {f"inner.block_sparse_moe.experts.{e}.{number}.weight": w.t() for e, w in enumerate(weights.unbind())}
        else:
            tensors[f"{NAMES[module]}.{kind}"] = tensor
    return tensors


def _batch_angles(angles: Angles) -> tuple[Tensor, Tensor] | None:
    return None if angles is None else (angles[0][None], angles[1][None])
