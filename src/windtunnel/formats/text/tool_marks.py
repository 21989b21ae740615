"""Whose configuration, log, script or command a text is, by words of it (tool_marks.toml): for files that no reader takes."""

from __future__ import annotations

import re
from functools import cache

from windtunnel.base.files import table_beside

TYPED = "windtunnel predict MODEL --on CLUSTER --set cluster.gpus=N --set plan.micro_batch=N --set plan.seq=N"
"""How a job is stated without a file."""
_LONGEST = 64 * 1024
"""Characters in which words are looked for: of a log, its begin."""


@cache
def _tools(kinds: tuple[str, ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Tools with one pattern of all their words of some kinds, "marks" or "printed", in the order of the table."""
    table = {name: [word for kind in kinds for word in said.get(kind, ())] for name, said in table_beside(__file__).items()}
    return tuple((name, re.compile("|".join(words), re.MULTILINE)) for name, words in table.items() if words)


def tool_of_text(text: str, printed: bool = False) -> str:
    """The tool whose text it is; "" where no word fits. `printed`: of a log, for which words count that logs alone have."""
    head = text[:_LONGEST]
    kinds = ("marks", "printed") if printed else ("marks",)
    return next((name for name, words in _tools(kinds) if words.search(head)), "")


def hint_of_text(text: str, typed: str = TYPED) -> str:
    """What is said of a text that is not read: which tool it looks like, and what to type instead."""
    tool = tool_of_text(text)
    whose = f"It looks like {tool}'s, in a form that is not read." if tool else "Whose file it is is not known."
    return f"{whose} Say the job by fields: {typed}."


def describe_log(text: str, lack: str) -> str:
    """What a log is, for an error: whose it looks like and what it lacks; else that it is not known, and how it begins."""
    if tool := tool_of_text(text, printed=True):
        return f"a log that looks like {tool}'s, {lack}"
    begin = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"a log {lack}; it begins {begin[:60]!r}"
