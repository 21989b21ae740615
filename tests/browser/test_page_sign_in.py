"""A browser signs in to the page of a service with tokens, by button and by key, and a page of another site cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.browser.served_page import PATIENCE
from tests.service.served import ServedProcess
from windtunnel.service.web.tokens import COOKIE

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


def is_signed_in(page: Any) -> bool:
    return any(cookie["name"] == COOKIE for cookie in page.context.cookies())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("way", ["tap", "key"])
def test_the_right_token_opens_the_page(guarded: ServedProcess, page: Any, host: str, way: str) -> None:
    page.goto(f"http://{host}:{guarded.port}/ui")
    page.get_by_label("Token").fill(str(guarded.token))
    with page.expect_navigation():
        if way == "key":
            page.keyboard.press("Enter")
        else:
            page.get_by_role("button").click()
    assert page.url == f"http://{host}:{guarded.port}/ui/compose", page.inner_text("body")
    page.wait_for_function("window.socket && window.socket.connected")
    assert is_signed_in(page)


def test_a_wrong_token_is_told_and_the_right_one_still_opens(guarded: ServedProcess, page: Any) -> None:
    page.goto(f"{guarded.url}/ui")
    page.get_by_label("Token").fill("wt_wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    assert not is_signed_in(page)
    page.get_by_label("Token").fill(str(guarded.token))
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/compose")
    assert is_signed_in(page)


def test_who_signs_out_is_out(guarded: ServedProcess, page: Any) -> None:
    page.goto(f"{guarded.url}/ui")
    page.get_by_label("Token").fill(str(guarded.token))
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/compose")
    page.wait_for_function("window.socket && window.socket.connected")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/ui/sign-in")
    page.goto(f"{guarded.url}/ui/compose")
    assert page.url.endswith("/ui/sign-in")


@pytest.mark.parametrize("policy", ["", "no-referrer", "unsafe-url"])
def test_a_page_of_another_site_signs_nobody_in(guarded: ServedProcess, page: Any, policy: str) -> None:
    """Not even with a right token: a visitor would work in the attacker's name. Such a page may send `Origin: null`."""
    where, token = f"{guarded.url}/ui/sign-in", guarded.token
    form = f'<form method="post" action="{where}"><input name="token" value="{token}"><button>Win</button></form>'

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if policy:
                self.send_header("Referrer-Policy", policy)
            self.end_headers()
            self.wfile.write(form.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://localhost:{server.server_port}/")
        with page.expect_response("**/ui/sign-in") as told:
            page.get_by_role("button").click()
        server.shutdown()
    assert told.value.status == 403 and not is_signed_in(page)
