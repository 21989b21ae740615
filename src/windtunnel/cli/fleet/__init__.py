"""`windtunnel fleet`: the group of verbs for jobs that run."""

from __future__ import annotations

import sys


def main() -> int:
    """The command `windtunnel-fleet`: `windtunnel fleet`, where the wheel of that name is installed alone."""
    from windtunnel.cli import main as run

    return run(["fleet", *sys.argv[1:]])
