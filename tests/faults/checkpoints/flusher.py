"""The product's flush process with a fault in it: python -m tests.faults.checkpoints.flusher FAULT STEP WHOM PIDS RANK --
ARGUMENTS."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.faults.checkpoints.points import FLUSH, die, patch_disk, patch_flush
from windtunnel.fleet.checkpoint import flush


def main() -> int:
    at = sys.argv.index("--")
    fault, step, whom, pids, rank = sys.argv[1:at]
    with Path(pids).open("a") as file:
        file.write(f"{os.getpid()}\n")
    mine = sys.argv[at + 3]
    if fault in FLUSH and (mine == rank or rank == "any"):
        done = Path(pids).with_name("done")

        def act() -> None:
            if not done.exists():  # once a run, whichever process comes first
                done.touch()
                die(Path(pids), whom)

        patch_flush(fault, int(step), act)
    elif fault in ("eio", "slow"):
        patch_disk(fault, int(step))
    return flush.main(sys.argv[at + 1 :])


if __name__ == "__main__":
    sys.exit(main())
