"""Python stacks of hanging processes, taken with py-spy where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

MOST = 4
"""Largest number of processes to inspect."""
PATIENCE = 20.0
"""Timeout of py-spy for one process, in seconds."""


def stacks_of(ranks: Sequence[int], pids: Mapping[int, int]) -> dict[str, str]:
    """Stacks, by rank, of those `ranks` whose processes are on this machine; empty without py-spy. Works on stopped processes
    too.
    """
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
