"""Checkpoints of a few cases, measured now in a process of its own: `python -m windtunnel.profile.storage.again`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import EngineError
from windtunnel.profile.device import KEEPING
from windtunnel.profile.storage.pool import NoTimeLeftError, RankPool
from windtunnel.profile.storage.run import ROUNDS, SaveCase, StorageRows, measure_save

Seen = dict[str, list[float]]
"""Seconds by `write` and `read`."""


def saves_now(folder: str, cases: Sequence[SaveCase], allowed: float) -> list[Seen]:
    """Seconds of saves and loads of `cases` in `folder`, in turn, for at most `allowed` s; empty lists of what did not fit into the
    time. EngineError where the folder takes no file."""
    ends = time.monotonic() + allowed
    asked = json.dumps({"folder": folder, "cases": [[case.ranks, case.size] for case in cases], "ends": ends})
    source = str(Path(__file__).parents[3])
    environment = {**os.environ, **KEEPING, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        told, error = process.communicate(timeout=allowed)
    except subprocess.TimeoutExpired:
        process.kill()
        told, error = process.communicate()
    if process.returncode > 0:
        raise EngineError(f"{folder}: {error.strip()[-300:]}")
    seen: list[Seen] = [{"write": [], "read": []} for _ in cases]
    for line in told.splitlines(keepends=True):
        if line.endswith("\n"):
            place, write, read = json.loads(line)
            seen[place]["write"].append(write)
            seen[place]["read"].append(read)
    return seen


def main() -> int:
    """The process: a line for each execution."""
    import torch

    asked = json.loads(sys.argv[1])
    cases = [SaveCase(*case) for case in asked["cases"]]
    try:
        with RankPool(asked["folder"], max(case.ranks for case in cases), asked["ends"], torch) as pool:
            for turn in range(ROUNDS + 1):
                for place, case in enumerate(cases):
                    write, read = measure_save(pool, case, StorageRows(), staged=False)
                    if turn:  # a first file takes longer
                        print(json.dumps([place, write, read]), flush=True)
    except NoTimeLeftError:
        pass
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
