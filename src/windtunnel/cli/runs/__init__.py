"""`windtunnel runs`: the group of verbs for measured runs."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "show": ("runs.show", "What a run's steps went to by rank and stream, its calls, and which rank waits for whom."),
}
