"""The section `choose`: the best plan and why, what limits it, a run with failures, and what it costs."""

from __future__ import annotations

from windtunnel.goodput.options import GoodputCommandOptions
from windtunnel.search.options import PlanOptions, SearchCommandOptions
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form
from windtunnel.service.page.frame import heading
from windtunnel.service.page.sections.choose_limits import build_limits
from windtunnel.service.page.sections.choose_run import build_whole_run
from windtunnel.service.page.sections.choose_search import build_search
from windtunnel.service.page.sections.choose_sheet import build_sheet
from windtunnel.service.page.studies import job_line, use_looks


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    heading(context.say("choose.title"), context.say("choose.about"))
    job_line(context)
    build_search(context, Form(context, "s.", SearchCommandOptions))
    build_limits(context)
    build_whole_run(context, Form(context, "g.", GoodputCommandOptions))
    build_sheet(context, Form(context, "b.", PlanOptions))
