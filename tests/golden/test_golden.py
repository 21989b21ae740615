"""Did any example's number move? If it was meant to, say so: run the refresh script and note it in changelog.d/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, figures, file_of

HERE = Path(__file__).parent
TOLERANCE = 1e-6


def moved(old: Any, new: Any, path: str = "") -> list[str]:
    """Lines for every number that differs by more than TOLERANCE, and for every key that came or went."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted(old.keys() | new.keys())
            for line in moved(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for i, (a, b) in enumerate(zip(old, new, strict=True)) for line in moved(a, b, f"{path}[{i}]")]
    if isinstance(old, (int, float)) and isinstance(new, (int, float)) and new == pytest.approx(old, rel=TOLERANCE, abs=1e-12):
        return []
    if old == new:
        return []  # names, and no figure where there is no price
    change = f" ({new / old - 1:+.3%})" if isinstance(old, float) and isinstance(new, float) and old else ""
    return [f"{path}: {old} -> {new}{change}"]


@pytest.mark.parametrize("case", CASES)
def test_numbers_have_not_moved(case: str) -> None:
    path = HERE / "expected" / file_of(case)
    assert path.exists(), f"{case} has no expected figures: run `python tests/golden/refresh.py`"
    lines = moved(json.loads(path.read_text(encoding="utf-8")), figures(case))
    assert not lines, "\n".join(
        [
            f"{case}: {len(lines)} numbers moved.",
            *lines[:20],
            "",
            "If that is what the change is for: run `python tests/golden/refresh.py`, read its output, and note step times under",
            "a fragment changelog.d/NAME.numbers.md, with the reason. If not, the change broke something.",
        ]
    )


def test_no_file_is_left_behind() -> None:
    assert {path.name for path in (HERE / "expected").glob("*.json")} == {file_of(case) for case in CASES}


def test_a_moved_number_is_seen() -> None:
    assert moved({"a": 1.0, "b": [1.0, 2.0]}, {"a": 1.0 + 1e-9, "b": [1.0, 2.0 + 1e-5]}) == ["b[1]: 2.0 -> 2.00001 (+0.001%)"]
    assert moved({"a": 1.0}, {}) == ["a: 1.0 -> None"]
    assert moved([1.0], [1.0, 2.0])
    assert moved({"cost": None}, {"cost": None}) == []
    assert moved({"cost": None}, {"cost": 2.0}) == ["cost: None -> 2.0"]
    assert moved({"fits": True}, {"fits": False}) == ["fits: True -> False"]


def test_figures_do_not_depend_on_the_process() -> None:
    """Hash seeds differ between processes; answers may not."""
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import json, cases; print(json.dumps(cases.figures('gpt3-175b-64')))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
