"""The command lines of watched jobs, and the alarms that were raised in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

RUN = "job"


def watched_command(folder: Path | str, command: Sequence[str], *options: str, run: str = RUN) -> list[str]:
    """`command` under `windtunnel fleet run`, with its records in FOLDER/RUN."""
    own = ["fleet", "run", "--dir", str(folder), "--run", run]
    return [sys.executable, "-m", "windtunnel", *own, *options, "--", *command]


def torchrun(ranks: int, *script: str) -> list[str]:
    """`script` in ranks of this machine."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *script]


def alarms_in(folder: Path | str, run: str = RUN) -> list[dict[str, Any]]:
    """Alarms of the run, oldest first."""
    alarms = []
    with suppress(OSError):
        for line in Path(folder, run, "alarms.jsonl").read_text().splitlines():
            with suppress(ValueError):  # being written
                alarms.append(json.loads(line))
    return alarms
