"""Products of several experts, each with its own rows."""

from typing import Any

import torch

from transformer_engine.pytorch.fp8 import FP8GlobalStateManager, quantise
from transformer_engine.pytorch.linear import product, weight_gradient
from transformer_engine.pytorch.module.base import TransformerEngineBaseModule
from transformer_engine.pytorch.norms import make_parameter
from windtunnel.capture.fused import refuse


class _Grouped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, splits: list[int], module: Any, *weights: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        ctx.low = FP8GlobalStateManager.is_fp8_enabled()
        out = rows.new_empty((rows.shape[0], weights[0].shape[0]))
        kept: list[Any] = []
        ctx.narrow = [module.narrow_weight(f"weight{place}", weight) if ctx.low else None for place, weight in enumerate(weights)]
        for part, into, weight, low in zip(rows.split(splits), out.split(splits), weights, ctx.narrow, strict=True):
            if ctx.low and len(part):
                narrow, turned = quantise(part)
                into.copy_(product(narrow, low[0].t(), x.dtype))
                kept.append(turned)
            else:
                torch.mm(part, weight.t(), out=into)
                kept.append(part)
        ctx.save_for_backward(*kept, *weights)
        ctx.module, ctx.splits, ctx.shape = module, splits, x.shape
        return out.view(*x.shape[:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        count = len(ctx.splits)
        kept, weights = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        grad = grad.reshape(-1, grad.shape[-1])
        inputs = grad.new_empty((grad.shape[0], weights[0].shape[1]))
        of_weights = []
        parts = zip(grad.split(ctx.splits), inputs.split(ctx.splits), kept, weights, ctx.narrow, strict=True)
        for part, into, rows, weight, low in parts:
            by_columns, total = part.t(), rows
            if ctx.low and len(part):
                by_rows, by_columns = quantise(part)
                total = rows.t()
                into.copy_(product(by_rows, low[1].t(), grad.dtype))
            else:
                torch.mm(part, weight, out=into)
            of_weights.append(weight_gradient(by_columns, total, weight, ctx.module.fuse_wgrad_accumulation, grouped=True))
        return inputs.view(ctx.shape), None, None, *of_weights


class GroupedLinear(TransformerEngineBaseModule):
    def __init__(
        self, num_gemms: int, in_features: int, out_features: int, sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False, tp_group: Any = None, tp_size: int = 1, get_rng_state_tracker: Any = None,
        rng_tracker_name: Any = None, init_method: Any = None, bias: bool = True, return_bias: bool = False,
        params_dtype: Any = None, parallel_mode: str | None = None, device: Any = "cuda", **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if bias or (parallel_mode is not None and tp_size > 1):
            raise refuse("a grouped linear layer with a bias or tensor parallelism of its own")
        self.num_gemms, self.in_features, self.out_features = num_gemms, in_features, out_features
        self.fuse_wgrad_accumulation, self.use_bias, self.return_bias = fuse_wgrad_accumulation, bias, return_bias
        self.fp8_meta: dict[str, Any] = {}
        self.save_original_input = False
        for number in range(num_gemms):
            setattr(self, f"weight{number}", make_parameter((out_features, in_features), params_dtype, device))

    def forward(self, inp: Any, m_splits: list[int], is_first_microbatch: Any = None) -> Any:
        self.first_microbatch = is_first_microbatch
        out = _Grouped.apply(inp, list(m_splits), self, *(getattr(self, f"weight{i}") for i in range(self.num_gemms)))
        return (out, []) if self.return_bias else out


class Fp8Padding(torch.nn.Module):
    """Rows of each expert padded to a multiple of 16."""

    def __init__(self, num_gemms: int, align_size: int | None = None) -> None:
        super().__init__()
        self.align = align_size or 16

    def forward(self, inp: Any, m_splits: list[int]) -> Any:
        wide = [-(-size // self.align) * self.align for size in m_splits]
        if wide == list(m_splits):
            return inp, wide
        parts = zip(inp.split(list(m_splits)), wide, strict=True)
        return torch.cat([torch.nn.functional.pad(part, (0, 0, 0, size - len(part))) for part, size in parts]), wide


class Fp8Unpadding(Fp8Padding):
    """And back."""

    def forward(self, inp: Any, m_splits: list[int]) -> Any:
        wide = [-(-size // self.align) * self.align for size in m_splits]
        if wide == list(m_splits):
            return inp
        return torch.cat([part[:size] for part, size in zip(inp.split(wide), m_splits, strict=True)])
