"""Mounts the page on the application of the service, with its headers and who may see it. The sections of the page in the order in
which the frame shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import nicegui
from nicegui import ui
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from windtunnel.base.errors import nearest
from windtunnel.service.door import ServiceDoor
from windtunnel.service.page.context import PageContext, language_of
from windtunnel.service.page.frame import LANGUAGE, THEME, THEMES, page_frame
from windtunnel.service.page.sections import answer, choose, compose, network, run, serving, trust
from windtunnel.service.page.sign_in import sign_in_routes
from windtunnel.service.page.state import read_view
from windtunnel.service.web.guard import ASKER, PAGE_POLICY
from windtunnel.service.web.tokens import Tokens

SECTIONS: dict[str, Callable[[PageContext], None]] = {
    "compose": compose.build,
    "answer": answer.build,
    "choose": choose.build,
    "network": network.build,
    "serving": serving.build,
    "trust": trust.build,
    "run": run.build,
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
