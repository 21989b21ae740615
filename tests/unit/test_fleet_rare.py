"""What happens in some steps only: stalls, saves, logs, evaluations, bursts, judged by what they cost the mean step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.fleet_synthetic import CLEAN, RareFault, draw_clean_job, draw_rare_fault, recorded_mean, recorded_steps
from windtunnel.fleet.findings.finding import Finding, Verdict
from windtunnel.fleet.findings.history import StepHistory, load_history
from windtunnel.fleet.findings.judge import Judgement, judge
from windtunnel.fleet.findings.rare import rare_causes, step_times
from windtunnel.fleet.findings.steps import step_table
from windtunnel.records.sections import Section, Sections
from windtunnel.runs.fleet.show import alarm_lines

PARTS = {
    None: "outside", Section.INFERENCE: "inference", Section.CHECKPOINT: "saves", Section.HOST_GAP: "gaps", Section.DATA: "data",
    Section.FORWARD: "forward",
}  # fmt: skip


def first_of(judged: Judgement) -> Finding:
    """What is named first, of what is wrong and what is part of the job."""
    return max((*judged.findings, *judged.routine), key=lambda one: one.cost)


def is_right(fault: RareFault, found: Finding) -> bool:
    """Named first, on the right ranks, with its period and part, and a cost within 20 %."""
    where = (found.ranks, found.part, found.period) == (fault.ranks, PARTS[fault.part], fault.period)
    return where and abs(found.cost / fault.cost - 1.0) <= 0.2


def test_rare_causes_are_named_first_with_their_cost() -> None:
    """Every 2nd to 200th step, 1 to 50 % of the time, one rank or all, with jitter."""
    wrong = []
    for seed in range(1000, 1020):
        fault = draw_rare_fault(seed)
        judged = judge(fault.sections)
        if not (judged.findings or judged.routine) or not is_right(fault, first_of(judged)):
            wrong.append((seed, fault.ranks, fault.part, fault.period, judged.findings[:2]))
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize("kind", CLEAN)
def test_clean_jobs_name_no_rank(kind: str) -> None:
    for seed in range(1000, 1004):
        found = judge(draw_clean_job(kind, seed)).findings
        assert not [one for one in found if one.period or one.steps or one.ranks], (kind, seed, found)


def test_costs_together_are_at_most_what_the_mean_step_takes_more_than_the_fastest() -> None:
    for seed in range(1000, 1012):
        table = step_table(draw_rare_fault(seed).sections)
        length = table.step[0, 2:]
        assert sum(one.cost for one in rare_causes(table)) <= length.mean() - np.quantile(length, 0.1) + 1e-9


def parts_of(ranks: int = 4, steps: int = 240, work: float = 0.07) -> dict[Section | None, np.ndarray]:
    dice = np.random.default_rng(3)
    jitter = dice.lognormal(0, 0.02, (ranks, steps))
    return {
        None: 0.001 * jitter,
        Section.DATA: 0.001 * jitter,
        Section.FORWARD: work / 3 * jitter,
        Section.BACKWARD: work * jitter / 1.5,
    }


def judged_with(part: Section | None, rank: int, at: np.ndarray, seconds: float | np.ndarray) -> tuple[Judgement, float, float]:
    """The judgement on a job of 240 steps of 73 ms in which a part of `rank` (-1: all) takes `seconds` longer in the steps `at`;
    its mean step, and that without it."""
    parts = parts_of()
    without = recorded_mean(parts)
    extra = np.zeros(parts[None].shape)
    extra[np.ix_(range(4) if rank < 0 else [rank], at)] = seconds
    parts[part] = parts.get(part, 0.0) + extra
    return judge(recorded_steps(parts)), recorded_mean(parts), without


@pytest.mark.parametrize(
    ("part", "every", "seconds", "verdict", "place"),
    [
        (None, 40, 3.0, Verdict.OUTSIDE, "between the step's begin and data"),
        (None, 10, 0.4, Verdict.OUTSIDE, "between the step's begin and data"),
        (Section.CHECKPOINT, 10, 0.65, Verdict.SAVING, ""),
        (Section.INFERENCE, 4, 0.1, Verdict.EVALUATION, ""),
    ],
    ids=["stall", "logger", "save", "validation"],
)
def test_one_rank_that_loses_time_now_and_then_is_named(
    part: Section | None, every: int, seconds: float, verdict: Verdict, place: str
) -> None:
    judged, mean, without = judged_with(part, 2, np.arange(every - 1, 240, every), seconds)
    first = judged.findings[0]
    assert (first.verdict, first.ranks, first.period, first.since_step) == (verdict, (2,), every, every - 1)
    assert first.cost == pytest.approx(mean - without, rel=0.05) and first.event == pytest.approx(seconds, rel=0.02)
    assert f"(first step {every - 1})" in first.text and any(place in text for text in first.evidence)
    assert len(judged.findings) == 1 and not judged.routine
    assert judged.times.mean == pytest.approx(mean) and judged.times.p50 == pytest.approx(without, rel=0.05)
    slow = judged.times.slowest[0]
    assert (slow.rank, slow.part) == (2, PARTS[part]) and slow.lost == pytest.approx(seconds, rel=0.05)


def test_what_all_ranks_do_regularly_is_part_of_the_job() -> None:
    judged, mean, without = judged_with(Section.INFERENCE, -1, np.arange(49, 240, 50), 0.15)
    (told,) = judged.routine
    assert judged.findings == () and told.text.startswith("all ranks evaluate for 150.") and "at every 50th step" in told.text
    assert told.cost == pytest.approx(mean - without, rel=0.1)
    (logs,) = judged_with(None, -1, np.arange(9, 240, 10), 0.4)[0].findings
    assert logs.ranks == () and logs.verdict is Verdict.OUTSIDE and logs.period == 10


@pytest.mark.parametrize("order", ["by turns", "at random", "longer and longer"])
@pytest.mark.parametrize("slower", [False, True])
def test_steps_of_three_lengths_are_no_finding_and_slower_computing_of_all_is_never_unexplained(order: str, slower: bool) -> None:
    for seed in range(3):
        dice, at = np.random.default_rng(seed), np.arange(240)
        kind = {"by turns": at % 3, "at random": dice.integers(3, size=240), "longer and longer": at // 80}[order]
        factor = np.array([1.0, 1.5, 2.0])[kind] * np.where(slower & (at > 120), 1.4, 1.0)
        parts = parts_of()
        for part in (Section.FORWARD, Section.BACKWARD):
            parts[part] = parts[part] * factor
        found = judge(recorded_steps(parts)).findings
        assert {one.verdict for one in found} <= ({Verdict.COMPUTE} if slower else set()), found


def test_stalls_without_a_period_are_named_where_one_rank_has_them() -> None:
    dice = np.random.default_rng(5)
    judged, mean, without = judged_with(Section.DATA, 1, dice.choice(np.arange(4, 240), 14, replace=False), 0.5)
    (found,) = judged.findings
    assert (found.verdict, found.ranks, found.period, found.steps) == (Verdict.DATA, (1,), 0, 14)
    assert found.cost == pytest.approx(mean - without, rel=0.1) and "now and then (14 steps" in found.text
    burst = judged_with(Section.FORWARD, 3, np.arange(60, 90), 0.08)[0].findings[0]
    assert (burst.ranks, burst.steps) == ((3,), 30) and "in steps 60 to 89" in burst.text


def test_the_price_of_a_loader_that_is_slow_in_most_steps_is_its_mean() -> None:
    """Waits of 5 ms in two of three steps and of 60 ms in the third: 23 ms in the mean, 5 ms in the median."""
    parts = parts_of()
    without = recorded_mean(parts)
    dice = np.random.default_rng(1)
    parts[Section.DATA][2] += np.where(dice.random(240) < 0.35, 0.05, 0.012)
    found = judge(recorded_steps(parts)).findings
    assert [(one.verdict, one.ranks) for one in found] == [(Verdict.DATA, (2,))]
    assert found[0].cost == pytest.approx(recorded_mean(parts) - without, rel=0.2)


def in_pieces(sections: Sections, size: int, last: int) -> StepHistory:
    history = StepHistory()
    for until in range(size, last + size, size):
        history.add(step_table(sections.where((sections.step >= until - 2 * size) & (sections.step < until))))
    return history


def test_a_history_counts_each_step_once_and_keeps_what_rings_forget(tmp_path: Path) -> None:
    """A stall at every 40th step of the first 240; later steps have none, and only they are in the records at the end."""
    early = recorded_steps(
        {**parts_of(), Section.DATA: np.where(np.arange(240) % 40 == 39, 1.0, 0.001) * (np.arange(4) == 1)[:, None]}
    )
    late = recorded_steps(parts_of(steps=200), first=240)
    history = in_pieces(early, 20, 240)
    assert history.last == 239 and history.total == 238
    seen, whole = history.times(), step_times(step_table(early))
    assert [one.step for one in seen.slowest] == [one.step for one in whole.slowest] and seen.p95 == pytest.approx(whole.p95)
    history.save(tmp_path / "steps.npz")
    kept = load_history(tmp_path / "steps.npz")
    assert kept is not None and kept.times().mean == pytest.approx(history.times().mean, rel=1e-6)
    judged = judge(late, past=kept)
    assert judged.steps_ended == 440 and [(one.ranks, one.period) for one in judged.findings] == [((1,), 40)]
    assert judge(late).findings == () and judged.times.slowest[0].rank == 1
    assert load_history(tmp_path / "none.npz") is None
    (tmp_path / "half.npz").write_bytes((tmp_path / "steps.npz").read_bytes()[:500])
    assert load_history(tmp_path / "half.npz") is None


def test_a_history_of_many_steps_stays_small_and_its_quantiles_are_right() -> None:
    dice = np.random.default_rng(2)
    history, lengths = StepHistory(), []
    for part in range(12):
        parts = {Section.FORWARD: 0.05 * dice.lognormal(0, 0.3, (2, 500))}
        sections = recorded_steps(parts, first=500 * part)
        history.add(step_table(sections))
        lengths.append(step_table(sections).step[0])
    every = np.concatenate(lengths)[2:]
    times = history.times()
    assert times.count == 5998 == history.total and history.table is not None and len(history.table.steps) == 2048
    assert times.mean == pytest.approx(every.mean(), rel=1e-6)
    assert [times.p50, times.p95, times.p99] == pytest.approx(np.quantile(every, [0.5, 0.95, 0.99]).tolist(), rel=0.011)
    assert times.slowest[0].seconds == pytest.approx(every.max())


def test_alarms_are_listed_with_the_times_from_which_to_which_they_lasted() -> None:
    def alarm(seconds: float, cleared: bool, rank: int = 3) -> dict[str, object]:
        return {
            "seconds": seconds,
            "verdict": "slow rank",
            "ranks": [rank],
            "hosts": [],
            "text": f"rank {rank} is slow",
            "cleared": cleared,
        }

    lines = alarm_lines([alarm(0, False), alarm(30, True), alarm(40, False, 5), alarm(90, False), alarm(100, True, 5)])
    assert len(lines) == 2 and lines[0].endswith("slow rank: rank 3 is slow") and lines[0].count(" to ") == 1
    assert lines[0].count(":") == 3 * 2 + 1 and " to " in lines[1]


def test_a_history_of_many_ranks_keeps_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.fleet.findings.history.MOST_CELLS", 400)
    history = in_pieces(recorded_steps(parts_of()), 20, 240)
    assert history.table is not None and history.table.steps.tolist() == list(range(140, 240))  # 400 cells are 100 steps of 4 ranks


def test_an_event_is_the_mean_of_its_steps() -> None:
    """Rank 2 loses 2 and 4 s in turn, at every 40th step: 3 s in the mean."""
    parts = parts_of()
    parts[None][2, 39::40] += np.array([2.0, 4.0] * 3)
    (found,) = judge(recorded_steps(parts)).findings
    assert (found.ranks, found.period) == ((2,), 40) and found.event == pytest.approx(3.0, rel=0.02)


def test_stalls_of_all_ranks_without_a_period_are_named() -> None:
    """All ranks read 0.4 or 0.6 s longer in 14 steps: an event is 0.5 s in the mean."""
    at = np.random.default_rng(5).choice(np.arange(4, 240), 14, replace=False)
    judged, mean, without = judged_with(Section.DATA, -1, at, np.array([0.4, 0.6] * 7))
    (found,) = judged.findings
    assert (found.verdict, found.ranks, found.period, found.steps) == (Verdict.DATA, (), 0, 14)
    assert found.event == pytest.approx(0.5, rel=0.02) and found.cost == pytest.approx(mean - without, rel=0.1)
