"""The result of a search.

The best plans of a search once more, with another network than the closed form that bounds and proof rest on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windtunnel.predict import predict
from windtunnel.search.change import value_of
from windtunnel.search.explain import Explanation
from windtunnel.search.find import Candidate, Certificate
from windtunnel.search.levers.pricing import PricedLever
from windtunnel.search.objective import Objective
from windtunnel.search.space import CORE
from windtunnel.spec import Job, Noun


@dataclass(frozen=True)
class SearchResult:
    """The best plans of a space, and what became of the others. `jobs` and `labels` are those of the frames."""

    jobs: tuple[Job, ...]
    labels: tuple[str, ...]
    objectives: tuple[Objective, ...]
    ranked: tuple[Candidate, ...]
    """Predicted plans that fit, best first; with several objectives the undominated ones, `front` of them, first."""
    front: int
    certificate: Certificate
    explanations: tuple[Explanation, ...] = ()
    """One for each objective that has reasons."""
    command: str = ""
    """How to predict the best plan from a command line, if the search came from one."""
    own: str = "Your plan"
    """What reports call the frames' own plans."""

    pulled: tuple[PricedLever, ...] = ()
    """Levers outside of the space that the first plan has beside those of the best plan of the space, which then stands second."""
    margin: float = 0.0
    """Share of the memory that plans keep free."""
    first: PricedLever | None = None
    """The one lever that gains most on the job's own plan."""
    machines: tuple[Candidate, ...] = ()
    """The best plan found on each cluster, where there are several."""
    again: tuple[tuple[int, float], ...] = ()
    """(place, seconds) of the first plans with another network than the closed form, the quickest first."""
    network: str = "closed"
    """The network of `again`."""

    def where(self, candidate: Candidate) -> str:
        """The machine of a plan: `512 x NVIDIA B200 (b200-ib)`."""
        cluster = self.jobs[candidate.frame].cluster
        return f"{cluster.gpus:,} x {cluster.gpu.name or cluster.gpu.id} ({cluster.id})"

    @property
    def best(self) -> Candidate | None:
        return self.ranked[0] if self.ranked else None

    @property
    def explanation(self) -> Explanation | None:
        """The reasons for the best plan in the first objective; None if the search was stopped before."""
        return self.explanations[0] if self.explanations else None

    def job_of(self, candidate: Candidate) -> Job:
        """The job of a plan."""
        return candidate.change.apply(self.jobs[candidate.frame])

    def fields(self, candidate: Candidate) -> Mapping[str, Any]:
        """Fields that the search set, without those that other fields imply."""
        implied = {"plan.dp", "plan.sequence_parallel", "plan.shard_group", "plan.recompute_modules", "plan.recompute_layers"}
        return {
            path: value
            for path, value in candidate.change.fields
            if (path not in implied or path == "plan.recompute_modules" and self._chose_modules(candidate))
            and not (path.startswith("runtime.") and value_of(self.jobs[candidate.frame], path) == value)
            and not isinstance(value, Noun)
            and not (path == "plan.stages" and value is None)
            and not (path == "plan.schedule" and value == "auto")
        }

    def _chose_modules(self, candidate: Candidate) -> bool:
        """Whether the plan runs other modules again than usual."""
        plan = candidate.change.apply_unchecked(self.jobs[candidate.frame]).plan
        return plan.recompute == "selective" and plan.recompute_modules != CORE

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON. `relative_error` of a step is stated for the first MOST plans, and null for others."""
        return {
            "objectives": [each.name for each in self.objectives],
            "plans": [
                self._plan(one, self.objectives) | {"relative_error": self._error(place)} for place, one in enumerate(self.ranked)
            ],
            "front": self.front,
            "certificate": vars(self.certificate) | {"exact": self.certificate.exact},
            "explanations": [self._why(one) for one in self.explanations],
            "pulled": [
                {"lever": one.lever, "set": list(one.change.sets), "gain": one.gain, "flags": list(one.flags)}
                for one in self.pulled
            ],
            "first_lever": self.first and {"lever": self.first.lever, "set": list(self.first.change.sets), "gain": self.first.gain},
            "margin": self.margin,
            "machines": [self._plan(one, self.objectives) | {"machine": self.where(one)} for one in self.machines],
            "again": {"network": self.network, "plans": [{"plan": place, "step_time_s": s} for place, s in self.again]},
            "command": self.command,
        }

    def _error(self, place: int) -> float | None:
        return predict(self.job_of(self.ranked[place])).relative_error if place < MOST else None

    def _why(self, why: Explanation) -> dict[str, Any]:
        """The reasons for one objective; its plan is number `plan` of `plans`."""

        def plan(one: Candidate) -> dict[str, Any]:
            return self._plan(one, (why.objective,))

        relaxed, roomier, free, known = why.relaxed, why.roomier, why.unlimited, why.known
        return {
            "objective": why.objective.name,
            "plan": self.place(why.best),
            "decisions": [vars(one) for one in why.decisions],
            "memory_binds": relaxed and {"missing": relaxed.missing, "gain": relaxed.gain, "plan": plan(relaxed.candidate)},
            "keeps_memory_free": roomier and {"free": roomier.free, "loss": roomier.loss, "plan": plan(roomier.candidate)},
            "limits_bind": free
            and {
                "gain": free.gain,
                "needs": {most.objective.name: value for most, value in free.needs},
                "plan": plan(free.candidate),
            },
            "your_plan": known and {"loss": known.loss, "step_time_s": known.outcome.step_time_s},
        }

    def place(self, candidate: Candidate) -> int:
        """The place of a ranked plan, from 0."""
        return next(at for at, one in enumerate(self.ranked) if one.row == candidate.row and one.change == candidate.change)

    def _plan(self, one: Candidate, objectives: tuple[Objective, ...]) -> dict[str, Any]:
        job, outcome = self.jobs[one.frame], one.outcome
        return {
            "frame": self.labels[one.frame],
            "set": list(one.change.without_no_ops(job).sets),
            "plan": dict(self.fields(one)),
            "values": {each.name: each.shown(value) for each, value in zip(objectives, one.values, strict=True)},
            "step_time_s": outcome.step_time_s,
            "tokens_per_s": outcome.tokens_per_s,
            "mfu": outcome.mfu,
            "memory": outcome.memory,
            "cost_per_step": outcome.cost_per_step,
            "energy_j_per_step": outcome.energy_j_per_step,
            "breakdown": outcome.breakdown,
        }


MOST = 10
"""Plans that are predicted again at most, over another network or with their errors."""


def rerank(result: SearchResult, network: str, top: int = MOST) -> SearchResult:
    """The result with the step times of its first plans over `network`: flow or packet."""
    if network == "closed":
        return result
    count = min(top, MOST, len(result.ranked))
    steps = [(place, predict(result.job_of(result.ranked[place]), network).step_time_s) for place in range(count)]
    return replace(result, again=tuple(sorted(steps, key=lambda one: one[1])), network=network)
