"""Stacks, single modules and small models with random weights on a device, ready to run a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.profile.case import Case
from windtunnel.profile.device import Device
from windtunnel.profile.layer_timing import Run
from windtunnel.profile.modules.family import ModuleFamily
from windtunnel.profile.modules.layer import TORCH, Placed, Small, Stack
from windtunnel.profile.modules.norms import norm
from windtunnel.profile.modules.optimizer import TimedUpdate
from windtunnel.profile.random_tensors import random_tensor


class LayerBench:
    """Builds the modules to measure, for one case, implementation and mode on one device."""

    def __init__(self, case: Case, family: ModuleFamily, mode: str, device: Device, seed: int) -> None:
        self.case, self.family, self.mode, self.device, self.seed = case, family, mode, device, seed
        self.dtype = TORCH[case.dtype]

    def stack(self, layers: int) -> tuple[Run, Placed]:
        """`layers` in a row on a random input that needs a gradient, with their update."""
        with self._new_tensors():
            placed = self._place_stack(layers)
        return self._run(placed, (self._hidden_state(),), self._hidden_state().detach()), placed

    def step(self, layers: int) -> tuple[dict[str, Run], dict[str, str]]:
        """A small model of embedding, `layers`, final norm and head with loss: the whole `step` with its update, and each of
        `stack`, `embedding`, `norm` and `head` alone, without. Also their classes' names."""
        with self._new_tensors():
            parts = (self.family.embedding(self.case), self._place_stack(layers), norm(self.case), self.family.head(self.case))
            small = Small(*parts)
        tokens, labels, gradient = self._tokens(0), self._tokens(1), self._hidden_state().detach()
        modules = dict(zip(("embedding", "stack", "norm", "head"), parts, strict=True))
        arguments = {
            "embedding": (tokens,),
            "stack": (self._hidden_state(),),
            "norm": (self._hidden_state(),),
            "head": (self._hidden_state(), labels),
        }
        runs = {"step": self._run(small, (tokens, labels), None)}
        for name, module in modules.items():
            runs[name] = self._run(module, arguments[name], None if name == "head" else gradient, updated=False)
        return runs, {name: type(module).__name__ for name, module in modules.items()}

    def begin(self) -> None:
        """Reset torch.compile, so that a stack does not count as a recompilation of the previous one."""
        if self.mode == "compile":
            torch._dynamo.reset()

    def needed_bytes(self, layers: int) -> float:
        """Least memory of the weights, gradients and optimizer state of `layers`, B."""
        with torch.device("meta"):
            parameters = sum(p.numel() for p in self.family.layer(self.case).parameters())
        width = 4 if self.case.dtype == "fp32" else 2
        masters = 4 if self.case.master_weights and width == 2 else 0
        return float(layers * parameters * (2 * width + masters + 2 * (4 if masters else width)))

    # -- parts ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _new_tensors(self) -> Iterator[None]:
        """New tensors lie on the device, in the case's format, with weights that only the seed decides."""
        before = torch.get_default_dtype()
        torch.manual_seed(self.seed)
        torch.set_default_dtype(self.dtype)
        try:
            with torch.device(self.device.place):
                yield
        finally:
            torch.set_default_dtype(before)

    def _place_stack(self, layers: int) -> Placed:
        stack = [self.family.layer(self.case) for _ in range(layers)]
        return Placed(Stack(stack, self.case.recompute), self.case, self.device.place)

    def _hidden_state(self) -> Tensor:
        case = self.case
        shape = (case.micro_batch, case.seq, case.model.hidden)
        return random_tensor(shape, self.device.place, self.dtype, self.seed).requires_grad_()

    def _tokens(self, offset: int) -> Tensor:
        generator = torch.Generator(self.device.place).manual_seed(self.seed + offset)
        shape = (self.case.micro_batch, self.case.seq)
        return torch.randint(self.case.vocab, shape, generator=generator, device=self.device.place)

    def _run(self, module: nn.Module, inputs: tuple[Tensor, ...], gradient: Tensor | None, updated: bool = True) -> Run:
        module.train()
        parameters = list(module.parameters())
        call = self._in_mode(module, inputs)
        update = TimedUpdate(parameters, self.case.master_weights) if updated else None
        return Run(lambda: call(*inputs), gradient, parameters, [x for x in inputs if x.requires_grad], update)

    def _in_mode(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Callable[..., Any]:
        if self.mode == "compile":
            compiled: Callable[..., Any] = torch.compile(module, dynamic=False)
            return compiled
        if self.mode == "cuda_graph":
            graphed: Callable[..., Any] = torch.cuda.make_graphed_callables(module, inputs)
            return graphed
        plain: Callable[..., Any] = module
        return plain
