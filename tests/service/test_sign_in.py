"""Browsers sign in with a token: a cookie opens the page and reads answers, and never asks over the API."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.service.served import PATIENCE, ServedProcess
from windtunnel.service.web.tokens import COOKIE, MOST, SECONDS, Asker, BrowserSessions

pytest.importorskip("nicegui")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    folder = tmp_path_factory.mktemp("sign_in")
    file = folder / "tokens"
    new = [sys.executable, "-m", "windtunnel", "serve", "--new-token", "ann:read", "--token-file", str(file)]
    token = subprocess.run(new, capture_output=True, text=True, check=True).stdout.strip()
    with ServedProcess(folder / "data", ["--token-file", str(file), "--per-minute", "1000000"], token=token) as served:
        yield served.ready()


def send(
    service: ServedProcess, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    """One request without the token, whose redirects are not followed."""
    talk = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    talk.request(method, path, body, {"Accept": "text/html", **named})
    answer = talk.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    talk.close()
    return found


def enter(service: ServedProcess, token: str) -> tuple[int, dict[str, str], str]:
    form = "application/x-www-form-urlencoded"
    return send(service, "POST", "/ui/sign-in", urlencode({"token": token}), Content_Type=form)


def test_without_a_session_the_page_is_the_form(service: ServedProcess) -> None:
    for path in ("/", "/ui", "/ui/", "/ui/compose", "/ui/answer?key=x"):
        status, headers, _ = send(service, "GET", path)
        assert (status, headers["location"]) == (303, "/ui/sign-in"), path
    assert send(service, "GET", "/api/v1/jobs")[0] == 401
    assert send(service, "GET", "/ui/_nicegui_ws/socket.io/?EIO=4&transport=polling", Accept="*/*")[0] == 401
    assert send(service, "GET", "/ui/shown/" + "0" * 64 + "/html", Accept="*/*")[0] == 401


def test_a_wrong_token_opens_nothing(service: ServedProcess) -> None:
    status, headers, text = enter(service, "wt_<script>")
    assert status == 401 and "set-cookie" not in headers and "<script" not in text
    assert enter(service, "x" * 10_000)[0] == 413


def test_a_form_of_another_origin_signs_nobody_in(service: ServedProcess) -> None:
    body, form = urlencode({"token": str(service.token)}), "application/x-www-form-urlencoded"
    for origin in ("null", "http://other.example", f"http://other.example:{service.port}"):
        status, headers, _ = send(service, "POST", "/ui/sign-in", body, Content_Type=form, Origin=origin)
        assert status == 403 and "set-cookie" not in headers, origin
    assert send(service, "GET", "/ui/sign-in")[1]["referrer-policy"] == "same-origin"
    assert send(service, "POST", "/ui/sign-in", body, Content_Type=form, Origin=f"http://127.0.0.1:{service.port}")[0] == 303


def test_a_session_reads_and_may_not_ask(service: ServedProcess) -> None:
    status, headers, _ = enter(service, str(service.token))
    assert (status, headers["location"]) == (303, "/ui/compose")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    held = re.match(rf"{COOKIE}=[^;]+", cookie)
    assert held is not None
    assert send(service, "GET", "/ui/compose", Cookie=held[0])[0] == 200
    assert send(service, "GET", "/api/v1/jobs", Cookie=held[0])[0] == 200
    assert send(service, "POST", "/api/v1/predict", "{}", Cookie=held[0], Content_Type="application/json")[0] == 401
    assert send(service, "POST", "/ui/sign-out", "", Cookie=held[0], Origin="http://elsewhere.example")[0] == 403
    assert send(service, "POST", "/ui/sign-out", "", Cookie=held[0])[0] == 303
    assert send(service, "GET", "/api/v1/jobs", Cookie=held[0])[0] == 401


def test_another_site_cannot_talk_to_the_page(service: ServedProcess) -> None:
    cookie = enter(service, service.token or "")[1]["set-cookie"].partition(";")[0]
    socket = "/ui/_nicegui_ws/socket.io/?EIO=4&transport="
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13",
               "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
    own, other = f"http://127.0.0.1:{service.port}", "http://other.example"
    assert send(service, "GET", socket + "polling", Cookie=cookie, Origin=own, Accept="*/*")[0] == 200
    assert send(service, "GET", socket + "polling", Cookie=cookie, Origin=other, Accept="*/*")[0] == 403
    assert send(service, "GET", socket + "websocket", Cookie=cookie, Origin=other, Accept="*/*", **upgrade)[0] == 403
    assert send(service, "POST", socket + "polling", "", Cookie=cookie, Origin=other, Accept="*/*")[0] == 403


def test_sessions_end_and_are_bounded() -> None:
    now = [0.0]
    sessions = BrowserSessions(lambda: now[0])
    first = f"a=b; {COOKIE}={sessions.open(Asker('ann', 'read'))}".encode()
    assert sessions.asker(first) == Asker("ann", "read")
    now[0] = SECONDS + 1
    assert sessions.asker(first) is None
    kept = [sessions.open(Asker("bob", "read")) for _ in range(MOST + 1)]
    assert sessions.asker(f"{COOKIE}={kept[0]}".encode()) is None
    assert sessions.asker(f"{COOKIE}={kept[-1]}".encode()) is not None
    assert sessions.asker(b"\xff=;;=") is None
