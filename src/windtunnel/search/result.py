"""The result of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windtunnel.search.explain import Explanation
from windtunnel.search.find import Candidate, Certificate
from windtunnel.search.objective import Objective
from windtunnel.spec import Job


@dataclass(frozen=True)
class SearchResult:
    """`ranked`: predicted plans that fit, best first (several objectives: the undominated ones, `front` of them, first). `jobs` and
    `labels` are those of the frames. `command`: how to predict the best plan; `own`: what
    reports call the frames' own plans."""

    jobs: tuple[Job, ...]
    labels: tuple[str, ...]
    objectives: tuple[Objective, ...]
    ranked: tuple[Candidate, ...]
    front: int
    certificate: Certificate
    explanation: Explanation | None = None
    command: str = ""
    own: str = "Your plan"

    @property
    def best(self) -> Candidate | None:
        return self.ranked[0] if self.ranked else None

    def job_of(self, candidate: Candidate) -> Job:
        """The job of a plan."""
        return candidate.change.apply(self.jobs[candidate.frame])

    def fields(self, candidate: Candidate) -> Mapping[str, Any]:
        """Fields that the search set, without those that other fields imply."""
        implied = {"plan.dp", "plan.sequence_parallel", "plan.shard_group", "plan.recompute_modules", "plan.recompute_layers"}
        return {
            path: value
            for path, value in candidate.change.fields
            if path not in implied
            and not (path == "plan.stages" and value is None)
            and not (path == "plan.schedule" and value == "auto")
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        why = self.explanation
        return {
            "objectives": [each.name for each in self.objectives],
            "plans": [self._plan(one) for one in self.ranked],
            "front": self.front,
            "certificate": vars(self.certificate) | {"exact": self.certificate.exact},
            "decisions": [] if why is None else [vars(one) for one in why.decisions],
            "memory_binds": None
            if why is None or why.relaxed is None
            else {"missing": why.relaxed.missing, "gain": why.relaxed.gain, "plan": self._plan(why.relaxed.candidate)},
            "keeps_memory_free": None
            if why is None or why.roomier is None
            else {"free": why.roomier.free, "loss": why.roomier.loss, "plan": self._plan(why.roomier.candidate)},
            "limits_bind": None
            if why is None or why.unlimited is None
            else {
                "gain": why.unlimited.gain,
                "needs": {most.objective.name: value for most, value in why.unlimited.needs},
                "plan": self._plan(why.unlimited.candidate),
            },
            "your_plan": None
            if why is None or why.known is None
            else {"loss": why.known.loss, "step_time_s": why.known.outcome.step_time_s},
            "command": self.command,
        }

    def _plan(self, one: Candidate) -> dict[str, Any]:
        job, outcome = self.jobs[one.frame], one.outcome
        return {
            "frame": self.labels[one.frame],
            "set": list(one.change.without_no_ops(job).sets),
            "plan": dict(self.fields(one)),
            "values": {each.name: each.shown(value) for each, value in zip(self.objectives, one.values, strict=True)},
            "step_time_s": outcome.step_time_s,
            "tokens_per_s": outcome.tokens_per_s,
            "mfu": outcome.mfu,
            "memory": outcome.memory,
            "cost_per_step": outcome.cost_per_step,
            "energy_j_per_step": outcome.energy_j_per_step,
            "breakdown": outcome.breakdown,
        }
