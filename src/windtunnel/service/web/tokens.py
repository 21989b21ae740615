"""Tokens: names with roles, hashed at rest, compared in constant time.

A file of tokens has a line for each: `NAME ROLE SHA256 made=TIME expires=TIME`, the times in UTC and optional. A line
`NAME revoked SHA256 made=TIME` below it revokes it: lines are added, never changed. Tokens are 256 random bits, so that a plain
hash of one cannot be turned back. A server reads the file again when it has changed.

Sessions of browsers, which cannot send a token with every link: a random number in a cookie stands for who signed in.

The cookie is for this service alone (SameSite=Strict), no script reads it, and it opens the page and reads answers; a question
over the API needs the token itself. Sessions live in memory: a restart ends them.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import FileError, SpecError

ROLES = ("read", "write")
"""read: answers and jobs; write: questions too."""
REVOKED = "revoked"
_NAME = r"[A-Za-z0-9._@-]{1,40}"
_LINE = re.compile(rf"({_NAME})\s+(\w+)\s+([0-9a-f]{{64}})((?:\s+(?:made|expires)=\S+)*)")
_LOG = logging.getLogger("windtunnel.tokens")


@dataclass(frozen=True)
class Asker:
    """Who asks. `token`: hash of the token that they asked with, or ''."""

    name: str
    role: str
    token: str = field(default="", compare=False, repr=False)

    @property
    def may_write(self) -> bool:
        return self.role == "write"


LOCAL = Asker("local", "write")
"""Whoever asks a service of this machine that has no tokens."""


@dataclass(frozen=True)
class KnownToken:
    """A token as its file has it; times in seconds since 1970, None where the file has none."""

    asker: Asker
    made: float | None
    expires: float | None
    revoked: float | None = None

    def refusal(self, now: float) -> tuple[str, str] | None:
        """Kind and sentence of why it opens nothing; None while it does."""
        name = self.asker.name
        if self.revoked is not None:
            return "TokenRevoked", f"the token of {name} was revoked" + (f" on {time_text(self.revoked)}." if self.revoked else ".")
        if self.expires is not None and now >= self.expires:
            return "TokenExpired", f"the token of {name} expired on {time_text(self.expires)}."
        return None


class Tokens:
    """The tokens of a service. `lines`: as of its file; `path`: where to read them again when they have changed."""

    def __init__(
        self, lines: Sequence[str], source: str = "--token-file", path: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._path = clock, path
        self._known = _read_lines(lines, source)
        self._stamp = None if path is None else _stamp_of(path)

    def __len__(self) -> int:
        return len(self._known)

    def all_tokens(self) -> list[KnownToken]:
        """All of them, in the order of their file."""
        return list(self._known.values())

    def refresh(self) -> None:
        """Reads the file again if it has changed; one that cannot be read leaves what was known."""
        stamp = None if self._path is None else _stamp_of(self._path)
        if self._path is None or stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._known = read_tokens(self._path)._known
        except FileError as error:
            _LOG.error("the tokens stay as they were: %s", error)

    def refusal(self, asker: Asker) -> tuple[str, str] | None:
        """Kind and sentence of why the token that somebody came with opens nothing any more; None while it does."""
        known = self._known.get(asker.token)
        if known is None:
            return ("TokenNeeded", "the token is no longer known.") if asker.token else None
        return known.refusal(self._clock())

    def asker(self, authorization: bytes) -> Asker | None:
        """Who sends this header, whether or not their token is `refusal`; None for nobody that is known. Every token is compared,
        whichever it is."""
        scheme, _, token = authorization.partition(b" ")
        digest = hashlib.sha256(token.strip()).hexdigest()
        found = None
        for known, entry in self._known.items():
            if hmac.compare_digest(known, digest):
                found = entry.asker
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
    tokens = Tokens(lines, path=path)
    if not len(tokens):
        raise FileError(
            "--token-file", path, "a file with a token", f"Type: windtunnel serve --new-token me:write --token-file {path}."
        )
    return tokens


def add_token(path: str, wanted: str, days: float | None = None, clock: Callable[[], float] = time.time) -> str:
    """Makes a token for `NAME:ROLE`, which expires after so many days, adds its hash to the file and returns it. SpecError for
    another wish."""
    name, _, role = wanted.partition(":")
    role = role or "write"
    if not re.fullmatch(_NAME, name) or role not in ROLES:
        raise SpecError("--new-token", wanted, "NAME:read or NAME:write")
    token = f"wt_{secrets.token_urlsafe(32)}"
    made = clock()
    line = f"{name} {role} {hashlib.sha256(token.encode()).hexdigest()} made={_stamp_text(made)}"
    _add_line(path, line + (f" expires={_stamp_text(made + days * 86400.0)}" if days is not None else ""))
    return token


def revoke_tokens(path: str, wanted: str, clock: Callable[[], float] = time.time) -> int:
    """Revokes the tokens of a name, or the one whose hash begins so (8 digits or more); returns how many. SpecError where none is
    left to revoke."""
    live = [known.asker for known in read_tokens(path).all_tokens() if known.revoked is None]
    chosen = [asker for asker in live if asker.name == wanted or (len(wanted) >= 8 and asker.token.startswith(wanted))]
    if not chosen:
        names = ", ".join(dict.fromkeys(asker.name for asker in live)) or "none is left"
        raise SpecError("--revoke-token", wanted, f"a name, or the start of a hash, of a token that is not revoked: {names}")
    for asker in chosen:
        _add_line(path, f"{asker.name} {REVOKED} {asker.token} made={_stamp_text(clock())}")
    return len(chosen)


def list_tokens(tokens: Tokens, uses: Mapping[str, float]) -> str:
    """A line for each token: name, role, start of its hash, when it was made, last used and expires, and its state."""
    now, never = tokens._clock(), "-"
    rows = [("NAME", "ROLE", "HASH", "MADE", "LAST USED", "EXPIRES", "STATE")]
    for known in tokens.all_tokens():
        refusal = known.refusal(now)
        times = (known.made, uses.get(known.asker.token), known.expires)
        made, used, expires = (never if moment is None else time_text(moment) for moment in times)
        state = "valid" if refusal is None else refusal[0].removeprefix("Token").lower()
        rows.append((known.asker.name, known.asker.role, known.asker.token[:12], made, used, expires, state))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def time_text(moment: float) -> str:
    """A time in seconds since 1970, in words: `2026-11-28 18:00 UTC`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _read_lines(lines: Sequence[str], source: str) -> dict[str, KnownToken]:
    known: dict[str, KnownToken] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        moments = None if found is None else _moments(found[4])
        if found is None or moments is None or found[2] not in (*ROLES, REVOKED):
            raise FileError(
                source, f"line {number}", "lines NAME ROLE SHA256, with the role read or write",
                "`windtunnel serve --new-token NAME:ROLE --token-file FILE` adds one and prints its token.",
            )  # fmt: skip
        if found[2] != REVOKED:
            known[found[3]] = KnownToken(Asker(found[1], found[2], found[3]), moments.get("made"), moments.get("expires"))
        elif found[3] in known:
            known[found[3]] = replace(known[found[3]], revoked=moments.get("made", 0.0))
    return known


def _moments(text: str) -> dict[str, float] | None:
    try:
        pairs = [word.partition("=") for word in text.split()]
        return {name: datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() for name, _, value in pairs}
    except ValueError:
        return None


def _stamp_text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    """What of a file changes when it does."""
    try:
        told = os.stat(path)
    except OSError:
        return None
    return told.st_mtime_ns, told.st_size, told.st_ino


def _add_line(path: str, line: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise FileError("--token-file", path, "a file that can be written", f"{error.strerror}.") from error


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
