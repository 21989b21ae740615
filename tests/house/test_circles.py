"""Who imports whom, with imports inside functions and those for type checkers alone; folders that are heaps.

What is known today stands in KNOWN_CIRCLES and KNOWN_HEAPS, which must say exactly what is there: an entry that is no longer true
has to go, and none may come.
"""

from __future__ import annotations

import re
from pathlib import Path

from circles import circles_of_rooms, class_names, cycles, file_edges, folder_sizes, modules_of, room_edges

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "windtunnel"
MOST_FILES = 25
"""`.py` files side by side in a folder, unless docs/house.md gives a reason for it."""

KNOWN_CIRCLES: set[tuple[str, ...]] = {
    ("windtunnel", "formats", "replay", "report", "runs"),
    ("windtunnel.fleet.checkpoint", "checkpointer", "flushing"),
    ("windtunnel.fleet.collect", "collector", "metrics"),
    ("windtunnel.formats", "hardware", "logs", "nccl"),
    ("windtunnel.predict.program", "rendezvous", "speeds", "stage", "tax", "templates"),
    ("windtunnel.profile", "layers_timing", "modules"),
    ("windtunnel.spec", "differ", "job"),
}
"""(folder, its files or folders that import each other)."""
KNOWN_FILE_CIRCLES: set[tuple[str, ...]] = {
    ("windtunnel.fleet.checkpoint.checkpointer", "windtunnel.fleet.checkpoint.flushing"),
    ("windtunnel.fleet.collect.collector", "windtunnel.fleet.collect.metrics"),
    ("windtunnel.predict", "windtunnel.predict.step"),  # a name for callers in the package's head, and one that the file needs
    (
        "windtunnel.predict.program.rendezvous",
        "windtunnel.predict.program.speeds",
        "windtunnel.predict.program.stage",
        "windtunnel.predict.program.tax",
        "windtunnel.predict.program.templates",
    ),
    ("windtunnel.spec.requirements.unequal_ranks", "windtunnel.spec.job"),
}
KNOWN_HEAPS: set[str] = {"cli", "formats", "profile", "reality", "report", "runs", "search", "spec"}


def test_rooms_go_in_no_circles_but_the_known_ones() -> None:
    edges = file_edges(SRC)
    assert len(edges) > 4000
    assert circles_of_rooms(edges) == KNOWN_CIRCLES


def test_files_go_in_no_circles_but_the_known_ones() -> None:
    assert {tuple(circle) for circle in cycles(file_edges(SRC))} == KNOWN_FILE_CIRCLES


def test_no_folder_is_a_heap_but_the_known_ones() -> None:
    reasons = reasons_of((ROOT / "docs" / "house.md").read_text(encoding="utf-8"))
    assert {folder for folder, count in folder_sizes(SRC).items() if count > MOST_FILES and folder not in reasons} == KNOWN_HEAPS


def reasons_of(text: str) -> dict[str, str]:
    """Folder → why it may hold more files, from lines `* `folder/`: reason.` of the part "Flat folders" of docs/house.md."""
    part = text.partition("## Flat folders")[2].partition("\n## ")[0]
    return {folder: why for folder, why in re.findall(r"^\* `([\w/]+)/`: (\S.*)$", part, re.MULTILINE)}


def test_reasons_are_read() -> None:
    text = "## Flat folders\n\n* `cli/`: one file a verb.\n* `spec/`:\n\n## Next\n\n* `runs/`: another list.\n"
    assert reasons_of(text) == {"cli": "one file a verb."}
    assert reasons_of("no such part") == {}


def test_a_cycle_is_seen() -> None:
    assert cycles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}) == [["a", "b", "c"]]
    assert cycles({("a", "b"), ("b", "c")}) == []


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "windtunnel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "windtunnel"


def test_imports_in_functions_and_for_type_checkers_count(tmp_path: Path) -> None:
    package = written(tmp_path, {
        "__init__.py": "",
        "a/__init__.py": "",
        "a/one.py": "def f():\n    from windtunnel.b import two\n",
        "b/__init__.py": "from .two import x\n",
        "b/two.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import windtunnel.a.one\nx = 1\n",
    })  # fmt: skip
    edges = file_edges(package)
    assert edges == {
        ("windtunnel.a.one", "windtunnel.b.two"),
        ("windtunnel.b", "windtunnel.b.two"),
        ("windtunnel.b.two", "windtunnel.a.one"),
    }
    assert cycles(edges) == [["windtunnel.a.one", "windtunnel.b.two"]]
    assert room_edges(edges) == {("a", "b"), ("b", "a")}
    assert circles_of_rooms(edges) == {("windtunnel", "a", "b")}


def test_a_circle_inside_a_room_is_seen(tmp_path: Path) -> None:
    package = written(tmp_path, {
        "__init__.py": "",
        "a/__init__.py": "",
        "a/b/__init__.py": "",
        "a/b/one.py": "from ..c.two import x\n",
        "a/b/other.py": "y = 1\n",
        "a/c/__init__.py": "",
        "a/c/two.py": "from windtunnel.a.b.other import y\nx = y\n",
    })  # fmt: skip
    assert cycles(file_edges(package)) == []  # no file imports itself by way of others, and yet the folders do
    assert circles_of_rooms(file_edges(package)) == {("windtunnel.a", "b", "c")}


def test_folders_and_class_names_are_counted(tmp_path: Path) -> None:
    package = written(tmp_path, {
        "__init__.py": "",
        "a/one.py": "class Run: ...\nclass _Call: ...\n",
        "a/two.py": "def f():\n    class Run: ...\n",
        "b.py": "class Run: ...\n",
    })  # fmt: skip
    assert folder_sizes(package) == {".": 2, "a": 2}
    assert class_names(package) == {"Run": ["a", "b.py"]}
    assert list(modules_of(package)) == ["windtunnel", "windtunnel.a.one", "windtunnel.a.two", "windtunnel.b"]
