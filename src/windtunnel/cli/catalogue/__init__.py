"""`windtunnel catalog`: what comes with windtunnel, and entries of one's own."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "FILE...": ("catalogue.listing", "The GPUs, nodes, fabrics, clusters, models, frameworks and jobs that come with windtunnel."),
    "add": ("catalogue.adding", "An entry of one's own, from a config.json or the numbers of a data sheet, as a file."),
}
OTHERWISE = "FILE..."
SHOWN = "[KIND] [NAME]"
"""What the help calls it: it takes no file."""
