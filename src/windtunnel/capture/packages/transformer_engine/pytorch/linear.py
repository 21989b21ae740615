"""Linear layers with their norm, tensor and sequence parallelism, and gradients that are added where they belong."""

from typing import Any

import torch

from transformer_engine.pytorch.fp8 import FP8GlobalStateManager, quantise
from transformer_engine.pytorch.module.base import TransformerEngineBaseModule, get_dummy_wgrad
from transformer_engine.pytorch.norms import make_parameter
from windtunnel.capture.fused import accumulate, add_note, gather, norm_backward, norm_forward, reduce_scatter, refuse

_NOTE = (
    "Transformer Engine is not installed: its products, norms and fused attention (cuDNN's) are stood in for by their shapes, "
    "without overlap by user buffers"
)


_scales: list[Any] = []


def product(left: Any, right: Any, out_dtype: Any = None) -> Any:
    """A matrix product, of 8 bits where both operands are."""
    if left.dtype == torch.float8_e4m3fn:
        if not _scales:
            _scales.append(left.new_ones((), dtype=torch.float32))
        scale = _scales[0]
        return torch._scaled_mm(left, right, scale_a=scale, scale_b=scale, out_dtype=out_dtype)
    return torch.mm(left, right)


def weight_gradient(grad: Any, rows: Any, weight: Any, fused: bool, grouped: bool = False) -> Any:
    """The gradient of a weight from `grad` [out, tokens] and `rows` [tokens, in]; where `fused`, added to the main one, and
    autograd gets a tensor in its place: one for each shape, or of a `grouped` layer a new one (until 2.10)."""
    if fused and getattr(weight, "main_grad", None) is not None:
        accumulate(grad, rows, weight.main_grad)
        if hasattr(weight, "grad_added_to_main_grad"):
            weight.grad_added_to_main_grad = True
        return torch.empty_like(weight) if grouped else get_dummy_wgrad(list(weight.shape), weight.dtype)
    return product(grad, rows, weight.dtype)


