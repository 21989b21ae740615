"""What is known of a request when it has its response."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SECRET = re.compile(r"wt_[A-Za-z0-9_-]{16,}|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)|(?<=[Bb]earer )\S+")


@dataclass(frozen=True)
class SeenRequest:
    """A request and its response. `who`: name of its token; `came_from`: address; `path`: without the query, which may have
    secrets; `status`: 101 for a WebSocket, 499 where the client left first; `sent`: bytes of the response; `key`: of its
    question, or ''."""

    who: str
    method: str
    path: str
    came_from: str
    status: int
    seconds: float
    sent: int
    key: str
    is_stream: bool


def without_secrets(text: str) -> str:
    """The text without tokens, and without passwords in URLs."""
    return _SECRET.sub("…", text)
