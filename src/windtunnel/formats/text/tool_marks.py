"""Whose configuration, log, script or command a text is, by marks of it (tool_marks.toml): for files that no reader takes."""

from __future__ import annotations

import re
from functools import cache

from windtunnel.base.files import table_beside

TYPED = "windtunnel predict MODEL --on CLUSTER --set cluster.gpus=N --set plan.micro_batch=N --set plan.seq=N"
"""How a job is stated without a file."""
_LONGEST = 64 * 1024
"""Characters in which marks are looked for: of a log, its begin."""


@cache
def _tools() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Tools with one pattern of all their marks, in the order of the table."""
    return tuple((name, re.compile("|".join(marks), re.MULTILINE)) for name, marks in table_beside(__file__)["tools"].items())


def tool_of_text(text: str) -> str:
    """The tool whose text it is; "" where no mark fits."""
    head = text[:_LONGEST]
    return next((name for name, marks in _tools() if marks.search(head)), "")


def hint_of_text(text: str, typed: str = TYPED) -> str:
    """What is said of a text that is not read: which tool it looks like, and what to type instead."""
    tool = tool_of_text(text)
    whose = f"It looks like {tool}'s, in a form that is not read." if tool else "Whose file it is is not known."
    return f"{whose} Say the job by fields: {typed}."
