"""Sends alarms and incidents to a webhook: a generic JSON, Slack's or PagerDuty's, from a thread that nobody waits for.

The URL is a secret: messages name its host only.
"""

from __future__ import annotations

import http.client
import json
import queue
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from windtunnel.base.dataclasses import asdict, dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.base.text import redact

if TYPE_CHECKING:
    from windtunnel.fleet.monitor import Alarm  # the launcher reads only the name of the variable, and needs no findings
    from windtunnel.records.incidents import Incident

VARIABLE = "WINDTUNNEL_FLEET_ALARM_WEBHOOK"
_SLACK, _PAGERDUTY = "hooks.slack.com", "events.pagerduty.com"
_TEXT = 3000


@dataclass(frozen=True)
class WebhookLimits:
    """How long a webhook is tried."""

    timeout: float = 10.0
    """Seconds of one request."""
    tries: int = 5
    first_wait: float = 1.0
    """Seconds before the second try; twice as many before each further one."""
    waiting: int = 100
    """Alarms that may wait; further ones are dropped, and told so."""
    close_seconds: float = 1.5
    """Longest wait for alarms that are not sent yet, when the monitor ends."""


@dataclass(frozen=True)
class _Event:
    """What is sent of an alarm or an incident."""

    kind: str
    """The verdict, or the class of the fault."""
    text: str
    hosts: tuple[str, ...]
    over: bool
    key: str
    """The same for the beginning and the end of one problem."""
    critical: bool
    told: dict[str, Any]
    """All of it, as plain data."""


def _event_of(alarm: Alarm) -> _Event:
    key = f"{alarm.verdict} {','.join(map(str, alarm.ranks))}"
    return _Event(str(alarm.verdict), alarm.text, alarm.hosts, alarm.cleared, key, alarm.verdict == "hang", alarm.as_dict())


def _redact_values(told: Any) -> Any:
    """Plain data whose texts hold no secrets."""
    if isinstance(told, dict):
        return {key: _redact_values(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [_redact_values(value) for value in told]
    return redact(told) if isinstance(told, str) else told


def webhook_address(url: str) -> SplitResult:
    """The parts of a webhook's URL. SpecError, which does not repeat the URL, for another address than http or https."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise SpecError("--alarm-webhook", "an address of another form", "https://HOST/PATH")
    return parts


class AlarmWebhook:
    """Sends alarms to `url` in order. SpecError for another address than http or https; afterwards no error is raised."""

    def __init__(
        self, url: str, run: str, limits: WebhookLimits | None = None,
        tell: Callable[[str], object] = lambda text: print(text, file=sys.stderr, flush=True),
    ) -> None:  # fmt: skip
        self._url = webhook_address(url)
        self._port = self._url.port
        self._run, self._limits, self._tell = run, limits or WebhookLimits(), tell
        self._queue: queue.Queue[_Event | None] = queue.Queue(self._limits.waiting)
        self.sent = self.dropped = 0
        self._thread = threading.Thread(target=self._send_all, name="alarm-webhook", daemon=True)
        self._thread.start()

    def offer(self, alarm: Alarm) -> None:
        """Queues an alarm; never waits."""
        self._offer(_event_of(alarm))

    def offer_incident(self, incident: Incident, over: bool) -> None:
        """Queues an incident of a kept job that opens, or that is over or has ended the job; never waits."""
        stopped = incident.outcome == "stopped"
        over = over and not stopped
        text = f"{incident.evidence}; the job has stopped" if stopped else incident.evidence
        critical = stopped or incident.outcome == "open"
        hosts = tuple(incident.node.split(",")) if incident.node else ()
        told = {
            "seconds": incident.seen, "verdict": incident.what, "ranks": list(incident.ranks), "cleared": over,
            "hosts": list(hosts), "incident": asdict(incident),
        }  # fmt: skip
        self._offer(_Event(incident.what, text, hosts, over, f"incident {incident.number}", critical, told))

    def _offer(self, event: _Event) -> None:
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._drop("too many alarms wait for it")

    def close(self) -> None:
        """Sends what is queued, for a limited time."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(self._limits.close_seconds)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self._tell(f"windtunnel fleet: an alarm was not sent to the webhook at {self._url.hostname}: {why}")

    def _send_all(self) -> None:
        while (event := self._queue.get()) is not None:
            body = json.dumps(self._body(replace(event, text=redact(event.text), told=_redact_values(event.told)))).encode()
            why = ""
            for number in range(self._limits.tries):
                if number:
                    time.sleep(self._limits.first_wait * 2 ** (number - 1))
                why = self._post(body)
                if not why:
                    self.sent += 1
                    break
            else:
                self._drop(f"{why}, {self._limits.tries} times")

    def _post(self, body: bytes) -> str:
        """Posts; what went wrong, or nothing."""
        host = self._url.hostname or ""
        kind = http.client.HTTPConnection if self._url.scheme == "http" else http.client.HTTPSConnection
        connection = kind(host, self._port, timeout=self._limits.timeout)
        path = self._url.path or "/"
        if self._url.query and host != _PAGERDUTY:
            path += f"?{self._url.query}"
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json", "User-Agent": "windtunnel-fleet"})
            status = connection.getresponse().status
        except ssl.SSLError as error:
            return f"TLS: {error.reason or type(error).__name__}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return type(error).__name__
        finally:
            connection.close()
        return "" if 200 <= status < 300 else f"status {status}"

    def _body(self, event: _Event) -> dict[str, Any]:
        state = "over: " if event.over else ""
        text = f"windtunnel {self._run}: {event.kind}: {state}{event.text}"[:_TEXT]
        if self._url.hostname == _SLACK:
            return {"text": text}
        if self._url.hostname == _PAGERDUTY:
            return {
                "routing_key": parse_qs(self._url.query).get("routing_key", [""])[0],
                "event_action": "resolve" if event.over else "trigger",
                "dedup_key": f"{self._run} {event.key}"[:255],
                "payload": {
                    "summary": text[:1024], "severity": "critical" if event.critical else "warning",
                    "source": ", ".join(event.hosts)[:1024] or self._run, "custom_details": event.told,
                },
            }  # fmt: skip
        return {**event.told, "text": text, "run": self._run, "state": "over" if event.over else "raised"}
