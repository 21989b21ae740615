"""Commands that an agent refuses from anyone: of stale drivers, with folders outside of the job's, or with malformed argument
lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from windtunnel.fleet.wire.messages import Command, RunTest, StartRanks

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEST = re.compile(r"[a-z][a-z0-9-]*")
_FORBIDDEN = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")


def is_inside(path: str, folders: Iterable[str]) -> bool:
    """Whether `path`, with links resolved, is one of `folders` or inside one."""
    if not path or "\0" in path or not Path(path).is_absolute():
        return False
    real = Path(path).resolve()
    return any(real.is_relative_to(Path(folder).resolve()) for folder in folders if folder)


def refusal(command: Command, highest: int, folders: Iterable[str]) -> str:
    """Why an agent that has seen the fencing number `highest` refuses a command; empty if it accepts it."""
    if command.fence < highest:
        return f"a stale driver: its number is {command.fence}, and {highest} has been seen"
    if isinstance(command, StartRanks):
        return _start_refusal(command, tuple(folders))
    if isinstance(command, RunTest) and not _TEST.fullmatch(command.name):
        return f"no name of a self-test: {command.name[:80]!r}"
    return ""


def _start_refusal(command: StartRanks, folders: tuple[str, ...]) -> str:
    if not command.argv or any("\0" in word for word in command.argv) or not command.argv[0]:
        return "a command that is no list of words"
    if not is_inside(command.folder, folders):
        return f"a folder that is not the job's: {command.folder[:200]!r}"
    if command.checkpoint and not is_inside(command.checkpoint, folders):
        return f"a checkpoint folder that is not the job's: {command.checkpoint[:200]!r}"
    if not 0 <= command.first < command.first + command.count <= command.world:
        return f"ranks {command.first} … {command.first + command.count - 1} of {command.world}"
    if any(not command.first <= rank < command.first + command.count for rank in command.only):
        return f"ranks {command.only[:4]} of another node"
    for name, value in command.variables.items():
        if not _VARIABLE.fullmatch(name) or name in _FORBIDDEN or "\0" in value:
            return f"a variable that is not passed on: {name[:80]!r}"
    return ""
