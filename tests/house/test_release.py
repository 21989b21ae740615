"""The three distributions: which files they have, what these import, and what their metadata say."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

import windtunnel

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "windtunnel"
IMPORT_NAMES = {
    "yaml": "pyyaml", "lazy_loader": "lazy-loader", "opentelemetry": "opentelemetry-sdk", "prometheus_client": "prometheus-client",
}  # fmt: skip


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "release" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cut: Any = _loaded("cut")
NAMES = [f"src/windtunnel/{path.relative_to(PACKAGE).as_posix()}" for path in sorted(PACKAGE.rglob("*.py"))]
FLEET = cut.files_of("fleet", NAMES)


@cache
def imports_at_start(path: Path) -> set[str]:
    """Modules that a file imports when it is imported itself: not those inside functions or for type checkers."""
    found: set[str] = set()

    def visit(nodes: list[ast.stmt]) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(one.name for one in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = [f"{node.module}.{one.name}" for one in node.names]
                found.update(one if module_file(one) else node.module for one in inside)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
                visit([*node.body, *node.orelse])

    visit(ast.parse(path.read_text(encoding="utf-8")).body)
    return found


def module_file(name: str) -> str | None:
    """Path in the repository of a module of windtunnel."""
    base = ROOT / "src" / Path(*name.split("."))
    path = next((one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()), None)
    return path.relative_to(ROOT).as_posix() if path else None


def test_every_file_is_in_one_distribution() -> None:
    assert sorted([*FLEET, *cut.files_of("simulator", NAMES)]) == sorted(NAMES)
    assert cut.files_of("oracles", cut.tracked()) and not cut.files_of("oracles", NAMES)
    assert not [
        name for part in ("fleet", "simulator") for name in cut.files_of(part, cut.tracked()) if name.startswith("oracles/")
    ]
    ours = ("src/windtunnel/fleet/", "src/windtunnel/cli/fleet/")
    assert [name for name in NAMES if name.startswith(ours)] == [name for name in FLEET if name.startswith(ours)] != []


def test_files_of_the_fleet_import_files_of_the_fleet() -> None:
    for name in FLEET:
        for module in imports_at_start(ROOT / name):
            if module.startswith("windtunnel."):
                assert (found := module_file(module)) is None or found in FLEET, f"{name}: {module} is not in windtunnel-fleet"


def test_a_file_of_the_simulator_is_seen() -> None:
    path = PACKAGE / "records" / "plausible.py"
    assert "windtunnel.spec.loading.files" in imports_at_start(path)
    assert module_file("windtunnel.spec.loading.files") not in FLEET


def test_what_the_fleet_imports_is_a_dependency_or_of_an_extra() -> None:
    needs, extras = cut.dependencies("fleet")
    stated = {cut.name_of(one) for one in [*needs, *(one for extra in extras.values() for one in extra)]}
    for name in FLEET:
        for module in imports_at_start(ROOT / name):
            top = module.split(".")[0]
            if top not in sys.stdlib_module_names | {"windtunnel"}:
                assert IMPORT_NAMES.get(top, top) in stated, f"{name} imports {top}"


def test_training_needs_no_extra() -> None:
    needs = {cut.name_of(one) for one in cut.dependencies("fleet")[0]} | {"torch"}
    waiting, seen = ["windtunnel.fleet.watch", "windtunnel.fleet.checkpoint.checkpointer", "windtunnel.fleet.agent.__main__"], set()
    while waiting:
        module = waiting.pop()
        if module in seen or (file := module_file(module)) is None:
            continue
        seen.add(module)
        for one in imports_at_start(ROOT / file):
            if one.startswith("windtunnel"):
                waiting.append(one)
            else:
                top = one.split(".")[0]
                assert top in sys.stdlib_module_names or IMPORT_NAMES.get(top, top) in needs, f"{module} imports {one}"
    assert len(seen) > 30


def test_both_have_the_version_of_the_package_and_depend_on_each_other() -> None:
    fleet, simulator = (tomllib.loads(cut.pyproject_of(part))["project"] for part in ("fleet", "simulator"))
    assert fleet["version"] == simulator["version"] == windtunnel.__version__
    assert f"windtunnel-fleet=={windtunnel.__version__}" in simulator["dependencies"]
    assert not [one for one in fleet["dependencies"] if cut.name_of(one).startswith("windtunnel")]
    assert set(fleet["scripts"]).isdisjoint(simulator["scripts"])
    oracles = tomllib.loads(cut.pyproject_of("oracles"))["project"]
    assert oracles["version"] == windtunnel.__version__ and oracles["dependencies"] == [f"windtunnel=={windtunnel.__version__}"]
    assert simulator["optional-dependencies"]["oracles"] == [f"windtunnel-oracles=={windtunnel.__version__}"]


def test_a_readme_for_the_index_has_no_link_into_the_tree() -> None:
    text = "![a](docs/a.png) [b](docs/b.md#c) [d](https://example.org) [e](#f)"
    assert cut.readable_alone(text, "", "v1") == " b [d](https://example.org) [e](#f)"
    assert cut.readable_alone(text, "https://example.org/r", "v1").startswith(
        "![a](https://example.org/r/raw/v1/docs/a.png) [b](https://example.org/r/blob/v1/docs/b.md#c)"
    )


def test_the_citation_has_the_newest_version_of_the_changelog() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert (citation["version"], citation["date-released"]) == newest.groups()


def test_fragments_have_a_kind() -> None:
    kinds = {kind["directory"] for kind in cut.project()["tool"]["towncrier"]["type"]}
    assert kinds == {"breaking", "added", "changed", "fixed", "numbers"}
    for path in (ROOT / "changelog.d").glob("*.md"):
        assert path.name.split(".")[-2] in kinds, f"{path.name}: NAME.KIND.md, KIND one of {', '.join(sorted(kinds))}"


def test_a_stub_that_is_read_at_run_time_is_in_the_wheel_of_its_package() -> None:
    """lazy_loader reads `__init__.pyi` beside the `__init__.py` that attaches it."""
    attached = [path for path in PACKAGE.rglob("__init__.py") if "attach_stub(" in path.read_text(encoding="utf-8")]
    assert len(attached) > 5
    stubs = [f"src/windtunnel/{path.with_suffix('.pyi').relative_to(PACKAGE).as_posix()}" for path in attached]
    kept = set(cut.files_of("fleet", stubs))
    for path, stub in zip(attached, stubs, strict=True):
        package = f"src/windtunnel/{path.relative_to(PACKAGE).as_posix()}"
        assert (stub in kept) == (package in FLEET), stub
