"""Services, forked from one process that has imported them once: started by `served.ServedProcess`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked_ranks import serve as serve_forks

import windtunnel.service.page.app
import windtunnel.service.serve
import windtunnel.service.store.database
import windtunnel.service.web.api  # noqa: F401
from windtunnel.cli import main


def command(words: list[str], environment: dict[str, str], log: str) -> None:
    """A command line of `windtunnel`, with its errors in a file."""
    os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644), 2)
    os.environ.clear()
    os.environ.update(environment)
    if code := main(words):
        sys.exit(code)


if __name__ == "__main__":
    serve_forks({"command": command})
