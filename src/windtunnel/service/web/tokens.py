"""Tokens: names with roles, hashed at rest, compared in constant time.

A file of tokens has a line for each: `NAME ROLE SHA256`. Tokens are 256 random bits, so that a plain hash of one cannot be
turned back.

Sessions of browsers, which cannot send a token with every link: a random number in a cookie stands for who signed in.

The cookie is for this service alone (SameSite=Strict), no script reads it, and it opens the page and reads answers; a question
over the API needs the token itself. Sessions live in memory: a restart ends them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from windtunnel.base.errors import FileError, SpecError

ROLES = ("read", "write")
"""read: answers and jobs; write: questions too."""
_LINE = re.compile(r"([A-Za-z0-9._@-]{1,40})\s+(\w+)\s+([0-9a-f]{64})")


@dataclass(frozen=True)
class Asker:
    """Who asks."""

    name: str
    role: str

    @property
    def may_write(self) -> bool:
        return self.role == "write"


LOCAL = Asker("local", "write")
"""Whoever asks a service of this machine that has no tokens."""


class Tokens:
    """The tokens of a service. `lines`: as of its file."""

    def __init__(self, lines: Sequence[str], source: str = "--token-file") -> None:
        self._known: list[tuple[bytes, Asker]] = []
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            found = _LINE.fullmatch(text)
            if found is None or found[2] not in ROLES:
                raise FileError(
                    source, f"line {number}", "lines NAME ROLE SHA256, with the role read or write",
                    "`windtunnel serve --new-token NAME:ROLE --token-file FILE` adds one and prints its token.",
                )  # fmt: skip
            self._known.append((found[3].encode(), Asker(found[1], found[2])))

    def __len__(self) -> int:
        return len(self._known)

    def asker(self, authorization: bytes) -> Asker | None:
        """Who sends this header; None for nobody that is known. Every token is compared, whichever it is."""
        scheme, _, token = authorization.partition(b" ")
        digest = hashlib.sha256(token.strip()).hexdigest().encode()
        found = None
        for known, asker in self._known:
            if hmac.compare_digest(known, digest):
                found = asker
        return found if scheme.lower() == b"bearer" else None


def read_tokens(path: str) -> Tokens:
    """The tokens of a file. FileError if it cannot be read, holds none, or may be changed by others."""
    try:
        told = os.stat(path)
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            "--token-file", path, "a file of tokens that can be read", str(getattr(error, "strerror", error))
        ) from error
    if told.st_mode & 0o022:
        raise FileError("--token-file", path, "a file that its owner alone may change", f"Type: chmod 600 {path}.")
    tokens = Tokens(lines)
    if not len(tokens):
        raise FileError(
            "--token-file", path, "a file with a token", f"Type: windtunnel serve --new-token me:write --token-file {path}."
        )
    return tokens


def add_token(path: str, wanted: str) -> str:
    """Makes a token for `NAME:ROLE`, adds its hash to the file and returns it. SpecError for another wish."""
    name, _, role = wanted.partition(":")
    role = role or "write"
    if not re.fullmatch(r"[A-Za-z0-9._@-]{1,40}", name) or role not in ROLES:
        raise SpecError("--new-token", wanted, "NAME:read or NAME:write")
    token = f"wt_{secrets.token_urlsafe(32)}"
    line = f"{name} {role} {hashlib.sha256(token.encode()).hexdigest()}\n"
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise FileError("--token-file", path, "a file that can be written", f"{error.strerror}.") from error
    return token


COOKIE = "windtunnel_session"
SECONDS, MOST = 12 * 3600.0, 10_000
"""How long a session lasts, and how many there are; the oldest go first."""


class BrowserSessions:
    """Who signed in, by the number in a cookie."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[Asker, float]] = OrderedDict()

    def open(self, asker: Asker) -> str:
        """A new session; returns what its cookie holds."""
        number = secrets.token_urlsafe(32)
        self._known[number] = (asker, self._clock() + SECONDS)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return number

    def close(self, header: bytes) -> None:
        """Ends the session of a Cookie header."""
        self._known.pop(_number_in(header), None)

    def asker(self, header: bytes) -> Asker | None:
        """Who the Cookie header of a request stands for; None for nobody, or where the session has ended."""
        number = _number_in(header)
        found = self._known.get(number)
        if found is None:
            return None
        if self._clock() > found[1]:
            del self._known[number]
            return None
        return found[0]


def _number_in(header: bytes) -> str:
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
