"""The section `network`."""

from __future__ import annotations

from windtunnel.service.page.context import PageContext
from windtunnel.service.page.frame import heading


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    heading(context.say("network.title"), context.say("network.about"))
