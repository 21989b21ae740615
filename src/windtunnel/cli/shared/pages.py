"""Shared by verbs that write a page: the option, checks before any work is done, and the command that is shown on it."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a page with drawings.")]


def check_html(html: str | None) -> None:
    """FileError for a page whose name does not end in .html, before anything is simulated."""
    if html is not None:
        from windtunnel.draw.page.frame import check_page

        check_page(html)


def said_command() -> str:
    """The command line, to repeat it."""
    return shlex.join(["windtunnel", *sys.argv[1:]])
