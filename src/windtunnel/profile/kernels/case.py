"""One measurable kernel: its columns in the dataset, and how to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.dtypes import DTYPE_BYTES
from windtunnel.profile.device import Device
from windtunnel.profile.session import key_of

Run = Callable[[], object]
"""Enqueues one execution on the current stream."""


@dataclass(frozen=True)
class WarmRun:
    """A run of which a step has just written `warm`: a kernel's input, the gradient of a backward pass. What else it reads, weights
    and what was kept for the backward pass, is as cold as the step left it."""

    run: Run
    warm: tuple[Any, ...]

    def __call__(self) -> object:
        return self.run()

    def touch(self) -> None:
        """Writes the warm operands again, with the same numbers."""
        for tensor in self.warm:
            if tensor.is_floating_point():
                tensor.data.mul_(1.0)


class Unavailable(Exception):
    """This device or this PyTorch has no such kernel; the text names it."""


@dataclass(frozen=True)
class Bench:
    """Environment of a case: a device, a source of random numbers, and the launch mode of functions."""

    device: Device
    mode: str = "eager"

    @property
    def torch(self) -> Any:
        return self.device.torch

    def randn(self, *shape: int, dtype: str = "bf16", scale: float = 1.0) -> Any:
        """Normal random numbers. Zeros would draw less power and run at a higher clock."""
        torch_dtype = self.device.dtype(dtype)
        tensor = self.torch.randn(shape, dtype=self.torch.bfloat16 if dtype == "fp8" else torch_dtype, device=self.device.place)
        tensor = tensor if scale == 1.0 else tensor.mul_(scale)
        return tensor.to(torch_dtype) if dtype == "fp8" else tensor

    def integers(self, below: int, *shape: int) -> Any:
        """Uniform indices, int64."""
        return self.torch.randint(0, below, shape, device=self.device.place)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as this mode runs it: compiled for its shapes in mode compile."""
        if self.mode != "compile":
            return function
        self.torch._dynamo.reset()
        compiled: Callable[..., Any] = self.torch.compile(function, dynamic=False)
        return compiled

    def forward(self, function: Callable[..., Any], *inputs: Any) -> Run:
        """A run of `function` that saves nothing for a backward pass."""
        if not self.device.cuda:
            return self.training(function, *inputs)
        wrapped = self.wrap(function)
        torch = self.torch

        def run() -> object:
            with torch.no_grad():
                return wrapped(*inputs)

        return run

    def training(self, function: Callable[..., Any], *inputs: Any) -> Run:
        """A run of `function` that keeps what its backward pass needs until it ends: of several operators, each must find memory of
        its own, whose pages are new."""
        wrapped = self.wrap(function)
        inputs = tuple(value.requires_grad_() if value.is_floating_point() else value for value in inputs)
        return WarmRun(lambda: wrapped(*inputs), inputs)

    def backward(self, function: Callable[..., Any], *inputs: Any, weights: tuple[Any, ...] = ()) -> Run:
        """A run of only the backward pass of `function`, whose forward pass has run once; gradients of every floating input, and of
        those `weights` that it reads."""
        torch = self.torch
        leaves = [value.requires_grad_() for value in inputs if torch.is_tensor(value) and value.is_floating_point()]
        out = self.wrap(function)(*inputs)
        outs = out if isinstance(out, tuple) else (out,)
        upstream = [torch.randn_like(one) for one in outs]
        if weights:
            gradients = torch.autograd.grad(outs, weights, upstream, retain_graph=True, allow_unused=True)
            leaves += [weight for weight, gradient in zip(weights, gradients, strict=True) if gradient is not None]
        return WarmRun(lambda: torch.autograd.grad(outs, leaves, upstream, retain_graph=True), tuple(upstream))


@dataclass(frozen=True)
class KernelCase:
    """One row to be measured. Fields up to `launches` are columns of the dataset; `rank` orders the plan, lowest first.

    `make(bench)` builds the operands and returns the run; it raises Unavailable where there is no such kernel. `modes`: how it
    can be run besides eager.
    """

    op: str
    name: str
    phase: str
    make: Callable[[Bench], Run] = field(compare=False, repr=False)
    dtype: str = "bf16"
    out_dtype: str | None = None
    mode: str = "eager"
    library: str | None = "aten"
    model: str | None = None
    batch: int | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    v: int | None = None
    heads_per_kv: int | None = None
    causal: bool | None = None
    window: int | None = None
    accumulate: bool | None = None
    flops: float | None = None
    bytes: float | None = None
    launches: int | None = None
    note: str | None = None
    rank: float = 0.0
    modes: tuple[str, ...] = ("cuda_graph",)
    around: Callable[[Any], AbstractContextManager[object]] | None = field(default=None, compare=False, repr=False)
    """From torch, the context in which the case is built and run, such as one attention backend."""

    def fields(self) -> dict[str, Any]:
        """The columns of the row before the measurement."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        return {"level": "kernel", **columns}

    @contextmanager
    def holding(self, torch: Any) -> Iterator[None]:
        """The context in which the case is built and run; it restores all settings."""
        with ExitStack() as stack:
            if self.around is not None:
                stack.enter_context(self.around(torch))
            if self.mode == "compile":
                # a backward pass runs repeatedly, so it must not reuse the memory of saved tensors
                stack.enter_context(import_module("torch._functorch.config").patch(donated_buffer=False))
            yield

    @property
    def key(self) -> str:
        """See `session.key_of`."""
        return key_of(self.fields())


COLUMNS = (
    "op",
    "name",
    "phase",
    "dtype",
    "out_dtype",
    "mode",
    "library",
    "model",
    "batch",
    "m",
    "n",
    "k",
    "v",
    "heads_per_kv",
    "causal",
    "window",
    "accumulate",
    "flops",
    "bytes",
    "launches",
    "note",
)


WIDTH = {name: int(DTYPE_BYTES[name]) for name in ("fp32", "tf32", "fp16", "bf16", "fp8")}
"""B of an element."""
