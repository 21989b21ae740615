"""The section `network`: collectives beside measured ones, the fabric with the load of its links, and queues of plain flows."""

from __future__ import annotations

from windtunnel.network.flows.options import FlowsCommandOptions
from windtunnel.network.options import CollectiveCommandOptions
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form
from windtunnel.service.page.frame import heading
from windtunnel.service.page.sections.network_flows import build_flows
from windtunnel.service.page.sections.network_sweep import build_fabric, build_sweep
from windtunnel.service.page.sheets import use_sheets
from windtunnel.service.page.studies import use_looks


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    use_sheets()
    heading(context.say("network.title"), context.say("network.about"))
    build_sweep(context, Form(context, "c.", CollectiveCommandOptions))
    build_fabric(context, Form(context, "l.", CollectiveCommandOptions))
    build_flows(context, Form(context, "f.", FlowsCommandOptions))
