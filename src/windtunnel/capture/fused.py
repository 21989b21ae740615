"""Kernels of libraries that need a GPU or a compiler of kernels, as operators that have shapes and nothing else.

Stand-ins of packages (`packages/`) call them in the place of the library's own; the recorder sees one kernel with its tensors.

Optimizers and functions of Apex and Transformer Engine that update lists of tensors in one kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from windtunnel.base.errors import SpecError
from windtunnel.capture.torch_cuda import ReplayedGraph

notes: list[str] = []
"""What was stood in for: the session's notes."""
_libraries: dict[str, Any] = {}


def add_note(text: str) -> None:
    """Says once that something is stood in for."""
    if text not in notes:
        notes.append(text)


def refuse(what: str) -> SpecError:
    """The error for what no stand-in has."""
    return SpecError("Transformer Engine", what, "what its stand-in has (docs/capture.md)", "Capture without it.")


def kernel(schema: str, shapes: Callable[..., Any]) -> Callable[..., Any]:
    """An operator `library::name(…) -> …` of which only the shapes of its results are known."""
    space, _, rest = schema.partition("::")
    if space not in _libraries:
        _libraries[space] = torch.library.Library(space, "FRAGMENT")
    library, name = _libraries[space], rest.partition("(")[0]
    library.define(rest)
    library.impl(name, shapes, "Meta")
    return getattr(getattr(torch.ops, space), name)  # type: ignore[no-any-return]


@contextmanager
def pause_recording() -> Iterator[None]:
    """Nothing is recorded inside: what a stand-in computes and the library does not."""
    ReplayedGraph.device.record(False)
    try:
        yield
    finally:
        ReplayedGraph.device.record(True)


_triton: dict[str, Any] = {}


