"""Signing in where the service has tokens: a form of plain HTML that takes one and sets a cookie."""

from __future__ import annotations

from urllib.parse import parse_qsl

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from windtunnel.service.page.context import Language, language_of
from windtunnel.service.web.guard import SIGN_IN
from windtunnel.service.web.tokens import COOKIE, BrowserSessions, Tokens

HOME, MOST_BODY = "/ui/compose", 4096
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
        response = RedirectResponse(HOME, 303)
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
