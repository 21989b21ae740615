"""What choosing promises: a wish called impossible is impossible; one list of levers; first plans near the best."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    """A script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_wish_is_called_impossible_that_is_not() -> None:
    assert script("plan_wishes").check_wishes(3, 11, ("llama3-8b",), ("h100-ib",)) == []


def test_verbs_agree_on_levers_and_none_beats_the_winner() -> None:
    assert script("one_list_of_levers").check_jobs(2, 21) == []


def test_first_plans_are_near_the_best_of_their_framework() -> None:
    assert script("first_plans").check_plans(2, 31) == []
