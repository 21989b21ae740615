"""Mounts the page on the application of the service, with its headers and who may see it. The sections of the page in the order in
which the frame shows them. Signing in where the service has tokens: a form of plain HTML that takes one and sets a cookie.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

import nicegui
from markupsafe import escape
from nicegui import ui
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from windtunnel.base.errors import nearest
from windtunnel.service.door import ServiceDoor
from windtunnel.service.page.context import Language, PageContext, language_of
from windtunnel.service.page.frame import LANGUAGE, THEME, THEMES, page_frame
from windtunnel.service.page.sections import answer, choose, compose, network, run, serving, trust, verbs
from windtunnel.service.page.state import read_view
from windtunnel.service.web.guard import ASKER, PAGE_POLICY, SIGN_IN
from windtunnel.service.web.tokens import COOKIE, BrowserSessions, Tokens

_SIGNED_IN, MOST_BODY = "/ui/compose", 4096
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
_STYLE = (
    ":root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--ink:#111827;--soft:#5b6472;--line:#8a93a0;--bad:#b91c1c}"
    "@media(prefers-color-scheme:dark){:root{--back:#0e1116;--card:#171b22;--ink:#e8ebf0;--soft:#9aa4b2;--bad:#f87171}}"
    "body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif;display:grid;place-items:center;"
    "min-height:100vh}main{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:24px}"
    "main{width:min(380px,86vw)}"
    "h1{font-size:20px;margin:0 0 12px}input,button{font:inherit;width:100%;box-sizing:border-box;padding:8px 10px;"
    "border-radius:6px;border:1px solid var(--line);margin:6px 0}button{background:#1d4ed8;color:#fff;border:0;cursor:pointer}"
    "p{color:var(--soft);margin:6px 0}.bad{color:var(--bad)}"
)


def sign_in_routes(tokens: Tokens, sessions: BrowserSessions) -> list[Route]:
    """GET and POST of the form, and the way out."""

    async def form(request: Request) -> Response:
        return _form(_language(request))

    async def enter(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY:
                return _form(_language(request), 413)
        token = dict(parse_qsl(body.decode("utf-8", "replace"))).get("token", "").strip()
        tokens.refresh()
        asker = tokens.asker(b"Bearer " + token.encode("utf-8", "replace"))
        if asker is None:
            return _form(_language(request), 401)
        refusal = tokens.refusal(asker)
        if refusal is not None:
            return _form(_language(request), 401, f"frame.{refusal[0]}")
        response = RedirectResponse(_SIGNED_IN, 303)
        safe = request.url.scheme == "https"
        response.set_cookie(COOKIE, sessions.open(asker), httponly=True, samesite="strict", secure=safe, path="/")
        return response

    async def leave(request: Request) -> Response:
        sessions.close(request.headers.get("cookie", "").encode("latin-1"))
        response = RedirectResponse(SIGN_IN, 303)
        response.delete_cookie(COOKIE, path="/")
        return response

    return [Route(SIGN_IN, form), Route(SIGN_IN, enter, methods=["POST"]), Route("/ui/sign-out", leave, methods=["POST"])]


def _language(request: Request) -> Language:
    return language_of(None, request.headers.get("accept-language", ""))


def _form(language: Language, status: int = 200, said: str = "frame.wrong_token") -> Response:
    wrong, label, button, about = (escape(language.say(key)) for key in (said, "frame.token", "frame.sign_in", "frame.token_about"))
    text = (
        f'<!doctype html><html lang="{language.code}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>windtunnel</title><style>{_STYLE}</style><body><main><h1>windtunnel</h1>"
        + (f'<p class="bad" role="alert">{wrong}</p>' if status != 200 else "")
        + f'<form method="post"><label for="token">{label}</label>'
        f'<input id="token" name="token" type="password" autocomplete="off" required autofocus>'
        f"<button>{button}</button></form><p>{about}</p></main></body></html>"
    )
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
    return Response(text, status, headers, "text/html")


SECTIONS: dict[str, Callable[[PageContext], None]] = {
    "compose": compose.build,
    "answer": answer.build,
    "choose": choose.build,
    "network": network.build,
    "serving": serving.build,
    "trust": trust.build,
    "run": run.build,
    "verbs": verbs.build,
}
"""Name of a section, as in its address -> what builds it into the page."""


HOME = "/ui"
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; font-src 'self' data:; connect-src 'self' ws: wss:; frame-src 'self'; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'self'; form-action 'self'"
)
"""Vue compiles its templates in the browser, so scripts may be evaluated; nothing is loaded from anywhere else."""
SHOWN_POLICY = PAGE_POLICY.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
"""Of a page that a verb wrote, shown inside of ours in an origin of its own."""
_KEY = re.compile(r"[0-9a-f]{64}")
_RECONNECT_SECONDS = 20.0


def mount_page(app: Starlette, door: ServiceDoor, runs: Sequence[str] = ()) -> None:
    """Adds the page to the application at /ui. `runs`: folders of watched runs that the operator named."""

    async def build(request: Request, section: str) -> None:
        context = _context(request, door, section, runs, app.state.tokens)
        with page_frame(context, list(SECTIONS)):
            SECTIONS[section](context)

    for name in SECTIONS:
        _add_section(name, build)

    async def to_compose(request: Request) -> Response:
        query = request.url.query
        return RedirectResponse(f"{HOME}/compose" + (f"?{query}" if query else ""))

    async def show_artefact(request: Request) -> Response:
        """A page that a verb wrote, as an artefact of a kept answer."""
        key, artefact = request.path_params["key"], request.path_params["name"]
        found = await door.artefact(key, artefact) if _KEY.fullmatch(key) else None
        if found is None or not found[1].startswith(("text/html", "image/svg")):
            return Response("no page of this name and key is kept", 404, media_type="text/plain")
        headers = {"Content-Security-Policy": SHOWN_POLICY, "X-Frame-Options": "SAMEORIGIN"}
        return Response(found[0], 200, headers, found[1])

    app.router.routes += [
        *(Route(path, to_compose) for path in ("/", HOME, f"{HOME}/")), Route(f"{HOME}/shown/{{key}}/{{name}}", show_artefact),
    ]  # fmt: skip
    if app.state.tokens is not None:
        app.router.routes += sign_in_routes(app.state.tokens, app.state.sessions)
    nicegui.app.add_middleware(PagePolicy)
    nicegui.app.add_exception_handler(404, _to_nearest)
    ui.expansion.default_props(":duration=0")  # with look.css: what opens and closes does so at once
    ui.run_with(
        app,  # type: ignore[arg-type]  # any Starlette application will do
        mount_path=HOME, title="windtunnel", favicon=ICON, dark=None, tailwind=False, show_welcome_message=False,
        reconnect_timeout=_RECONNECT_SECONDS, binding_refresh_interval=None,
    )  # fmt: skip


async def _to_nearest(request: Request, error: Exception) -> Response:
    """The section whose name is nearest to an address that is none, such as /ui/runs; what a page loads is not there."""
    name = request.url.path.removeprefix(f"{HOME}/")
    if not re.fullmatch(r"[a-z]+/?", name):
        return Response("not found", 404, media_type="text/plain")
    return RedirectResponse(f"{HOME}/{nearest(name, list(SECTIONS)) or 'compose'}")


def _add_section(name: str, build: Any) -> None:
    async def show_section(request: Request) -> None:
        await build(request, name)

    ui.page(f"/{name}", response_timeout=30.0)(show_section)


def _context(request: Request, door: ServiceDoor, section: str, runs: Sequence[str], tokens: Tokens | None) -> PageContext:
    asker = request.scope["state"][ASKER]
    language = language_of(request.cookies.get(LANGUAGE), request.headers.get("accept-language", ""))
    dark = THEMES.get(request.cookies.get(THEME, "auto"))
    return PageContext(door, asker, language, section, read_view(request.query_params.multi_items()), dark, tuple(runs), tokens)


class PagePolicy:
    """ASGI middleware: the content policy of the page on each of its responses that has none."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                if b"content-security-policy" not in names:
                    message["headers"] = [*message.get("headers", ()), (b"content-security-policy", POLICY.encode())]
            await send(message)

        await self._app(scope, receive, sending)


ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0072b2"/>'
    '<path d="M5 11h15a4 4 0 1 0-4-4M5 17h20M5 23h12a3.5 3.5 0 1 1-3.5 3.5" fill="none" stroke="#fff" stroke-width="2.4" '
    'stroke-linecap="round"/></svg>'
)