def launch_triton(
    function: Callable[..., Any], grid: Any, given: tuple[Any, ...], named: dict[str, Any],
    settings: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> None:  # fmt: skip
    """A launch of a Triton kernel as an operator `triton::NAME(arrays, grid)`. Which of the arrays it writes is not known: all may
    be other than before. `settings`: constants that follow from its arguments."""
    known = inspect.signature(function)
    bound = known.bind_partial(*given, **{name: value for name, value in named.items() if name in known.parameters})
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    arguments |= settings(arguments) if settings is not None else {}
    blocks = grid(arguments) if callable(grid) else grid
    arrays = [value.detach() for value in arguments.values() if isinstance(value, torch.Tensor)]
    name = function.__name__
    if name not in _triton:
        _triton[name] = kernel(f"triton::{name}(Tensor(a!)[] arrays, int[] grid) -> ()", lambda *_: None)
    add_note("Triton: a kernel is its arrays, of which each goes through memory once")
    if arrays:
        _triton[name](arrays, [int(size) for size in (blocks if isinstance(blocks, (tuple, list)) else (blocks,))])


def gather(tensor: Any, group: Any) -> Any:
    """Rows of all ranks of a group."""
    out = tensor.new_empty((tensor.shape[0] * group.size(), *tensor.shape[1:]))
    torch.distributed.all_gather_into_tensor(out, tensor.contiguous(), group=group)
    return out


def reduce_scatter(tensor: Any, group: Any) -> tuple[Any, Any]:
    """This rank's rows of a sum over a group, and what to wait for."""
    out = tensor.new_empty((tensor.shape[0] // group.size(), *tensor.shape[1:]))
    work = torch.distributed.reduce_scatter_tensor(out, tensor.contiguous(), group=group, async_op=True)
    return out, work


accumulate = kernel("fused_weight_gradient::wgrad_gemm_accum(Tensor left, Tensor right, Tensor(a!) out) -> ()", lambda *_: None)
"""A matrix product that is added to `out` in its epilogue."""
norm_forward = kernel(
    "transformer_engine::norm_fwd(Tensor x, Tensor weight, Tensor? bias) -> (Tensor, Tensor)",
    lambda x, weight, bias: (torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)),
)
norm_backward = kernel(
    "transformer_engine::norm_bwd(Tensor grad, Tensor x, Tensor stats, Tensor weight) -> (Tensor, Tensor)",
    lambda grad, x, stats, weight: (torch.empty_like(x), torch.empty_like(weight)),
)


class Norm(torch.autograd.Function):
    """A layer norm or RMS norm as one kernel forward and one backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        out, stats = norm_forward(x, weight, bias)
        ctx.save_for_backward(x, weight, stats)
        ctx.biased = bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, weight, stats = ctx.saved_tensors
        dx, dweight = norm_backward(grad, x, stats, weight)
        return dx, dweight, torch.empty_like(weight) if ctx.biased else None


def fused_attention(
    query: Any, key: Any, value: Any, causal: bool, scale: float | None = None, dropout: float = 0.0, cudnn: bool = False
) -> Any:
    """[batch, heads, tokens, width] by cuDNN's fused attention, or by FlashAttention."""
    if cudnn:
        attend = torch.ops.aten._scaled_dot_product_cudnn_attention
        return attend(query, key, value, None, True, dropout, causal, False, scale=scale)[0]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )


_adam = kernel(
    "multi_tensor::adam(Tensor[] grads, Tensor(a!)[] parameters, Tensor(b!)[] averages, Tensor(c!)[] squares) -> ()",
    lambda *_: None,
)
_sgd = kernel("multi_tensor::sgd(Tensor[] grads, Tensor(a!)[] parameters, Tensor(b!)[] momenta) -> ()", lambda *_: None)
_scale = kernel("multi_tensor::scale(Tensor[] given, Tensor(a!)[] out) -> ()", lambda *_: None)
_norm = kernel(
    "multi_tensor::l2norm(Tensor[] tensors, int parts) -> (Tensor, Tensor)",
    lambda tensors, parts: (
        tensors[0].new_empty(1, dtype=torch.float32), tensors[0].new_empty(parts, dtype=torch.float32)
    ),
)  # fmt: skip


def multi_tensor_applier(operator: Callable[..., Any], overflow: Any, lists: list[list[Any]], *given: Any) -> Any:
    """Calls an operator of lists of tensors."""
    return operator(2048 * 32, overflow, lists, *given)


def multi_tensor_l2norm(chunk: int, overflow: Any, lists: list[list[Any]], per_tensor: bool = False, *_: Any) -> Any:
    """The norm of all tensors, and of each."""
    return _norm(lists[0], len(lists[0]) if per_tensor else 0)


def multi_tensor_scale(chunk: int, overflow: Any, lists: list[list[Any]], scale: float) -> None:
    """Scaled copies of tensors."""
    _scale(lists[0], lists[1])


class FusedAdam(torch.optim.Optimizer):
    """AdamW whose update is one kernel a group. States are fp32."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, **_: Any) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "bias_correction": True})

    @torch.no_grad()
    def step(self, closure: Any = None, grad_scaler: Any = None) -> Any:
        """One update."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            trained = [parameter for parameter in group["params"] if _gradient(parameter) is not None]
            for parameter in trained:
                if not self.state[parameter]:
                    like = {"dtype": torch.float32}
                    self.state[parameter] |= {name: torch.zeros_like(parameter, **like) for name in ("exp_avg", "exp_avg_sq")}
            states = [[self.state[parameter][name] for parameter in trained] for name in ("exp_avg", "exp_avg_sq")]
            if trained:
                _adam([_gradient(parameter) for parameter in trained], trained, *states)
        return loss


def _gradient(parameter: Any) -> Any:
    return parameter.grad if parameter.grad is not None else getattr(parameter, "decoupled_grad", None)


class FusedSGD(torch.optim.Optimizer):
    """SGD with momentum whose update is one kernel a group."""

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.0, **_: Any) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in trained if group["momentum"] else ():
                self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
            momenta = [self.state[parameter]["momentum_buffer"] for parameter in trained if group["momentum"]]
            if trained:
                _sgd([parameter.grad for parameter in trained], trained, momenta)
        return loss
