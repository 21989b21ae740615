"""`windtunnel runs`: the group of verbs for measured runs."""

from __future__ import annotations

from windtunnel.cli.verbs import Verbs

VERBS: Verbs = {
    "show": ("runs_show", "What a run's steps went to by rank and stream, its calls, and which rank waits for whom."),
}
