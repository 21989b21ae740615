"""Circles of imports, by the text of the source: imports inside functions and those for type checkers alone count too."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Edges = set[tuple[str, str]]


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


def imports_of(name: str, path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules of the package that a file imports, wherever in the file; a name from a package is its module if it is one."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
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
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].append(path.relative_to(package).parts[0])
    return dict(rooms)
