"""Workers on a Ray cluster. Ray runs a task again whose worker died."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from windtunnel.base.errors import EngineError, SpecError
from windtunnel.search.change import Change
from windtunnel.search.outcome import PlanOutcome, Trial, outcome_of
from windtunnel.spec import Job

RETRIES = 10
"""Times that Ray starts a trial again after its worker died."""


class RayWorkers:
    """Trials as Ray tasks on the cluster at `address`; "auto": the one that RAY_ADDRESS names, else `count` workers here.

    `windtunnel` has to be installed on the cluster's nodes. Raises SpecError if Ray is not installed or the cluster does not
    answer.
    """

    def __init__(self, frames: Sequence[Job], margin: float, address: str, count: int | None) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError:
            raise SpecError("--on", "ray", "ray, which is not installed", "Type: pip install 'windtunnel[search]'.") from None
        self.ray = ray
        where = os.environ.get("RAY_ADDRESS") if address == "auto" else address
        self.ours = not ray.is_initialized()
        if self.ours:
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            local: dict[str, Any] = {} if where else {"num_cpus": count, "include_dashboard": False}
            try:
                ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, **local)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise SpecError("--on", f"ray:{address}", "the address of a Ray cluster", str(error).split("\n")[0]) from None
        self.slots = 3 * max(1, int(ray.cluster_resources().get("CPU", 1.0)))
        self.frames, self.margin = ray.put(tuple(frames)), margin
        self.task = ray.remote(num_cpus=1, max_retries=RETRIES)(_trial)
        self.under_way: dict[Any, Trial] = {}

    def submit(self, trial: Trial) -> None:
        self.under_way[self.task.remote(self.frames, trial.frame, trial.change, self.margin, trial.anyway)] = trial

    def next(self) -> tuple[Trial, PlanOutcome]:
        done, _ = self.ray.wait(list(self.under_way), num_returns=1)
        trial = self.under_way.pop(done[0])
        try:
            return trial, self.ray.get(done[0])
        except self.ray.exceptions.RayError as error:
            raise EngineError(f"Ray gave up on a plan after {RETRIES} tries: {str(error).splitlines()[0]}") from None

    def close(self) -> None:
        for reference in self.under_way:
            self.ray.cancel(reference, force=True)
        self.under_way = {}
        if self.ours:
            self.ray.shutdown()


def _trial(frames: Sequence[Job], frame: int, change: Change, margin: float, anyway: bool) -> PlanOutcome:
    """Runs on a worker of the cluster."""
    return outcome_of(frames[frame], change, margin, anyway)
