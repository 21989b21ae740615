"""What a measured step would take with another degree of parallelism: its job is calibrated on the run itself, and the measured
step goes the way of the job's predictions.

A trace of one degree holds no kernels and messages of another: layers would be cut elsewhere, shards and messages have other sizes.
So the run gives what a job's kernels, calls and host really achieve, and the model writes the other plan with that.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property

from windtunnel.base.errors import SpecError
from windtunnel.predict import predict
from windtunnel.records.run import Run
from windtunnel.runs.calibrate import CalibrationFit, fit
from windtunnel.runs.observed import observe
from windtunnel.spec import Job, check, dump_job, load_job

DEGREES = ("dp", "pp", "tp", "cp", "ep")


@dataclass(frozen=True)
class PlanAnswer:
    """`ratio`: the predicted step under the other plan over that under the run's own, both calibrated on the run."""

    ratio: float
    measured: str
    modelled: str


@dataclass(frozen=True)
class OtherPlans:
    """Answers for `run`, of `job`. The run is calibrated once."""

    run: Run
    job: Job

    @cached_property
    def _fit(self) -> CalibrationFit:
        observed = observe(self.run, self.job)
        if not observed.kernels:
            raise SpecError("RUN", self.run.source, "a run with kernels", "Degrees follow from what its kernels achieve.")
        return fit(observed, self.job)

    def answer(self, degree: str, value: str) -> PlanAnswer:
        """Another `degree` of DEGREES. `dp`: as many replicas, each with the micro batches that it has, so that GPUs and the global
        batch grow; the others on the same GPUs with the same global batch, so that dp gives way. PlanError or SpecError for a
        plan that cannot be."""
        text = f"{degree}={value}"
        if not value.isdigit() or not 1 <= int(value[:9]) < 10**6:
            raise SpecError("--change", text, "a whole number from 1 on")
        own, count = self.job, int(value)
        changes = [f"plan.{degree}={count}"]
        if degree == "dp":
            changes += [
                f"cluster.gpus={own.cluster.gpus // own.dp * count}",
                f"plan.global_batch={own.plan.global_batch // own.dp * count}",
            ]
        check(load_job(tomllib.loads(dump_job(own)), changes))  # before the fit, which takes its time
        tuned = own.model_copy(update={"calibration": self._fit.calibration})
        other = check(load_job(tomllib.loads(dump_job(tuned)), changes))
        ratio = predict(other).step_time_s / predict(check(tuned)).step_time_s
        factors = sum(1 for one in self._fit.factors.factors if one.samples)
        kept = (
            f"{other.cluster.gpus:,} GPUs in place of {own.cluster.gpus:,}, global batch {other.plan.global_batch:,}"
            if degree == "dp"
            else f"the same GPUs and global batch, so that dp is {other.dp} in place of {own.dp}"
        )
        return PlanAnswer(
            ratio,
            f"the step; {factors} factors of kernels, calls and host fitted to the run",
            f"how the other plan cuts and schedules the work, and the sizes of its calls; {kept}",
        )
