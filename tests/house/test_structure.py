"""The shape of the source: no import cycles, no long functions, one meaning a class name."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

SRC = Path(__file__).resolve().parents[2] / "src" / "windtunnel"
LONGEST = 60
"""Lines of a function, docstring and all; a longer one says why in a comment `# long: …` on its first line."""
TWICE = 10
"""Class names that may stand in more than one room."""


def trees() -> Iterator[tuple[Path, list[str], ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path, text.splitlines(), ast.parse(text)


def cycles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Groups of more than one module that import each other."""
    names = sorted({name for edge in edges for name in edge})
    place = {name: at for at, name in enumerate(names)}
    ends = np.array([(place[a], place[b]) for a, b in edges]).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(names), len(names)))
    count, label = connected_components(graph, directed=True, connection="strong")
    return [[name for name in names if label[place[name]] == one] for one in range(count) if (label == one).sum() > 1]


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count too; those for type checkers alone do not."""
    graph = grimp.build_graph("windtunnel", exclude_type_checking_imports=True, cache_dir=None)
    edges = {(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)}
    assert len(edges) > 1000
    assert cycles(edges) == []


def test_a_cycle_is_seen() -> None:
    assert cycles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}) == [["a", "b", "c"]]
    assert cycles({("a", "b"), ("b", "c")}) == []


def test_functions_are_short() -> None:
    long = []
    for path, lines, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (node.end_lineno or 0) - node.lineno >= LONGEST:
                signature = "\n".join(lines[node.lineno - 1 : node.body[0].lineno])
                if "# long: " not in signature:
                    long.append(f"{path.relative_to(SRC)}:{node.lineno} {node.name}: {(node.end_lineno or 0) - node.lineno + 1}")
    assert not long, "\n".join(long)


def test_a_class_name_has_one_meaning() -> None:
    rooms: dict[str, list[str]] = defaultdict(list)
    for path, _, tree in trees():
        room = path.relative_to(SRC).parts[0]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].append(room)
    within = {name: listed for name, listed in rooms.items() if max(Counter(listed).values()) > 1}
    assert not within, "twice in one room"
    several = {name: listed for name, listed in rooms.items() if len(listed) > 1}
    assert len(several) <= TWICE, several
