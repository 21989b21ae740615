"""From what was typed to a module and its inputs, neither of which takes memory."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
