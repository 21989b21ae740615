"""Alarms to a webhook: they come, nobody waits for them, and the secrets of the address are never printed."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from windtunnel.base.errors import SpecError
from windtunnel.cli import app
from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.incident_log import IncidentLog
from windtunnel.fleet.driver.plan import JobState
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.launch.command import environment
from windtunnel.fleet.launch.webhook import VARIABLE, AlarmWebhook, WebhookLimits, _event_of, webhook_address
from windtunnel.fleet.monitor import Alarm

ALARM = Alarm(1_700_000_000.0, Verdict.HANG, (2, 3), ("a", "b"), "rank 2 is stopped")
SECRET = "T0PSECRET"
QUICK = WebhookLimits(timeout=5.0, tries=3, first_wait=0.01)


@contextmanager
def receiving(statuses: list[int]) -> Iterator[tuple[int, list[tuple[str, Any]]]]:
    """A receiver that answers with these statuses, then 200; its port, and the paths and bodies that came."""
    came: list[tuple[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(statuses.pop(0) if statuses else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def until(holds: Any) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_alarm_comes_once_though_the_receiver_fails_at_first() -> None:
    said: list[str] = []
    with receiving([500, 429]) as (port, came):
        hook = AlarmWebhook(f"http://127.0.0.1:{port}/in?key={SECRET}", "job", QUICK, said.append)
        hook.offer(ALARM)
        until(lambda: hook.sent == 1)
        hook.close()
    assert len(came) == 3 and came[0] == came[2] and came[0][0] == f"/in?key={SECRET}" and said == []
    body = came[0][1]
    assert body["text"] == "windtunnel job: hang: rank 2 is stopped" and body["state"] == "raised"
    assert (body["run"], body["verdict"], body["ranks"], body["hosts"]) == ("job", "hang", [2, 3], ["a", "b"])


def test_an_alarm_that_cannot_be_sent_is_told_without_the_secret() -> None:
    said: list[str] = []
    with receiving([500] * 9) as (port, came):
        hook = AlarmWebhook(f"http://user:{SECRET}@127.0.0.1:{port}/{SECRET}?key={SECRET}", "job", QUICK, said.append)
        hook.offer(ALARM)
        until(lambda: hook.dropped == 1)
        hook.close()
    assert len(came) == QUICK.tries and len(said) == 1 and "127.0.0.1: status 500, 3 times" in said[0]
    nobody = AlarmWebhook(f"https://127.0.0.1:1/{SECRET}", "job", QUICK, said.append)
    nobody.offer(ALARM)
    until(lambda: nobody.dropped == 1)
    nobody.close()
    assert "ConnectionRefusedError" in said[1] and SECRET not in " ".join(said)


def test_a_receiver_that_never_answers_holds_nobody_up() -> None:
    import socket

    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        limits = WebhookLimits(timeout=600.0, waiting=2, close_seconds=0.1)
        hook = AlarmWebhook(f"http://127.0.0.1:{silent.getsockname()[1]}/", "job", limits, said.append)
        began = time.monotonic()
        for _ in range(50):
            hook.offer(ALARM)
        hook.close()
        assert time.monotonic() - began < 60 and hook.dropped >= 47 and "too many alarms" in said[0]


def test_slack_and_pagerduty_get_what_they_take() -> None:
    slack = AlarmWebhook(f"https://hooks.slack.com/services/{SECRET}", "job")
    assert slack._body(_event_of(ALARM)) == {"text": "windtunnel job: hang: rank 2 is stopped"}
    pager = AlarmWebhook(f"https://events.pagerduty.com/v2/enqueue?routing_key={SECRET}", "job")
    raised, over = (pager._body(_event_of(one)) for one in (ALARM, Alarm(1.0, Verdict.HANG, (2, 3), (), "gone", cleared=True)))
    assert raised["routing_key"] == SECRET and (raised["event_action"], over["event_action"]) == ("trigger", "resolve")
    assert raised["dedup_key"] == over["dedup_key"] and over["payload"]["source"] == "job"
    assert raised["payload"]["severity"] == "critical" and SECRET not in json.dumps(raised["payload"])
    slack.close()
    pager.close()


@pytest.mark.parametrize(
    "url", ["", "hooks.slack.com/x", f"ftp://host/{SECRET}", "https://", f"http://host:{SECRET}/", "http://[x/"]
)
def test_other_addresses_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SpecError, match="alarm-webhook") as told:
        webhook_address(url)
    assert SECRET not in str(told.value)


def test_the_ranks_of_a_job_do_not_get_the_address(tmp_path: Any) -> None:
    given = environment(tmp_path, "job", base={"WINDTUNNEL_FLEET_ALARM_WEBHOOK": SECRET, "HOME": "/"})
    assert SECRET not in str(given) and given["HOME"] == "/"


def test_incidents_of_a_kept_job_come_as_they_open_and_as_they_end(tmp_path: Path) -> None:
    with receiving([]) as (port, came):
        hook = AlarmWebhook(f"http://127.0.0.1:{port}/", "job", QUICK)
        log = IncidentLog(tmp_path, "job", JobState(nodes=["node0"]), hook.offer_incident)
        log.open(DetectedFault("crash", ("node0",), (1, 3), "SIGKILL", 10.0, 11.0))
        log.close("recovered")
        log.open(DetectedFault("slow", ("node0",), (), "a step takes 3 s", 12.0, 12.0))
        log.close_last("ignored")  # the driver did nothing: it is not over
        log.note("gpu", "node0", "XID 79", 13.0)
        for text in ("step 20 failed", "steps 20 and 40 failed"):
            log.record_failed_saves(text, 14.0)
        log.close_failed_saves("step 60 was kept again")
        log.open(DetectedFault("crash", ("node0",), (2,), "exit 1", 15.0, 15.5))
        log.close("stopped")
        until(lambda: hook.sent == 8)
        hook.close()
    bodies = [body for _, body in came]
    assert [(body["verdict"], body["state"]) for body in bodies] == [
        ("crash", "raised"), ("crash", "over"), ("slow", "raised"), ("gpu", "raised"), ("checkpoint", "raised"),
        ("checkpoint", "over"), ("crash", "raised"), ("crash", "raised"),
    ]  # fmt: skip
    assert bodies[0]["text"] == "windtunnel job: crash: SIGKILL" and bodies[-1]["text"].endswith("exit 1; the job has stopped")
    assert (bodies[0]["ranks"], bodies[0]["hosts"], bodies[1]["incident"]["outcome"]) == ([1, 3], ["node0"], "recovered")
    assert [body["incident"]["number"] for body in bodies] == [1, 1, 2, 3, 4, 4, 5, 5]


def test_an_incident_of_a_kept_job_is_one_event_of_pagerduty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(AlarmWebhook, "_post", lambda self, body: sent.append(json.loads(body)) or "")
    hook = AlarmWebhook("https://events.pagerduty.com/v2/enqueue?routing_key=R", "job", QUICK)
    log = IncidentLog(tmp_path, "job", JobState(nodes=["node0"]), hook.offer_incident)
    log.open(DetectedFault("hang", ("node0",), (1,), "stopped", 10.0, 11.0))
    log.close("recovered")
    hook.close()
    until(lambda: hook.sent == 2)
    assert [(one["event_action"], one["dedup_key"]) for one in sent] == [
        ("trigger", "job incident 1"),
        ("resolve", "job incident 1"),
    ]
    assert sent[0]["payload"]["severity"] == "critical" and sent[0]["payload"]["source"] == "node0"


def test_a_kept_job_that_stops_is_told_and_its_ranks_do_not_get_the_address(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(f"import os, sys\nsys.exit(9 if {VARIABLE!r} in os.environ else 5)\n")
    with receiving([]) as (port, came):
        ran = subprocess.run(
            [sys.executable, "-m", "windtunnel", "fleet", "run", "--dir", str(tmp_path / "out"), "--run", "job", "--nodes", "1",
             "--retries", "0", "--", sys.executable, str(script)],
            env={**os.environ, VARIABLE: f"http://127.0.0.1:{port}/{SECRET}"}, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
    assert ran.returncode != 0 and SECRET not in ran.stdout + ran.stderr
    bodies = [body for path, body in came if path == f"/{SECRET}"]
    assert [body["state"] for body in bodies] == ["raised", "raised"] and {body["run"] for body in bodies} == {"job"}, ran.stderr
    assert "rank.py:2" in bodies[0]["text"], "the script's line, not one of the monitor's"
    assert bodies[1]["text"].endswith("the job has stopped") and "5" in bodies[0]["text"] and "9" not in bodies[0]["text"]
    kept = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert kept and not any(SECRET.encode() in raw for raw in kept)
    wrong = CliRunner().invoke(
        app, ["fleet", "run", "--dir", str(tmp_path / "bad"), "--nodes", "1", "--alarm-webhook", f"x:{SECRET}", "--", "true"]
    )  # noqa: E501
    assert wrong.exit_code == 2 or isinstance(wrong.exception, SpecError)
    assert SECRET not in wrong.output
