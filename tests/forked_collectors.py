"""Collectors, forked from one process that has imported them once: started by `fleet_collectors.Server`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from forked_ranks import serve as serve_forks

from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.collect.serve import serve


def collector(told: dict[str, Any]) -> None:
    """Collects until a signal; prints its address as a line of JSON."""
    policy = CollectPolicy(**told.pop("policy", {}))
    unix, secrets = told.pop("unix", None), told.pop("secrets", None)
    serve(
        Path(told.pop("folder")), port=told.pop("port", 0), unix=Path(unix) if unix else None,
        secrets=Path(secrets) if secrets else None, policy=policy,
        ready=lambda address: print(f'{{"address": "{address}"}}', flush=True), **told,
    )  # fmt: skip


if __name__ == "__main__":
    serve_forks({"collector": collector})
