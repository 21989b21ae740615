"""The shape of the source: no import cycles, no long functions, one meaning a class name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import grimp
from circles import class_names, cycles, source_of

ROOT = Path(__file__).resolve().parents[2]
SRC, ORACLES = ROOT / "src" / "windtunnel", ROOT / "oracles" / "windtunnel_oracles"
LONGEST = 60
"""Lines of a function, docstring and all; a longer one says why in a comment `# long: …` on its first line."""
TWICE = 2
"""Class names that may stand in more than one room."""


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count too; those for type checkers alone do not."""
    graph = grimp.build_graph("windtunnel", exclude_type_checking_imports=True, cache_dir=None)
    edges = {(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)}
    assert len(edges) > 1000
    assert cycles(edges) == []


def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{one.line} {one.name}: {one.lines}"
        for path in sorted([*SRC.rglob("*.py"), *ORACLES.rglob("*.py")])
        for one in source_of(path).functions
        if one.lines > LONGEST and not one.says_why
    ]
    assert not long, "\n".join(long)


def test_a_class_name_has_one_meaning() -> None:
    """Words of drawing, such as a table's column, may be a room's own words too."""
    listed_rooms = class_names(SRC)
    rooms = {name: [room for room in listed if room != "sheet"] or listed for name, listed in listed_rooms.items()}
    within = {name: listed for name, listed in rooms.items() if max(Counter(listed).values()) > 1}
    assert not within, "twice in one room"
    several = {name: listed for name, listed in rooms.items() if len(listed) > 1}
    assert len(several) <= TWICE, several
