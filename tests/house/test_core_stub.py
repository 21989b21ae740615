"""`engine/_core.pyi` is written by hand, since it types the keys of results; this holds it to the built module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from nanobind.stubgen import StubGen

from windtunnel import engine
from windtunnel.engine import _core

_ALIASES = {"_Ints": "int32", "_Longs": "int64", "_Bytes": "uint8", "_Floats": "float64", "_Keys": "uint64"}


def functions(text: str) -> dict[str, ast.FunctionDef]:
    """Functions and methods of a stub by dotted name."""

    def walk(nodes: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                yield prefix + node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")

    return dict(walk(ast.parse(text).body, ""))


def parameters(function: ast.FunctionDef) -> list[tuple[str, bool, bool]]:
    """(name, by keyword only, has a default) of each parameter."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    late = len(plain) - len(given.defaults)
    rows = [(one.arg, False, place >= late) for place, one in enumerate(plain)]
    return rows + [(one.arg, True, default is not None) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]


def element(annotation: ast.expr | None) -> str:
    """Element type of an array's annotation, empty for anything else."""
    text = ast.unparse(annotation) if annotation else ""
    for alias, name in _ALIASES.items():
        text = text.replace(alias, f"NDArray[numpy.{name}]")
    _, found, rest = text.replace("np.", "numpy.").replace("numpy.typing.", "").partition("NDArray[numpy.")
    return rest.partition("]")[0] if found else ""


def test_the_stub_says_what_the_module_takes() -> None:
    generator = StubGen(_core)
    generator.put(_core)
    built = functions(generator.get())
    written = functions(Path(engine.__file__).with_name("_core.pyi").read_text())
    assert len(built) > 10 and set(built) == set(written)
    for name, function in built.items():
        stub, real = parameters(written[name]), parameters(function)
        assert [(one, default) for one, _, default in stub] == [(one, default) for one, _, default in real], name
        # The stub may ask for a keyword where the module takes a place as well, not the other way round.
        assert all(asked or not needed for (_, asked, _), (_, needed, _) in zip(stub, real, strict=True)), name
        for one, other in zip(
            [*function.args.args, *function.args.kwonlyargs],
            [*written[name].args.args, *written[name].args.kwonlyargs],
            strict=True,
        ):
            assert element(other.annotation) == element(one.annotation), f"{name}: {one.arg}"
