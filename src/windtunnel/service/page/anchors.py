"""Links of the page."""

from __future__ import annotations

from nicegui import ui


def anchor(text: str, address: str, download: str = "") -> ui.element:
    """A link to an address of the service (from its root, such as /ui/answer). `download`: the name of the file that it gives."""
    link = ui.element("a")
    link.props["href"] = address
    if download:
        link.props["download"] = download
    with link:
        ui.label(text).style("display: inline")
    return link
