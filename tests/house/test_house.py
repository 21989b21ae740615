"""The rules of the house: sizes of files, floors, docstrings, words that may not appear, sources of facts."""

from __future__ import annotations

import ast
import csv
import os
import re
import statistics
import subprocess
import sys
import tomllib
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any

import pytest
from circles import source_of

from windtunnel.predict import predict
from windtunnel.spec import load_job, names

ROOT = Path(__file__).resolve().parents[2]
SRC, ORACLES = ROOT / "src" / "windtunnel", ROOT / "oracles" / "windtunnel_oracles"
CATALOG = SRC / "catalog"
ROOMS = sorted(path.parent.name for path in SRC.glob("*/__init__.py"))
MEDIAN, MOST = 150, 500


def text_files() -> list[Path]:
    """Everything that the project keeps, whether or not git is there to say so."""
    skip = {".git", ".venv", "build", "out", "dist", "__pycache__", "node_modules"}
    kinds = {".py", ".pyi", ".toml", ".md", ".h", ".cpp", ".csv", ".json", ".css", ".js", ".txt", ".yaml", ".yml", ".args", ""}
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in skip and not f.startswith(".") or f == ".ci"]
        found += [Path(folder) / f for f in files if Path(f).suffix in kinds and f not in skip]  # a worktree has a file .git
    return found


@pytest.mark.parametrize(
    ("folder", "kinds"), [("src", (".py",)), ("oracles", (".py",)), ("cpp", (".h", ".cpp")), ("tests", (".py",))]
)
def test_a_file_holds_one_idea(folder: str, kinds: tuple[str, ...]) -> None:
    sizes = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*") if path.suffix in kinds
    }
    assert sizes
    assert statistics.median(sizes.values()) <= MEDIAN
    assert not {str(path.relative_to(ROOT)): lines for path, lines in sizes.items() if lines > MOST}


def test_imports_go_down_the_floors() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    if not lint.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([str(lint), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_door_offers_is_explained(room: str) -> None:
    module = import_module(f"windtunnel.{room}")
    for name in getattr(module, "__all__", ()):
        try:
            thing = getattr(module, name)
        except ModuleNotFoundError as error:  # of an extra that is not installed
            assert error.name in ("torch", "uvicorn"), error
            continue
        if (isclass(thing) or isfunction(thing)) and str(thing.__module__).startswith("windtunnel"):
            own = thing.__dict__.get("__doc__") if isclass(thing) else thing.__doc__
            assert own and not (isclass(thing) and own.startswith(f"{name}(")), f"{room}.{name} has no docstring"


def is_explained(text: str) -> bool:
    """Whether a module has a docstring, or nothing in it. Text that begins with one need not be parsed."""
    if re.match(r'"""\s*[^\s"]', text):
        return True
    tree = ast.parse(text)
    return bool(ast.get_docstring(tree)) or not tree.body


def test_every_file_says_what_it_is_for() -> None:
    assert not [path for path in (*SRC.rglob("*.py"), *ORACLES.rglob("*.py")) if not is_explained(path.read_text(encoding="utf-8"))]


def test_a_file_without_a_docstring_is_seen() -> None:
    assert all(map(is_explained, ('"""A."""\nx = 1', "# a\n'b'\nx = 1", "")))
    assert not any(map(is_explained, ('""""""\nx = 1', "x = 1")))


FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.~-])/(?:work|root|home|Users)/\w"),
    "a package registry": re.compile(r"(?:extra-)?index-url|pythonhosted|pypi\.org/simple|artifactory|trusted-host", re.IGNORECASE),
    "a secret": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|(?:api[_-]?key|password)\s*=\s*['\"]\w{8,}", re.IGNORECASE),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_of_the_machine_it_was_written_on(what: str) -> None:
    found = []
    for path in text_files():
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group(0)}" for match in FORBIDDEN[what].finditer(text)]
    assert not found


def test_nothing_is_left_for_later() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
    found = [
        f"{path.relative_to(ROOT)}: {match.group(0)}"
        for folder in ("src", "oracles", "cpp")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".h", ".cpp", ".toml")
        for match in words.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_tests_of_torch_lie_in_the_folder_that_make_test_torch_runs() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark" + ".torch" in path.read_text(encoding="utf-8")]
    assert {path.parent.name for path in marked} == {"pytorch"}


def test_tests_that_may_be_skipped_are_not_imported_by_others() -> None:
    """A module that asks for torch, ray or a server fails the collection of whoever imports it where there is none."""
    imports = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in sorted((ROOT / "tests" / "pytorch").rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.match(r"\s*(from|import) tests\.[\w.]*test_", line)
    ]
    assert not imports, f"put what they share into a module that is no test: {imports}"


def test_nothing_below_the_doors_reads_clock_environment_or_network() -> None:
    """A prediction depends on the job alone."""
    forbidden = {"time", "datetime", "random", "socket", "urllib", "requests", "secrets", "uuid"}
    found = []
    for room in ("base", "spec", "records", "engine", "workload", "compute", "memory", "network", "predict", "goodput"):
        for path in (SRC / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            source = source_of(path)
            for node in source.imports:
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                found += [f"{path.relative_to(SRC)} imports {n}" for n in names if n.split(".")[0] in forbidden]
            found += [f"{path.relative_to(SRC)} reads the environment" for _ in re.finditer(r"os\.environ|getenv", text)]
            if not path.stem.startswith("fit"):  # fits are run by those who keep the project, on files of the project
                found += [f"{path.relative_to(SRC)} asserts" for _ in source.asserts]
    seeded = "base/rng.py imports random"  # its generator alone, from a seed that the caller states
    assert [one for one in found if one != seeded] == []


def sourced(table: dict[str, Any]) -> bool:
    """Whether a table says where its facts come from, or every table in it does; `reference` repeats the GPU's own entry."""
    if any(table.get(key) for key in ("source", "fitted_on")):
        return True
    inner = [value for key, value in table.items() if isinstance(value, dict) and key != "reference"]
    inner += [one for value in table.values() if isinstance(value, list) for one in value if isinstance(one, dict)]
    return bool(inner) and all(sourced(value) for value in inner)


FACTS = sorted(path for path in CATALOG.rglob("*.toml") if path.name != "fitted.toml")  # a list of families, see below


def test_every_fact_has_a_source() -> None:
    assert [path for path in FACTS if not sourced(tomllib.loads(path.read_text(encoding="utf-8")))] == []


def test_sources_are_looked_for() -> None:
    assert not sourced({"id": "x", "peak": 1.0}) and not sourced({"source": ""}) and not sourced({"a": {"source": "s"}, "b": {}})


@pytest.mark.parametrize("path", sorted((CATALOG / "measurements").glob("*.csv")), ids=lambda path: path.name)
def test_every_measurement_has_a_source(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and all(row["source"].strip() for row in rows)


@pytest.mark.parametrize("name", names("jobs"))
def test_job_of_the_catalogue_predicts_and_fits(name: str) -> None:
    p = predict(load_job(name))
    assert p.fits and not p.warnings
    assert 0.2 < p.mfu < 0.7
