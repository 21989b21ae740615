"""What a process that hangs was doing: its Python stacks by py-spy, where that is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

MOST = 4
"""Processes that are asked."""
PATIENCE = 20.0
"""Seconds that py-spy may take for one process."""


def stacks_of(ranks: Sequence[int], pids: Mapping[int, int]) -> dict[str, str]:
    """Stacks of the culprits whose processes are on this machine, by rank; empty without py-spy. A stopped process can be read
    too."""
    program = shutil.which("py-spy")
    stacks = {}
    for rank in ranks[:MOST]:
        if program is None or rank not in pids:
            continue
        try:
            dump = subprocess.run(
                [program, "dump", "--nonblocking", "--pid", str(pids[rank])],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if dump.returncode == 0:
            stacks[str(rank)] = dump.stdout
    return stacks
