"""The frame of every page: name, sections, the bell of jobs, colours, language; and the parts that sections share.

The bell of jobs: how many wait or run, and the newest of them with progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nicegui import ui

from windtunnel.service.door import JobView
from windtunnel.service.page.context import LANGUAGES, PageContext
from windtunnel.service.page.state import anchor
from windtunnel.service.web.tokens import LOCAL

LOOK = Path(__file__).with_name("look.css")
COOKIE = "document.cookie = '{name}={value}; path=/ui; max-age=31536000; samesite=strict'"
THEME, LANGUAGE = "windtunnel_theme", "windtunnel_language"
"""Cookies of what the reader picked; neither says who it is."""
SCRIPT = (
    "addEventListener('popstate', () => location.reload());"
    "new MutationObserver(() => {"
    "document.querySelectorAll('.q-table__middle:not([tabindex])').forEach(one => one.tabIndex = 0);"
    "document.querySelectorAll('.wt-pick tbody tr:not([tabindex])').forEach(one => one.tabIndex = 0);"
    "}).observe(document, {subtree: true, childList: true});"
    "addEventListener('keydown', event => {if (event.key === 'Enter' && event.target.matches('.wt-pick tbody tr')) "
    "event.target.click()});"
)
"""The way back shows the view of its address; whoever has no mouse scrolls wide tables and picks rows too."""
SKIP = "document.getElementById('content').focus(); return false"
LEAVE = "fetch('/ui/sign-out', {method: 'POST'}).then(() => location.assign('/ui/sign-in'))"
THEMES: dict[str, bool | None] = {"auto": None, "light": False, "dark": True}


@contextmanager
def page_frame(context: PageContext, sections: Sequence[str]) -> Iterator[None]:
    """Everything around a section, whose content is built inside."""
    ui.colors(primary="#1d4ed8", negative="#b91c1c")
    ui.add_css(LOOK.read_text(encoding="utf-8"))
    ui.add_head_html(f"<script>document.documentElement.lang = '{context.language.code}';{SCRIPT}</script>")
    ui.page_title(f"{context.say(f'{context.section}.title')} · windtunnel")
    ui.html(f'<a class="wt-skip" href="#content" onclick="{SKIP}">{context.say("frame.skip")}</a>', sanitize=False)
    with ui.element("header").classes("wt-header"):
        anchor("windtunnel", context.link("compose")).classes("wt-name")
        with ui.element("nav").classes("wt-nav").props(f'aria-label="{context.say("frame.sections")}"'):
            links = {name: _section_link(context, name) for name in sections}
        with ui.element("div").classes("wt-tools"):
            job_bell(context)
            _themes(context)
            _languages(context)
            if context.asker != LOCAL:
                _tool("logout", context.say("frame.sign_out")).on_click(lambda: ui.run_javascript(LEAVE))

    def follow() -> None:
        for name, link in links.items():
            link.props["href"] = context.link(name)
            link.update()

    context.listen(follow)
    with ui.element("div").classes("wt-main").props('id="content" tabindex="-1"'):
        yield

    def tell_fault(error: Exception) -> None:
        told = context.say("frame.fault", kind=type(error).__name__)
        ui.notify(told, type="negative", timeout=0, close_button=True, multi_line=True)

    ui.on_exception(tell_fault)  # of a button or a field: whoever pressed it would see nothing happen


def _section_link(context: PageContext, name: str) -> ui.element:
    link = anchor(context.say(f"{name}.title"), context.link(name))
    if name == context.section:
        link.props('aria-current="page"')
    return link


def _themes(context: PageContext) -> None:
    mode = ui.dark_mode(context.dark)

    def pick(name: str) -> None:
        mode.set_value(THEMES[name])
        context.dark = THEMES[name]
        ui.run_javascript(COOKIE.format(name=THEME, value=name))

    with _tool("contrast", context.say("frame.theme")), ui.menu().props("auto-close"):
        for name in THEMES:
            ui.menu_item(context.say(f"frame.{name}"), lambda name=name: pick(name))


def _languages(context: PageContext) -> None:
    def pick(code: str) -> None:
        ui.run_javascript(COOKIE.format(name=LANGUAGE, value=code) + "; location.reload()")

    with _tool("translate", context.say("frame.language")), ui.menu().props("auto-close"):
        for code, name in LANGUAGES.items():
            ui.menu_item(name, lambda code=code: pick(code))


def _tool(icon: str, name: str) -> ui.button:
    return ui.button(icon=icon).props(f'flat dense round aria-label="{name}"').classes("wt-tool")


def heading(title: str, about: str) -> None:
    """The heading of a section, and what it answers in one sentence."""
    with ui.element("div").classes("wt-heading"):
        ui.html(title, tag="h1", sanitize=_escape_text)
        ui.label(about).classes("wt-soft")


@contextmanager
def card(title: str = "", about: str = "", name: str = "") -> Iterator[ui.element]:
    """A box with a heading of its own. `name`: its id, for links and tests."""
    box = ui.element("section").classes("wt-card")
    if name:
        box.props(f'id="{name}"')
    with box:
        if title:
            ui.html(title, tag="h2", sanitize=_escape_text)
        if about:
            ui.label(about).classes("wt-soft wt-about")
        yield box


def show_error(context: PageContext, error: Mapping[str, Any]) -> None:
    """An error in words: what is wrong, what is allowed, what to type instead."""
    with ui.element("div").classes("wt-error").props('role="alert"'):
        field, instead, message = (str(error.get(name) or "") for name in ("field", "instead", "message"))
        message = message.removesuffix(instead).rstrip()
        ui.label(context.in_fields((f"{field}: " if field and field not in message else "") + message))
        if instead:
            ui.label(context.in_fields(instead)).classes("wt-instead")


def _escape_text(text: str) -> str:
    """Text as markup that shows it."""
    from markupsafe import escape

    return str(escape(text))


EVERY, SHOWN = 3.0, 8
"""Seconds between two looks, and jobs that the bell lists."""


def job_bell(context: PageContext) -> None:
    """A button with the number of open jobs, which opens their list."""
    seen: list[tuple[str, str, float | None]] = []
    with ui.button(icon="notifications").props(f'flat dense round aria-label="{context.say("frame.jobs")}"').classes("wt-tool"):
        badge = ui.badge("").props("floating color=primary").classes("wt-badge")
        badge.set_visibility(False)
        with ui.menu().classes("wt-jobs"):
            rows = ui.element("div")

    async def look() -> None:
        jobs, _ = await context.door.jobs(limit=SHOWN)
        found = [(job.id, job.state, job.progress) for job in jobs]
        if found == seen and rows.default_slot.children:
            return
        seen[:] = found
        open_jobs = sum(not job.has_ended for job in jobs)
        badge.set_text(str(open_jobs))
        badge.set_visibility(open_jobs > 0)
        rows.clear()
        with rows:
            if not jobs:
                ui.label(context.say("frame.no_jobs")).classes("wt-soft")
            for job in jobs:
                _row(context, job)

    ui.timer(EVERY, look)


def _row(context: PageContext, job: JobView) -> None:
    with ui.element("div").classes("wt-job"):
        ui.label(job.verb).classes("wt-strong")
        state = context.say(f"frame.{job.state}")
        done = f" {100 * job.progress:.0f} %" if job.progress is not None and not job.has_ended else ""
        ui.label(f"{state}{done}").classes("wt-soft wt-number")
        if job.state == "done":
            anchor(context.say("answer.title"), f"/ui/answer?key={job.key}")
        elif not job.has_ended and context.asker.may_write:
            ui.button(context.say("frame.cancel"), on_click=lambda: context.cancel(job.id)).props("flat dense no-caps")
        ui.label(job.command).classes("wt-command")
