"""The one public door: its names, that each of them opens, and that opening it is quick."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from inspect import isfunction, signature
from pathlib import Path
from types import ModuleType

import pytest

import windtunnel as wt
from tests.helpers.kept_python import KeptPython

TORCH = {
    "Checkpointer", "PerRank", "RandomState", "ProcessMesh", "init_mesh", "open_store", "StorePlace", "export_weights",
    "RecoveryError", "train_through_faults",
}  # fmt: skip
"""Names of `windtunnel.fleet` that need torch."""
VERBS_AND_ROOMS = ("calibrate", "goodput", "memory", "predict", "replay", "search")
"""Functions that have the name of a room."""


def stub_of(package: ModuleType) -> dict[str, str]:
    """Public name -> module, as a package's stub lists them."""
    text = Path(str(package.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, f"{alias.name}: lazy_loader publishes the name that the module has"
                assert alias.name not in found, f"{alias.name} stands twice"
                found[alias.name] = node.module or ""
    return found


PACKAGES = [wt, wt.fleet, wt.measure, wt.profile, wt.runs]
NAMES = sorted(stub_of(wt))


Run = Callable[[str], str]
"""Code → what it prints, in a process that has imported nothing of the package."""


def answers_of(kept: KeptPython) -> Run:
    def run(code: str) -> str:
        done = kept.ran(code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture(scope="module")
def bare() -> Iterator[Run]:
    """In a process that has imported nothing."""
    with KeptPython() as kept:
        yield answers_of(kept)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """In one that has the packages of others, which the rooms import."""
    with KeptPython(["numpy", "pydantic", "pydantic.plugin._loader", "importlib.metadata"]) as kept:
        yield answers_of(kept)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_stub_is_the_list_of_names(package: ModuleType) -> None:
    own = {"__version__"} if package is wt else set()
    assert set(package.__all__) == set(stub_of(package)) | own
    assert set(dir(package)) >= set(package.__all__) - own


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_name_opens_and_is_documented(package: ModuleType) -> None:
    for name in stub_of(package):
        if name in TORCH and find_spec("torch") is None:
            continue
        found = getattr(package, name)
        text = found.__dict__.get("__doc__") if isinstance(found, type) else found.__doc__
        assert text and not text.startswith(f"{name}("), f"{package.__name__}.{name} has no docstring"


def test_functions_are_typed() -> None:
    for name in NAMES:
        found = getattr(wt, name)
        if isfunction(found) and found.__module__.startswith("windtunnel.api"):
            wanted = signature(found).parameters
            assert {*wanted, "return"} <= set(found.__annotations__), name


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = wt.no_such_name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "package", ["windtunnel", *(f"windtunnel.{name}" for name in ("fleet", "measure", "profile", "runs", "fit"))]
)
def test_importing_it_imports_nothing_heavy(package: str, bare: Run) -> None:
    heavy = ("numpy", "pydantic", "rich", "typer", "torch", "windtunnel.spec", "windtunnel.records")
    assert bare(f"import {package}, sys; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_a_training_script_gets_the_monitor_without_the_simulator(bare: Run) -> None:
    heavy = ("pydantic", "rich", "typer", "scipy", "windtunnel.spec", "windtunnel.workload")
    code = f"from windtunnel.fleet import watch, SharedLoader; import sys; print([m for m in {heavy} if m in sys.modules])"
    assert bare(code) == "[]"
    assert (
        bare("from windtunnel.fleet.watch import start; from windtunnel.fleet import watch; print(watch.start is start)") == "True"
    )


@pytest.mark.parametrize("name", VERBS_AND_ROOMS)
@pytest.mark.parametrize("first", ["import windtunnel.{0}", "from windtunnel.{0} import *", "getattr(wt, '{0}')", ""])
def test_the_function_stays_when_its_room_is_imported(name: str, first: str, run: Run) -> None:
    code = f"import windtunnel as wt\n{first.format(name)}\nimport windtunnel.{name}, sys\n"
    code += (
        f"from types import ModuleType\nprint(type(wt.{name}).__name__, isinstance(sys.modules['windtunnel.{name}'], ModuleType))"
    )
    assert run(code) == "function True"


FUNCTIONS_BY_FILES_NAME = (("memory", "over_time"), ("workload", "build"), ("compute", "estimate"))


@pytest.mark.parametrize(("room", "name"), FUNCTIONS_BY_FILES_NAME)
def test_a_function_stays_when_the_file_of_its_name_is_imported(room: str, name: str, run: Run) -> None:
    for first in (f"import windtunnel.{room}.{name}", f"from windtunnel.{room} import {name}", ""):
        assert run(f"{first}\nfrom windtunnel.{room} import {name}\nprint(type({name}).__name__)") == "function"


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import windtunnel.predict.prediction",
        "from windtunnel.predict import prediction",
        "from windtunnel.predict.step import predict",
        "wt.Prediction",
    ],
)
def test_predict_is_the_verb_whatever_came_first(first: str, run: Run) -> None:
    for code in (f"import windtunnel as wt\n{first}", f"{first.replace('wt.Prediction', '')}\nimport windtunnel as wt"):
        assert run(f"{code}\nprint(type(wt.predict).__name__, wt.predict.__module__)") == "function windtunnel.api.step"


def test_the_room_behind_the_verb_opens(run: Run) -> None:
    code = (
        "import sys; from windtunnel.predict.prediction import Prediction; print(type(sys.modules['windtunnel.predict']).__name__)"
    )
    assert run(code) == "module"


def test_names_mean_what_they_say() -> None:
    assert issubclass(wt.Answer, wt.Prediction)
    assert issubclass(wt.FileError, wt.SpecError) and issubclass(wt.SpecError, wt.WindtunnelError)
    with pytest.raises(wt.UnknownName):
        wt.load("no-such-job")
