"""While a job runs: what leaves its prediction, as findings that a monitor tells and takes back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError
from windtunnel.fleet.findings.finding import Finding, Verdict
from windtunnel.fleet.recorded import Recorded
from windtunnel.runs.fleet.comparison import FleetComparison, SectionPart, compare_sections
from windtunnel.runs.fleet.expected import ExpectedSections, expected_sections
from windtunnel.spec import Job

STEPS = 10
"""Steps whose median must leave what the prediction allows."""


def calls_block(recorded: Recorded) -> bool:
    """Whether calls hold up the code that makes them: all ranks run on CPUs, which have no stream that runs behind."""
    devices = {str(one) for one in recorded.facts.get("devices", ())}
    return bool(devices) and devices <= {"cpu"}


def cores_of_rank(recorded: Recorded) -> float:
    """Cores of a processor for each rank where its calls block, at most 1: ranks of a machine that may run on the same cores share
    them. 1 where that is not known, or each rank has cores of its own."""
    ranges = recorded.facts.get("cores", ())  # only where all ranks state the same
    ranks = Counter(beat.host for beat in recorded.beats.values())
    if not ranges or not ranks or not calls_block(recorded):
        return 1.0
    cores = sum(int(last) - int(first) + 1 for first, last in ranges)
    return min(cores / max(ranks.values()), 1.0)


@dataclass
class Expectation:
    """What a job's prediction allows. Called with a run's records it says which sections, calls and steps are outside now.

    The prediction is made once, at the first call. `steps`: so many of the last settled steps are looked at; `profile`:
    measurements on the job's GPU.
    """

    job: Job
    steps: int = STEPS
    profile: str | Path | None = None
    _expected: ExpectedSections | None = field(default=None, init=False)

    def __call__(self, recorded: Recorded) -> list[Finding]:
        """Findings of the verdict `UNEXPECTED`, the dearest first; none while there are too few steps."""
        blocking = calls_block(recorded)
        if self._expected is None:
            self._expected = expected_sections(self.job, blocking, self.profile, cores_of_rank(recorded))
        try:
            compared = compare_sections(
                recorded.sections, self.job, blocking=blocking, last=self.steps, expected=self._expected, priced=False
            )
        except SpecError:
            if int(recorded.sections.rank.max(initial=-1)) >= self.job.cluster.gpus:
                raise
            return []
        return unexpected_findings(compared) if compared.steps >= self.steps else []


def unexpected_findings(compared: FleetComparison) -> list[Finding]:
    """The step, sections and calls of a comparison that leave what the prediction allows, the dearest first. Time for which
    there is no expectation is told with a step that is longer than allowed."""
    step = compared.step.median
    since = -1
    found = [_section(one, since) for one in compared.sections if one.leaves]
    if compared.step.leaves:
        apart = "".join(f"; {one.words}" for one in compared.apart)
        found.append(_section(compared.step, since, apart if compared.step.excess > 0 else ""))
    for row in compared.calls:
        more = (row.median - row.expected_each) * row.measured_count
        if row.leaves and abs(more) > 0.002 * step:
            text = (
                f"{row.comm} over {row.axis} takes {row.median * 1e3:.3g} ms after its last rank came, expected "
                f"{row.expected_each * 1e3:.3g} ms ±{row.error:.0%}"
            )
            found.append(
                _finding(f"{row.comm} {row.axis} {row.bytes:.0f}", row.median / row.expected_each - 1.0, more, since, text)
            )
    return sorted(found, key=lambda one: -one.cost)


def _section(one: SectionPart, since: int, more: str = "") -> Finding:
    where = "" if one.stage <= 0 else f" of stage {one.stage}"
    text = f"{one.name}{where} takes {one.median * 1e3:.4g} ms, expected {one.expected * 1e3:.4g} ms ±{one.error:.0%}{more}"
    size = one.excess if one.excess == one.excess else 0.0
    return _finding(f"{one.name} {one.stage}", size, one.median - one.expected, since, text)


def _finding(part: str, size: float, cost: float, since: int, text: str) -> Finding:
    return Finding(Verdict.UNEXPECTED, (), (), 0.95, size, cost, since, text, part=part)
