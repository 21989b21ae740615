"""Writes the expected figures anew and prints what moved, for a fragment changelog.d/NAME.numbers.md.

python tests/golden/refresh.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

EXPECTED = Path(__file__).parent / "expected"


def main() -> int:
    """0 if anything could be written; stale files go away."""
    here = Path(__file__).resolve().parent
    sys.path[:0] = [str(here), str(here.parent), str(here.parents[1])]
    from cases import CASES, figures, file_of

    EXPECTED.mkdir(exist_ok=True)
    for stale in {path.name for path in EXPECTED.glob("*.json")} - {file_of(case) for case in CASES}:
        (EXPECTED / stale).unlink()
    for case in CASES:
        path = EXPECTED / file_of(case)
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        new = figures(case)
        path.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        was = old.get("step_time_s")
        if was is None:
            print(f"{case}: new, step time {new['step_time_s']:.6g} s")
        elif abs(was / new["step_time_s"] - 1) > 1e-6:
            print(f"{case}: step time {was:.6g} -> {new['step_time_s']:.6g} s ({new['step_time_s'] / was - 1:+.2%})")
        if old and max(old["memory_bytes"]) != max(new["memory_bytes"]):
            print(f"{case}: fullest GPU {max(old['memory_bytes']) / 2**30:.3f} -> {max(new['memory_bytes']) / 2**30:.3f} GiB")
    _refresh_answers()
    return 0


def _refresh_answers() -> None:
    """The answers of other verbs, a line each; prints what moved."""
    from answers import cases
    from test_golden import moved

    path = EXPECTED.parent / "expected_answers.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    new = {name: json.loads(json.dumps(figures())) for name, figures in cases().items()}
    for name, figures in new.items():
        for line in moved(old[name], figures)[:5] if name in old else ["new"]:
            print(f"{name}: {line}")
    path.write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in new.items()) + "\n}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
