"""Mutants of a source file: small changes of its syntax tree, each inside one function.

Changed are operators, comparisons, `and`/`or`, `not`, signs, numbers, booleans, max/min and their like, branches of conditional
expressions, updates in place, early returns and returned values. Left alone are texts, annotations, decorators, defaults of
arguments, raised errors, `strict` of zip, which only checks, and code outside of functions: tables of facts are held by their
sources and by tests/golden.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_TWINS = (
    ("max", "min"),
    ("maximum", "minimum"),
    ("fmax", "fmin"),
    ("nanmax", "nanmin"),
    ("argmax", "argmin"),
    ("any", "all"),
    ("ceil", "floor"),
    ("sum", "max"),
    ("mean", "max"),
    ("median", "max"),
)
_CALLED = {**{b: a for a, b in _TWINS[:7]}, **dict(_TWINS)}
_SIDES = {"max", "min", "maximum", "minimum"}
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert)


@dataclass(frozen=True)
class Mutant:
    """One change. `function`: its outermost one, with its class. `at`: which node of the tree, `variant`: which change of it."""

    file: str
    function: str
    line: int
    was: str
    now: str
    at: int
    variant: int

    @property
    def name(self) -> str:
        """Where and what, without the line: it holds while other lines of the file change."""
        return f"{self.file} {self.function}: {self.was} -> {self.now}"


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its tree."""
    tree = ast.parse(source)
    number = {id(node): at for at, node in enumerate(ast.walk(tree))}
    found = []
    for function, node in _inside(tree):
        for variant, new in enumerate(_variants(node)):
            line = getattr(node, "lineno", 0)
            found.append(Mutant(file, function, line, _text(node), _text(new), number[id(node)], variant))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The file's tree with the change made; lines stay where they were."""
    tree = ast.parse(source)
    target = next(node for at, node in enumerate(ast.walk(tree)) if at == mutant.at)
    new = ast.copy_location(_variants(target)[mutant.variant], target)
    return ast.fix_missing_locations(_Swap(target, new).visit(tree))


class _Swap(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST) -> None:
        self.target, self.new = target, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.target:
            return self.new
        self.generic_visit(node)
        return node


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _inside(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node that may be changed, with the name of its outermost function."""
    outer = [("", node) for node in tree.body]
    while outer:
        prefix, node = outer.pop(0)
        if isinstance(node, ast.ClassDef):
            outer = [(f"{prefix}{node.name}.", inner) for inner in node.body] + outer
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in _without_docstring(node.body):
                yield from ((prefix + node.name, inner) for inner in _below(statement))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if told else body


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, _SKIPPED) or isinstance(node, ast.keyword) and node.arg == "strict":
        return
    yield node
    skipped = {"annotation", "returns", "decorator_list", "args" if isinstance(node, (ast.FunctionDef, ast.Lambda)) else ""}
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST):
                    yield from _below(inner)


def _variants(node: ast.AST) -> list[ast.AST]:
    """What may stand in the place of a node."""
    for kind, change in _CHANGES:
        if isinstance(node, kind):
            return change(node)
    return []


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _operation(node: ast.BinOp) -> list[ast.AST]:
    if _is_text(node.left) or _is_text(node.right) or type(node.op) not in _ARITHMETIC:
        return []
    return [_with(node, op=_ARITHMETIC[type(node.op)]())]


def _update(node: ast.AugAssign) -> list[ast.AST]:
    if _is_text(node.value) or type(node.op) not in _ARITHMETIC:
        return []
    return [_with(node, op=_ARITHMETIC[type(node.op)]())]


def _comparison(node: ast.Compare) -> list[ast.AST]:
    if len(node.ops) != 1:
        return [_with(node, ops=[_COMPARED[type(op)][0]() for op in node.ops])]
    return [_with(node, ops=[new()]) for new in _COMPARED[type(node.ops[0])]]


def _logic(node: ast.BoolOp) -> list[ast.AST]:
    return [_with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())]


def _sign(node: ast.UnaryOp) -> list[ast.AST]:
    return [node.operand] if isinstance(node.op, (ast.Not, ast.USub, ast.Invert)) else []


def _number(node: ast.Constant) -> list[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        return [ast.Constant(not value)]
    if isinstance(value, int):
        return [ast.Constant(value + 1)]
    if isinstance(value, float):
        return [ast.Constant(value * 1.1 if value else 1.0)]
    return []


def _call(node: ast.Call) -> list[ast.AST]:
    called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called not in _CALLED:
        return []
    name = _CALLED[called]
    func = ast.Name(name, ast.Load()) if isinstance(node.func, ast.Name) else _with(node.func, attr=name)
    sides = node.args if called in _SIDES and len(node.args) == 2 and not node.keywords else []
    return [_with(node, func=func), *(side for side in sides if not isinstance(side, ast.Starred))]


def _choice(node: ast.IfExp) -> list[ast.AST]:
    return [node.body, node.orelse]


def _branch(node: ast.If) -> list[ast.AST]:
    if len(node.body) == 1 and isinstance(node.body[0], (ast.Return, ast.Continue)) and not node.orelse:
        return [ast.Pass()]  # an early way out that is not taken
    return [] if isinstance(node.test, (ast.Compare, ast.UnaryOp)) else [_with(node, test=ast.UnaryOp(ast.Not(), node.test))]


def _returned(node: ast.Return) -> list[ast.AST]:
    is_none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    return [] if is_none else [ast.Return(ast.Constant(None))]


_CHANGES: tuple[tuple[type[Any], Callable[[Any], list[ast.AST]]], ...] = (
    (ast.BinOp, _operation),
    (ast.AugAssign, _update),
    (ast.Compare, _comparison),
    (ast.BoolOp, _logic),
    (ast.UnaryOp, _sign),
    (ast.Constant, _number),
    (ast.Call, _call),
    (ast.IfExp, _choice),
    (ast.If, _branch),
    (ast.Return, _returned),
)
