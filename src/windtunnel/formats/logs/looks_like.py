"""Which tool wrote a log that is not read, from words that only it prints (`looks_like.toml`)."""

from __future__ import annotations

import re
from functools import cache

from windtunnel.base.files import table_beside

_LOOKED_AT = 65_536
"""Characters of a log that are searched."""


@cache
def _tools() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((tool, re.compile(pattern, re.MULTILINE)) for tool, pattern in table_beside(__file__)["tools"])


def tool_of(text: str) -> str:
    """The tool that a log looks like; empty text where none is told."""
    return next((tool for tool, pattern in _tools() if pattern.search(text[:_LOOKED_AT])), "")


def describe_log(text: str, lack: str) -> str:
    """What a log is, for an error: whose it looks like and what it lacks; else that it is not known, and how it begins."""
    if tool := tool_of(text):
        return f"a log that looks like {tool}'s, {lack}"
    begin = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"a log {lack}; it begins {begin[:60]!r}"
