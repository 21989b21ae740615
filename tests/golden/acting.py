"""Jobs with one field changed, whose numbers are watched: every switch, word and number of a plan, a runtime, a model and a machine
that moves a figure, on the first job that it moves (`acting.json`, which `python tests/golden/acting.py` finds anew)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from folding import digest

FOUND = Path(__file__).with_suffix(".json")
"""[place of a job in JOBS of tests/laws/test_fields_act.py, field, value]."""
SLOWEST = 0.1
"""Seconds of a prediction beyond which a job is left to others."""


def _laws() -> Any:
    folder = str(Path(__file__).parents[1] / "laws")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import test_fields_act

    return test_fields_act


def _changed(at: int, path: str, value: Any) -> Any:
    from windtunnel.spec import check

    laws = _laws()
    noun, _, name = path.rpartition(".")
    return check(laws._replaced(laws._job(at), noun.split("."), name, value))


def _figures(at: int, changes: list[tuple[str, Any]]) -> Any:
    import windtunnel as wt
    from windtunnel.workload import build

    answers = []
    for path, value in changes:
        job = _changed(at, path, value)
        p = wt.predict(job)
        columns = [np.asarray(one).ravel() for one in vars(build(job).ops).values() if isinstance(one, np.ndarray)]
        names = {span.name for span in p.timeline}
        answers.append(
            [p.step_time_s, p.breakdown, p.overlapped, p.memory, p.error_of_parts, p.provenance, p.init_time_s, p.power_w]
        )
        answers.append([p.energy_parts, p.cost_parts, len(p.assumptions), len(p.warnings), len(names), columns])
    return digest(answers, 60)


def acting_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    by_job: dict[int, list[tuple[str, Any]]] = {}
    for at, path, value in json.loads(FOUND.read_text(encoding="utf-8")):
        by_job.setdefault(at, []).append((path, value))
    return {
        f"fields of job {at} from {first}": partial(_figures, at, changes[first : first + 12])
        for at, changes in sorted(by_job.items())
        for first in range(0, len(changes), 12)
    }


def find(most: int = 4) -> None:
    """Writes `FOUND`: of each field at most `most` values."""
    from windtunnel.base.errors import WindtunnelError

    laws, quick = _laws(), []
    for at in range(len(laws.JOBS)):
        laws._figures(laws._job(at))
        begin = time.process_time()
        laws._figures.__wrapped__(laws._job(at))
        quick += [at] if time.process_time() - begin < SLOWEST else []
    rows: list[Any] = []
    for path in sorted(set(laws._fields()) - set(laws.FOR_OTHER_ANSWERS)):
        noun, _, name = path.rpartition(".")
        told: list[Any] = []
        for at in quick:
            owner: Any = laws._job(at)
            for part in noun.split("."):
                owner = getattr(owner, part, None)
            if owner is None:
                continue
            now = getattr(owner, name)
            for value in laws._values(laws.NOUNS[noun], name, now)[:6]:
                nothing = noun.startswith("cluster") and value == 0  # no machine has that
                if (
                    value == now
                    or nothing
                    or any(value == one for one in told)
                    or len(told) >= (most if isinstance(value, str) else 2)
                ):
                    continue
                try:
                    if laws._figures.__wrapped__(_changed(at, path, value)) != laws._figures(laws._job(at)):
                        told.append(value)
                        rows.append([at, path, value])
                except (WindtunnelError, ValueError, ArithmeticError):
                    continue
    FOUND.write_text("[\n" + ",\n".join(map(json.dumps, sorted(rows, key=lambda row: (row[0], row[1], str(row[2]))))) + "\n]\n")


if __name__ == "__main__":
    find()
