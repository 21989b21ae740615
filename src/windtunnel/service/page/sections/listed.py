"""The sections of the page in the order in which the frame shows them."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.service.page.context import PageContext
from windtunnel.service.page.sections import answer, choose, compose, network, run, serving, trust

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
