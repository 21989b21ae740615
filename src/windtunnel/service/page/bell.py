"""The bell of jobs: how many wait or run, and the newest of them with progress."""

from __future__ import annotations

from nicegui import ui

from windtunnel.service.door import JobView
from windtunnel.service.page.anchors import anchor
from windtunnel.service.page.context import PageContext

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
