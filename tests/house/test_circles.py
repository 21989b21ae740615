"""Who imports whom, with imports inside functions and those for type checkers alone; folders that are heaps."""

from __future__ import annotations

import re
from pathlib import Path

from circles import circles_of_rooms, class_names, cycles, file_edges, folder_sizes, modules_of, room_edges

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "windtunnel"
MOST_FILES = 40
"""`.py` files side by side in a folder, unless docs/house.md gives a reason for it."""


def test_rooms_go_in_no_circles() -> None:
    edges = file_edges(SRC)
    assert len(edges) > 4000
    assert circles_of_rooms(edges) == set()


def test_files_go_in_no_circles() -> None:
    assert cycles(file_edges(SRC)) == []
    assert cycles(file_edges(ROOT / "oracles" / "windtunnel_oracles")) == []


def test_no_folder_is_a_heap() -> None:
    reasons = reasons_of((ROOT / "docs" / "house.md").read_text(encoding="utf-8"))
    assert {folder for folder, count in folder_sizes(SRC).items() if count > MOST_FILES and folder not in reasons} == set()


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
