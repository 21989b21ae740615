"""The log of a service, on standard error: a line for each request and for whatever its libraries say, as text or as JSON.

No line has a query, a header or a body; what looks like a token, or a password in a URL, is left out of every line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from dataclasses import asdict
from urllib.parse import quote

from windtunnel.service.web.guard import HEALTH_PATHS, METRICS, SOCKET, STATIC, SeenRequest, without_secrets

FORMATS, LEVELS = ("text", "json"), ("debug", "info", "warning", "error")
ACCESS = logging.getLogger("windtunnel.access")
LEFT = 499
"""Status of a request whose client left before its response."""
_QUIET = (STATIC, SOCKET, *HEALTH_PATHS, METRICS)
"""Paths of the page's own parts and of probes: at the level debug."""
_CLOSED_TAB = re.compile(r"([Cc]lient\b|parent slot of).* has been deleted")


def set_up_log(form: str = "text", level: str = "info") -> None:
    """Sends the log to standard error. `form`: text or json; `level`: of the lines about requests. Libraries say their warnings, or
    their errors alone where `level` is error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(form == "json"))
    handler.addFilter(is_worth_a_line)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, _number(level)))
    ACCESS.setLevel(_number(level))


def log_request(seen: SeenRequest) -> None:
    """Writes the line of a request: refused ones as warnings, faults as errors, parts of the page and probes for debugging."""
    if (seen.path.startswith(_QUIET) and seen.status != 500) or seen.status == LEFT:  # a probe may be told 503 every second
        level = logging.DEBUG
    elif seen.status >= 500:
        level = logging.ERROR
    else:
        level = logging.WARNING if seen.status >= 400 else logging.INFO
    if ACCESS.isEnabledFor(level):
        path = quote(seen.path, safe="/…:@-._~")
        line = f"{seen.came_from or '-'} {seen.who} {seen.method} {path} {seen.status} {seen.seconds:.3f} s {seen.sent} bytes"
        ACCESS.log(level, line + (f" {seen.key}" if seen.key else ""), extra={"seen": seen})


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a record says more than that somebody closed a tab of the page while it was being filled."""
    said = str(record.exc_info[1]) if record.exc_info and record.exc_info[1] is not None else record.getMessage()
    return not (record.name.startswith("nicegui") and _CLOSED_TAB.search(said))


class LogFormatter(logging.Formatter):
    """A record as a line of text, or as an object of JSON with `time`, `level`, `logger`, and `message` or what was seen of a
    request."""

    def __init__(self, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._as_json = as_json

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # logging's own name
        """UTC, to the millisecond."""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        """The line, without secrets."""
        if not self._as_json:
            return without_secrets(super().format(record))
        said: dict[str, object] = {"time": self.formatTime(record), "level": record.levelname.lower(), "logger": record.name}
        seen = getattr(record, "seen", None)
        said |= {"message": record.getMessage()} if seen is None else {**asdict(seen), "seconds": round(seen.seconds, 6)}
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        if record.stack_info:
            said["stack"] = record.stack_info
        return without_secrets(json.dumps(said, ensure_ascii=False))


def _number(level: str) -> int:
    return {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}[level]
