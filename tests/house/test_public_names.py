"""The one public door: its names, that each of them opens, and that opening it is quick."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import windtunnel as wt

NAMES = """
GPU Answer Cluster Dataset EngineError Fabric FileError FlowsResult Host Imported Job KernelRow Model Nic Node Plan PlanError
Prediction ReplicaClass Report Runtime ScaleUp Span SpecError StageMemory Traffic UnequalResult UnknownName WindtunnelError
Workload __version__ build check dump flows goodput import_job load load_cluster load_model match_gpu memory_of names predict schema
sweep validate
""".split()  # noqa: SIM905


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_names_are_these() -> None:
    assert sorted(wt.__all__) == sorted(NAMES)
    assert len(NAMES) <= 48
    assert dir(wt) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_opens(name: str) -> None:
    assert getattr(wt, name) is not None


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = wt.no_such_name  # type: ignore[attr-defined]


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import windtunnel, sys; print([m for m in ('numpy', 'pydantic', 'rich', 'typer') if m in sys.modules])"
    assert run(code) == "[]"


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
def test_predict_is_the_verb_whatever_came_first(first: str) -> None:
    for code in (f"import windtunnel as wt\n{first}", f"{first.replace('wt.Prediction', '')}\nimport windtunnel as wt"):
        assert run(f"{code}\nprint(type(wt.predict).__name__, wt.predict.__module__)") == "function windtunnel.api"


def test_the_room_behind_the_verb_opens() -> None:
    assert run("from windtunnel.predict.prediction import Prediction; print(Prediction.__name__)") == "Prediction"
    assert isinstance(sys.modules["windtunnel.predict"], ModuleType)


def test_names_mean_what_they_say() -> None:
    assert issubclass(wt.Answer, wt.Prediction)
    assert issubclass(wt.FileError, wt.SpecError) and issubclass(wt.SpecError, wt.WindtunnelError)
    with pytest.raises(wt.UnknownName):
        wt.load("no-such-job")
