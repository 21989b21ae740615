"""A module's joint graph: forward and backward as one list of aten operators on tensors without storage. From what was typed to a
module and its inputs, neither of which takes memory.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, SpecError

DTYPES = ("bf16", "fp16", "fp32")
_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d{1,9}(?:x\d{1,9})*)(?::(?P<dtype>\w+))?")
_KINDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "int": "int64",
    "int64": "int64",
    "int32": "int32",
    "long": "int64",
    "bool": "bool",
}


def pytorch() -> Any:
    """The package torch, or SpecError with what to install."""
    try:
        import torch
    except ImportError as error:
        raise SpecError(
            "import torch",
            "no PyTorch",
            "PyTorch 2.13, which reads the module; predictions do not need it",
            "Type: pip install 'windtunnel[torch]'.",
        ) from error
    return torch


@dataclass
class Loaded:
    """A module (or an exported program) with the inputs of one micro batch, and what was decided on the way."""

    module: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    program: Any = None
    assumed: list[str] = field(default_factory=list)


def load(target: str, arguments: Sequence[str], inputs: Sequence[str], dtype: str) -> Loaded:
    """The module behind `target`: FILE.py:factory, package.module:factory, or FILE.pt2 as `torch.export.save` wrote it."""
    torch = pytorch()
    if dtype not in DTYPES:
        raise SpecError("--dtype", dtype, ", ".join(DTYPES))
    if target.endswith(".pt2"):
        return _program(torch, target, arguments, inputs)
    factory = _factory(target)
    made = _call_factory(torch, factory, dict(_argument(text) for text in arguments), target)
    if inputs:
        made.args, made.kwargs = _inputs(torch, inputs, dtype)
    elif not made.args and not made.kwargs:
        raise SpecError(
            target,
            "a module alone",
            "inputs too: return (module, inputs) or give --input 8x3x224x224",
            "The first dimension is the micro batch.",
        )
    return made


def _program(torch: Any, target: str, arguments: Sequence[str], inputs: Sequence[str]) -> Loaded:
    for option, given in (("--arg", arguments), ("--input", inputs)):
        if given:
            raise SpecError(option, given[0], "nothing beside a .pt2, whose shapes are fixed")
    try:
        program = torch.export.load(target)
    except FileNotFoundError:
        raise FileError(target, "no such file", "a program that torch.export.save wrote") from None
    except Exception as error:
        raise FileError(target, _first_line(error), "a program that torch.export.save wrote, of this PyTorch") from None
    if program.example_inputs is None:
        raise FileError(target, "no example inputs", "a program with its example inputs")
    args, kwargs = program.example_inputs
    return Loaded(program.module(), tuple(args), dict(kwargs), program)


def _factory(target: str) -> Callable[..., Any]:
    where, _, name = target.rpartition(":")
    if not where or not name.isidentifier():
        raise SpecError(
            "TARGET",
            target,
            "FILE.py:factory, package.module:factory or FILE.pt2",
            "A factory is a function (or class) that makes the module.",
        )
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise FileError(where, "no such file", "a Python file that makes a module")
        spec = importlib.util.spec_from_file_location(f"windtunnel_import_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))
        sys.modules[spec.name] = module
        with _telling(where):
            spec.loader.exec_module(module)
    else:
        with _telling(where):
            module = importlib.import_module(where)
    found = getattr(module, name, None)
    if not callable(found):
        callables = ", ".join(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise SpecError("TARGET", target, f"a function or class of {where}: {callables[:200]}")
    return found  # type: ignore[no-any-return]


def _call_factory(torch: Any, factory: Callable[..., Any], arguments: dict[str, Any], target: str) -> Loaded:
    """What the factory returns, made on the device `meta`; on the CPU where it looks at values."""
    assumed = []
    try:
        with torch.device("meta"):
            made = factory(**arguments)
    except RuntimeError:
        with _telling(target):
            made = factory(**arguments)
        assumed.append("the module was made with real weights in memory: its factory looks at values")
    except Exception as error:
        raise SpecError(
            target, _first_line(error), "a call that makes a module", "Give its arguments with --arg NAME=VALUE."
        ) from None
    parts = made if isinstance(made, tuple) else (made,)
    if not isinstance(parts[0], torch.nn.Module) or len(parts) > 3:
        raise SpecError(target, type(made).__name__, "a torch.nn.Module, (module, inputs) or (module, args, kwargs)")
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    for given in parts[1:]:
        if isinstance(given, Mapping):
            kwargs = dict(given)
        else:
            args = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    return Loaded(parts[0], args, kwargs, assumed=assumed)


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise SpecError("--arg", text, "NAME=VALUE, an argument of the factory such as depth=24")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _inputs(torch: Any, texts: Sequence[str], dtype: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = [], {}
    for text in texts:
        found = _INPUT.fullmatch(text)
        kind = _KINDS.get((found.group("dtype") or dtype) if found else "")
        if found is None or kind is None:
            raise SpecError(
                "--input",
                text,
                "[NAME=]SHAPE[:DTYPE], such as 8x3x224x224 or input_ids=2x4096:int64",
                f"Number formats: {', '.join(_KINDS)}.",
            )
        shape = [int(size) for size in found.group("shape").split("x")]
        made = torch.empty(shape, dtype=getattr(torch, kind), device="meta")
        if found.group("name"):
            kwargs[found.group("name")] = made
        else:
            args.append(made)
    return tuple(args), kwargs


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


@contextmanager
def _telling(where: str) -> Any:
    """Errors of somebody else's code, as ours."""
    try:
        yield
    except Exception as error:
        raise SpecError(where, _first_line(error), "Python that runs and makes a module") from None


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
