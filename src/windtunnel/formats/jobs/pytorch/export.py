"""A module's joint graph: forward and backward as one list of aten operators on tensors without storage."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.pytorch.load import Loaded, pytorch

INNER = "inner"


@dataclass(frozen=True)
class Joint:
    """The joint graph in order.

    `weights` are parameters' placeholders by name, `gradients` the outputs that are their gradients, `results` the forward
    outputs, `same` the first placeholder of each parameter that has several names; `frozen` elements have no gradient.
    """

    nodes: tuple[Any, ...]
    weights: dict[Any, str]
    gradients: tuple[Any, ...]
    results: tuple[Any, ...]
    same: dict[Any, Any]
    frozen: int


def joint(loaded: Loaded, dtype: str) -> Joint:
    """Exports `loaded` with `torch.export` and traces its backward pass with AOTAutograd. Nothing is computed.

    Parameters and inputs are replaced by fake tensors of the CPU, where fused attention is one operator. The backward pass starts
    from the output named `loss` where there is one, else from all differentiable outputs.
    """
    torch = pytorch()
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    module = loaded.module
    if loaded.program is None:
        module.train()
        module.to(getattr(torch, {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[dtype]))
    shared = _shared_parameters(loaded)
    _without_storage(torch, module, mode)
    floats = None if loaded.program is not None else next((p.dtype for p in module.parameters() if p.is_floating_point()), None)
    args, kwargs = torch.utils._pytree.tree_map(lambda leaf: _fake(torch, leaf, mode, floats), (loaded.args, loaded.kwargs))
    try:
        with warnings.catch_warnings(), ExitStack() as stack:
            warnings.simplefilter("ignore")
            inner = module if loaded.program is not None else _loss(torch, module)
            with mode:
                program = torch.export.export(inner, args, kwargs, strict=False).module()
            made = aot_export_joint_with_descriptors(stack, program, args, kwargs)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise SpecError(
            "torch.export",
            f"{type(error).__name__}: {first[:300]}",
            "a module that torch.export can trace",
            "See docs/import.md for what usually helps.",
        ) from None
    return _read(made.graph_module.graph, shared)


def _shared_parameters(loaded: Loaded) -> dict[str, int]:
    """Parameters by name -> what is the same for those that are one: export gives each name a tensor of its own."""
    if loaded.program is not None:
        return {name: value.untyped_storage().data_ptr() for name, value in loaded.program.state_dict.items() if value.numel()}
    return {f"{INNER}.{name}": id(value) for name, value in loaded.module.named_parameters(remove_duplicate=False)}


def _read(graph: Any, shared: dict[str, int]) -> Joint:
    nodes = tuple(graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder" and "Tangent" not in type(n.meta.get("desc")).__name__]
    weights = {n: str(n.meta["desc"].target) for n in inputs if "Param" in type(n.meta.get("desc")).__name__}
    outputs = list(next(n for n in nodes if n.op == "output").args[0])
    results, gradients = outputs[: -len(inputs)], outputs[-len(inputs) :]
    by_input = dict(zip(inputs, gradients, strict=True))
    frozen = sum(int(node.meta["val"].numel()) for node in weights if by_input[node] is None)
    found = tuple(g for node, g in by_input.items() if g is not None and node in weights)
    first: dict[int, Any] = {}
    same = {node: first.setdefault(shared.get(name, id(node)), node) for node, name in weights.items()}
    return Joint(nodes, weights, found, tuple(r for r in results if r is not None), same, frozen)


def _loss(torch: Any, module: Any) -> Any:
    class Loss(torch.nn.Module):
        """The module with its loss as the only output, where it has one."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            out = self.inner(*args, **kwargs)
            loss = out.get("loss") if isinstance(out, dict) else getattr(out, "loss", None)
            if loss is not None:
                return loss
            leaves = torch.utils._pytree.tree_leaves(out)
            return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad)

    return Loss()


def _without_storage(torch: Any, module: Any, mode: Any) -> None:
    """Replaces parameters and buffers by fake tensors; shared ones stay shared."""
    made: dict[int, Any] = {}
    with mode:
        for part in module.modules():
            for table, trained in ((part._parameters, True), (part._buffers, False)):
                for name, old in table.items():
                    if old is None:
                        continue
                    if id(old) not in made:
                        new = torch.empty(old.shape, dtype=old.dtype, device="cpu")
                        made[id(old)] = torch.nn.Parameter(new, requires_grad=old.requires_grad) if trained else new
                    table[name] = made[id(old)]


def _fake(torch: Any, leaf: Any, mode: Any, floats: Any) -> Any:
    """An input without storage, floating ones in the parameters' format."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with mode:
        dtype = floats if floats is not None and leaf.is_floating_point() else leaf.dtype
        return torch.empty(leaf.shape, dtype=dtype, device="cpu")
