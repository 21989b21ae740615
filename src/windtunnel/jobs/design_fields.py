"""Hardware designs of a job: which fields a study varies, which the plan search of each design varies, and which are fixed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.jobs.search_space import question
from windtunnel.search.design import DesignField, Premium, field_of
from windtunnel.search.space import SWITCHES, Space, split_values
from windtunnel.spec import Job, dump_job, load_job


@dataclass(frozen=True)
class DesignFields:
    """`varied`: fields of the hardware with their ranges or choices; `plans`: what the plan search of each design opens or fixes;
    `fixed`: what the job is loaded with. All as `--set` takes them."""

    varied: Mapping[str, str]
    plans: tuple[str, ...]
    fixed: tuple[str, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> DesignFields:
        """Fields with their values, sorted by what they are for."""
        varied = {key: values for key, values in pairs if _is_varied(key, values)}
        plans = tuple(f"{key}={values}" for key, values in pairs if key not in varied and _is_of_plan(key))
        fixed = tuple(f"{key}={values}" for key, values in pairs if key not in varied and not _is_open(key, values))
        return cls(varied, plans, fixed)

    def axes(self, job: Job) -> list[DesignField]:
        """The axes of the study. SpecError for a wrong unit, an unknown field or an empty range."""
        return [field_of(job, key, values) for key, values in self.varied.items()]

    def space_of(self, job: Job) -> Callable[[Sequence[str]], Space]:
        """What makes the plans of a machine, given as overrides of the job."""
        table = tomllib.loads(dump_job(job))

        def load(overrides: Sequence[str]) -> LoadedJob:
            return LoadedJob(load_job(table, [*_peaks(job, overrides), *overrides]))

        return lambda overrides: question(load, [*self.plans, *overrides], None, ()).spaces[0]


def _peaks(job: Job, overrides: Sequence[str]) -> list[str]:
    """Peaks of the GPU at other SMs: an SM keeps its rate, unless a peak is stated too."""
    gpu, stated = job.cluster.gpu, dict(text.partition("=")[::2] for text in overrides)
    count = stated.get("cluster.node.gpu.sms")
    if count is None or gpu.sms is None or any(key.startswith("cluster.node.gpu.peak") for key in stated):
        return []
    share = float(count) / gpu.sms
    rates = {"peak": gpu.peak, "achievable": gpu.achievable}
    return [
        f"cluster.node.gpu.{kind}.{name}={rate * share / 1e12:.6g}TFLOP/s"
        for kind, all_ in rates.items()
        for name, rate in all_.items()
    ]


def premium_of(path: str, dollars: float, axes: Sequence[DesignField]) -> Premium:
    """Dollars a GPU and hour for each unit of a range. SpecError for what is no range of the design."""
    ranges = {axis.path: axis for axis in axes if not axis.values}
    if path not in ranges or not dollars == dollars:
        raise SpecError("--premium", f"{path}={dollars:g}", f"dollars of a range: {', '.join(ranges) or 'there is none'}")
    return Premium(ranges[path], dollars)


def _is_of_plan(key: str) -> bool:
    """Whether the plan search of each design varies a field."""
    return key.startswith("plan.") and key != "plan.seq" or key in SWITCHES


def _is_open(key: str, values: str) -> bool:
    return _is_of_plan(key) and len(split_values(key, values)) > 1


def _is_varied(key: str, values: str) -> bool:
    return ".." in values or not _is_of_plan(key) and len(split_values(key, values)) > 1
