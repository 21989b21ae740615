"""Sessions of browsers, which cannot send a token with every link: a random number in a cookie stands for who signed in.

The cookie is for this service alone (SameSite=Strict), no script reads it, and it opens the page and reads answers; a question
over the API needs the token itself. Sessions live in memory: a restart ends them.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from windtunnel.service.web.tokens import Asker

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