def share_largest(tensor: Any, group: Any) -> None:
    """Ranks that gather what they cast have one scale, of the largest value of all (with_amax_reduction of the library's
    quantizers)."""
    torch.distributed.all_reduce(tensor.new_empty((1,), dtype=torch.float32), torch.distributed.ReduceOp.MAX, group)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, gamma: Any, beta: Any, module: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        normed, stats = (rows, None) if gamma is None else norm_forward(rows, gamma, beta)
        column, row = module.parallel_mode == "column" and module.tp_size > 1, module.parallel_mode == "row" and module.tp_size > 1
        ctx.gathers, ctx.sums, ctx.row = column and module.sequence_parallel, column, row
        ctx.low = FP8GlobalStateManager.is_fp8_enabled()
        recipe = FP8GlobalStateManager.get_fp8_recipe()
        ctx.current = ctx.low and recipe is not None and recipe.float8_current_scaling()
        if ctx.low:
            if ctx.gathers and ctx.current:
                share_largest(normed, module.tp_group)
            kept, turned = quantise(normed)
            narrow, ctx.narrow = module.narrow_weight("weight", weight)
            total = gather(kept, module.tp_group) if ctx.gathers else kept
            out = product(total, narrow.t(), x.dtype)
            saved = turned
        else:
            total = gather(normed, module.tp_group) if ctx.gathers else normed
            out = torch.mm(total, weight.t()) if bias is None or module.return_bias else torch.addmm(bias, total, weight.t())
            saved = normed
        if row and module.sequence_parallel:
            out, work = reduce_scatter(out, module.tp_group)
            work.wait()
        elif row:
            torch.distributed.all_reduce(out, group=module.tp_group)
        needed = (saved,) if weight.requires_grad else (None,)
        ctx.save_for_backward(*needed, weight, *((rows, stats, gamma) if gamma is not None else ()))
        ctx.module, ctx.shape, ctx.biased = module, x.shape, bias is not None and not module.return_bias
        ctx.beta = beta is not None
        return out.view(*x.shape[:-1], out.shape[-1]) if not (ctx.gathers or row) else out.view(-1, *x.shape[1:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        saved, weight, *norm = ctx.saved_tensors
        module, group = ctx.module, ctx.module.tp_group
        grad = grad.reshape(-1, grad.shape[-1])
        gathers = ctx.row and module.sequence_parallel
        if gathers and not ctx.low:
            grad = gather(grad, group)
        if ctx.low:
            if gathers and ctx.current:
                share_largest(grad, group)
            by_rows, by_columns = quantise(grad)
            if gathers:  # in 8 bits, by rows alone: distributed.py, _all_gather_fp8
                by_rows = gather(by_rows, group)
                by_columns = by_rows.t().contiguous()
            inputs = product(by_rows, ctx.narrow.t(), grad.dtype)
            total = gather(saved.t().contiguous(), group) if ctx.gathers else saved.t()
        else:
            by_columns = grad.t()
            total = gather(saved, group) if ctx.gathers and saved is not None else saved
            inputs = torch.mm(grad, weight)
        work = None
        if ctx.gathers:
            inputs, work = reduce_scatter(inputs, group)
        elif ctx.sums:
            work = torch.distributed.all_reduce(inputs, group=group, async_op=True)
        of_weight = weight_gradient(by_columns, total, weight, module.fuse_wgrad_accumulation) if weight.requires_grad else None
        of_bias = grad.sum(0) if ctx.biased else None
        if work is not None:
            work.wait()
        gamma = beta = None
        if norm:
            inputs, gamma = norm_backward(inputs, *norm)
            beta = torch.empty_like(gamma) if ctx.beta else None
        return inputs.view(ctx.shape), of_weight, of_bias, gamma, beta, None


class Linear(TransformerEngineBaseModule):
    """y = x wᵀ + b."""

    def __init__(
        self, in_features: int, out_features: int, sequence_parallel: bool = False, fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None, tp_size: int = 1, get_rng_state_tracker: Any = None, init_method: Any = None, bias: bool = True,
        return_bias: bool = False, params_dtype: Any = None, parallel_mode: str | None = None, device: Any = "cuda", **left: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        add_note(_NOTE)
        if left.get("delay_wgrad_compute"):
            raise refuse("delay_wgrad_compute")
        self.tp_group = tp_group
        self.tp_size = tp_group.size() if tp_group is not None else tp_size
        self.in_features = in_features // (self.tp_size if parallel_mode == "row" else 1)
        self.out_features = out_features // (self.tp_size if parallel_mode == "column" else 1)
        self.parallel_mode, self.sequence_parallel = parallel_mode, self.tp_size > 1 and sequence_parallel
        self.fuse_wgrad_accumulation, self.use_bias, self.return_bias = fuse_wgrad_accumulation, bias, return_bias
        self.fp8_meta: dict[str, Any] = {}
        self.save_original_input = False
        self.weight = make_parameter((self.out_features, self.in_features), params_dtype, device)
        self.weight.tensor_model_parallel = parallel_mode is not None
        self.weight.partition_dim, self.weight.partition_stride = int(parallel_mode == "row"), 1
        self.bias = make_parameter((self.out_features,), params_dtype, device) if bias else None
        if self.bias is not None and parallel_mode == "row":
            self.bias.sequence_parallel = sequence_parallel
        self.layer_norm_weight = self.layer_norm_bias = None

    def set_tensor_parallel_group(self, group: Any) -> None:
        self.tp_group = group

    def reset_parameters(self, **_: Any) -> None: ...

    def forward(self, inp: Any, is_first_microbatch: Any = None, **_: Any) -> Any:
        self.first_microbatch = is_first_microbatch
        out = _Linear.apply(inp, self.weight, self.bias, self.layer_norm_weight, self.layer_norm_bias, self)
        return (out, self.bias) if self.return_bias else out


class LayerNormLinear(Linear):
    """The same after a norm, in one module."""

    def __init__(
        self, in_features: int, out_features: int, eps: float = 1e-5, normalization: str = "LayerNorm",
        return_layernorm_output: bool = False, zero_centered_gamma: bool = False, params_dtype: Any = None, device: Any = "cuda",
        **given: Any,
    ) -> None:  # fmt: skip
        if return_layernorm_output:
            raise refuse("return_layernorm_output")
        super().__init__(in_features, out_features, params_dtype=params_dtype, device=device, **given)
        self.eps, self.normalization, self.zero_centered_gamma = eps, normalization, zero_centered_gamma
        self.layer_norm_weight = make_parameter((in_features,), params_dtype, device)
        self.layer_norm_weight.sequence_parallel = self.sequence_parallel
        if normalization == "LayerNorm":
            self.layer_norm_bias = make_parameter((in_features,), params_dtype, device)
            self.layer_norm_bias.sequence_parallel = self.sequence_parallel
