"""What files of the source import and define, by their text, and circles of imports: imports inside functions and those for type
checkers alone count too."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Edges = set[tuple[str, str]]
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of a statement that hold statements, or parts that hold them."""


def cycles(edges: Edges) -> list[list[str]]:
    """Groups of more than one module that import each other."""
    names = sorted({name for edge in edges for name in edge})
    place = {name: at for at, name in enumerate(names)}
    ends = np.array([(place[a], place[b]) for a, b in edges]).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(names), len(names)))
    count, label = connected_components(graph, directed=True, connection="strong")
    return [[name for name in names if label[place[name]] == one] for one in range(count) if (label == one).sum() > 1]


def modules_of(package: Path) -> dict[str, Path]:
    """Dotted name → file of every module of a package; a folder's `__init__.py` has the folder's name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class Function(NamedTuple):
    """A function: its name with its class before it, its first line, its lines, and whether a comment says why it is long."""

    name: str
    line: int
    lines: int
    says_why: bool


class Source(NamedTuple):
    """What a file says: its imports and assertions wherever they stand, its functions, and the classes at its left edge."""

    imports: list[ast.Import | ast.ImportFrom]
    asserts: list[ast.Assert]
    functions: list[Function]
    classes: list[str]


@cache
def source_of(path: Path) -> Source:
    """Of a file, parsed once for every rule of the house: parsing all of them takes longer than the rules."""
    return read_source(path.read_text(encoding="utf-8"))


def read_source(text: str) -> Source:
    """Imports and definitions are statements: only blocks of statements are looked into."""
    lines = text.splitlines()
    found = Source([], [], [], [])

    def visit(node: ast.AST, owner: str) -> None:
        for child in (one for block in _BLOCKS for one in getattr(node, block, ())):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                found.imports.append(child)
            elif isinstance(child, ast.Assert):
                found.asserts.append(child)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                signature = "\n".join(lines[child.lineno - 1 : child.body[0].lineno])
                length = (child.end_lineno or 0) - child.lineno + 1
                found.functions.append(Function(f"{owner}{child.name}", child.lineno, length, "# long: " in signature))
                visit(child, "")
            else:
                visit(child, f"{child.name}." if isinstance(child, ast.ClassDef) else owner)

    tree = ast.parse(text)
    visit(tree, "")
    found.classes.extend(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return found


def imports_of(name: str, path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules of the package that a file imports, wherever in the file; a name from a package is its module if it is one."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in source_of(path).imports:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*up, *([node.module] if node.module else [])])
            found |= {inner if (inner := f"{source}.{alias.name}") in modules else source for alias in node.names}
    return {one for one in found if one in modules and one != name}


def file_edges(package: Path) -> Edges:
    """Who imports whom, by file."""
    modules = modules_of(package)
    return {(name, other) for name, path in modules.items() for other in imports_of(name, path, modules)}


def room_edges(edges: Iterable[tuple[str, str]], inside: str = "windtunnel") -> Edges:
    """Who imports whom, by folder or file directly in the package `inside`; what lies outside of it does not count."""
    depth = inside.count(".") + 1
    lifted = set()
    for pair in edges:
        a, b = (tuple(name.split(".")) for name in pair)
        if all(".".join(one[:depth]) == inside and len(one) > depth for one in (a, b)) and a[depth] != b[depth]:
            lifted.add((a[depth], b[depth]))
    return lifted


def circles_of_rooms(edges: Edges, package: str = "windtunnel") -> set[tuple[str, ...]]:
    """Circles among the rooms of a package, and within each of its folders: (folder, its members that import each other)."""
    folders = {package} | {
        ".".join(parts[:depth]) for name in {one for edge in edges for one in edge}
        for parts in [name.split(".")] for depth in range(1, len(parts))
    }  # fmt: skip
    return {(folder, *circle) for folder in folders for circle in cycles(room_edges(edges, folder))}


def folder_sizes(package: Path) -> dict[str, int]:
    """Folder → `.py` files that lie directly in it."""
    sizes: dict[str, int] = defaultdict(int)
    for path in package.rglob("*.py"):
        sizes[str(path.parent.relative_to(package))] += 1
    return dict(sizes)


def class_names(package: Path) -> dict[str, list[str]]:
    """Public class name → the rooms in which it is written, one for each place."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name in source_of(path).classes:
            if not name.startswith("_"):
                rooms[name].append(path.relative_to(package).parts[0])
    return dict(rooms)
