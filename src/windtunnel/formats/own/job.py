"""Job files: TOML, YAML or JSON with a model, a plan, a runtime and a cluster, or a base and what differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import SpecError

if TYPE_CHECKING:
    from windtunnel.formats.jobs.imported import Imported, Stated
    from windtunnel.spec import Job

FORMAT = "job file"
KEYS = frozenset({"base", "plan", "cluster"})
"""Keys of which each job file has one at least, and which no configuration of another tool has at its top."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """A plan, a cluster or a base at the top."""
    return bool(KEYS & set(table))


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """The job; with `on`, on that job's cluster. PlanError for a job that contradicts itself, SpecError for one of other verbs."""
    from windtunnel.formats.jobs.imported import Imported
    from windtunnel.spec import check, load_job

    if "rl" in table or table.get("workload") == "rl":
        raise SpecError(
            "workload", "rl", "a job of training", "`windtunnel rl-predict FILE` answers a job of reinforcement learning."
        )
    machine = {} if on is None else {"cluster": on.cluster.model_dump(mode="json", exclude_none=True)}
    job = check(load_job({**table, **machine}))
    return Imported(FORMAT, job.model, job.plan, job.runtime, job)
