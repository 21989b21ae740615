"""Time of a step that is no computing: data, Python between the sections, saves; and declines on noisy machines."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.helpers.fleet_synthetic import job
from windtunnel.base.arrays import Floats
from windtunnel.draw.terminal import print_sheet
from windtunnel.fleet.api import JudgedRun
from windtunnel.fleet.findings.decline import decline, fading_machines
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.judge import judge
from windtunnel.fleet.findings.slow_links import match_transfers
from windtunnel.fleet.findings.steps import step_table
from windtunnel.fleet.recorded import Recorded
from windtunnel.records.sections import NO_CORE_IN_STEP, Section, Sections, join_sections
from windtunnel.runs.fleet.show import fleet_dict, longest_waits
from windtunnel.runs.fleet.show_sheet import watched_sheet


def without_section(sections: Sections, section: Section) -> Sections:
    """What the monitor would see if it did not know `section`: its time is in no section then."""
    return sections.where(sections.section != section)


def waits_in_steps(sections: Sections, rank: int, seconds: float) -> Sections:
    """Waits of a rank for a core, `seconds` in each of its steps."""
    steps = sections.where((sections.section == Section.STEP) & (sections.rank == rank))
    kind = np.full(len(steps), Section.HOST_GAP, np.uint8)
    waits = replace(steps, section=kind, name=np.zeros(len(steps), np.int32), seconds=np.full(len(steps), seconds))
    return replace(waits, host_seconds=waits.seconds, names=(NO_CORE_IN_STEP,))


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_waits_for_data_is_named_with_its_cost(rank: int) -> None:
    found = judge(job(4, 40, data=lambda one, step: 0.08 if one == rank else 0.0005)).findings
    assert [(one.verdict, one.ranks) for one in found] == [(Verdict.DATA, (rank,))]
    assert found[0].cost == pytest.approx(0.08, rel=0.1) and "waits 80.0 ms of a step for the next batch" in found[0].text
    assert any("the others wait" in text for text in found[0].evidence)


@pytest.mark.parametrize("rank", [1, 2])
def test_python_between_the_sections_of_one_rank_is_named(rank: int) -> None:
    sections = job(4, 40, data=lambda one, step: 0.06 if one == rank else 0.001)
    found = judge(without_section(sections, Section.DATA)).findings
    assert [(one.verdict, one.ranks) for one in found] == [(Verdict.OUTSIDE, (rank,))] and "outside of forward" in found[0].text


@pytest.mark.parametrize(("seconds", "verdict"), [(0.1, Verdict.DATA), (0.005, None)])
def test_all_ranks_in_data_are_named_together(seconds: float, verdict: Verdict | None) -> None:
    found = judge(job(4, 40, data=lambda one, step: seconds)).findings
    assert [(one.verdict, one.ranks) for one in found] == ([(verdict, ())] if verdict else [])
    if verdict:
        assert found[0].text.startswith("all ranks wait 100.0 ms of 2") and "of a step" not in found[0].text
        outside = judge(without_section(job(4, 40, data=lambda one, step: seconds), Section.DATA)).findings
        assert [(one.verdict, one.ranks) for one in outside] == [(Verdict.OUTSIDE, ())]


def test_a_rank_that_saves_in_each_step_is_named_and_so_is_one_that_saves_now_and_then_where_it_costs_much() -> None:
    def saving(every: int) -> Sections:
        sections = job(4, 60, gap=lambda one, step: 0.05 if one == 0 and step % every == 0 else 0.0)
        kind = np.where(sections.section == Section.HOST_GAP, Section.CHECKPOINT, sections.section).astype(np.uint8)
        return replace(sections, section=kind)

    assert [(one.verdict, one.ranks) for one in judge(saving(1)).findings] == [(Verdict.SAVING, (0,))]
    (rare,) = judge(saving(10)).findings
    assert (rare.verdict, rare.ranks, rare.period, rare.since_step) == (Verdict.SAVING, (0,), 10, 10)
    assert rare.cost == pytest.approx(0.05 * 5 / 58, rel=0.1) and "saves for" in rare.text and "at every 10th step" in rare.text
    assert judge(saving(50)).findings == ()


def test_a_little_time_more_in_small_sections_is_not_named() -> None:
    """Rank 2's data takes ten times as long as that of its equals: half a millisecond of a step of a hundred."""
    assert judge(job(4, 40, data=lambda one, step: 0.0005 if one == 2 else 0.00005)).findings == ()
    small = job(4, 40, work=0.0004, noise=0.01, transfer=lambda a, b, step: 0.1, slow=lambda one, step: 1 + (one == 1))
    assert judge(small).findings == ()


def test_time_without_a_core_is_no_python() -> None:
    """The time outside of sections of rank 1 is that of a process without a core."""
    sections = without_section(job(4, 40, data=lambda one, step: 0.06 if one == 1 else 0.001), Section.DATA)
    known = waits_in_steps(sections, 1, 0.06)
    table = step_table(join_sections([sections, known]))
    row = list(table.ranks).index(1)
    assert np.nanmedian(table.outside[row]) < 0.002 and np.nanmedian(table.unfed[row]) == pytest.approx(0.06)
    (found,) = judge(join_sections([sections, known])).findings
    assert (found.verdict, found.ranks) == (Verdict.NO_CORE, (1,)) and "waits for a core 60.0 ms of a step" in found.text


@pytest.mark.parametrize(("wait", "first"), [(0.09, Verdict.OUTSIDE), (0.5, Verdict.NO_CORE)])
def test_work_on_a_core_stands_before_the_wait_for_it_that_follows_from_it(wait: float, first: Verdict) -> None:
    """Rank 1 works 40 ms in Python in each step and waits for a core. The longer wait has another cause."""
    sections = without_section(job(4, 40, data=lambda one, step: 0.04 + wait if one == 1 else 0.001), Section.DATA)
    known = waits_in_steps(sections, 1, wait)
    found = judge(join_sections([sections, known])).findings
    assert {one.verdict for one in found} == {Verdict.OUTSIDE, Verdict.NO_CORE} and found[0].verdict is first
    assert {one.ranks for one in found} == {(1,)}


def test_a_machine_with_more_processes_than_cores_is_named() -> None:
    """The ranks of node1 wait 40 ms of each step, those of node0 2 ms."""
    sections = job(4, 40, per_host=2, data=lambda one, step: 0.041 if one > 1 else 0.003)
    steps = sections.where(sections.section == Section.STEP)
    seconds = np.where(steps.rank > 1, 0.04, 0.002)
    kind = np.full(len(steps), Section.HOST_GAP, np.uint8)
    waits = replace(steps, section=kind, name=np.zeros(len(steps), np.int32), seconds=seconds, host_seconds=seconds)
    found = judge(join_sections([sections, replace(waits, names=(NO_CORE_IN_STEP,))])).findings
    assert [(one.verdict, one.ranks, one.hosts) for one in found] == [(Verdict.NO_CORE, (2, 3), ("node1",))]
    assert "all ranks of node1 wait for a core 40.0 ms or more of each step" in found[0].text


def test_rows_of_a_step_add_up_and_waits_agree_with_the_verdict() -> None:
    sections = job(4, 40, data=lambda one, step: 0.08 if one == 3 else 0.0005)
    recorded = Recorded("job", 4, sections, (), {}, {"devices": ["cpu"]}, sections.zero)
    judged = judge(sections)
    waits = longest_waits(sections, judged.table)
    assert {last for _, last, _ in waits} == {3} and waits[0][2] == pytest.approx(0.08, rel=0.15)
    said = Console(file=io.StringIO(), width=120)
    print_sheet(watched_sheet(JudgedRun(recorded, judged, None, "")), said)
    text = said.file.getvalue()  # type: ignore[attr-defined]
    assert "outside of sections" in text and "waits" in text and "for rank 3." in text and "have no row" not in text
    told = fleet_dict(recorded, judged)
    assert told["step_time_s"] == pytest.approx(float(np.nanmean(judged.table.step[:, 2:]))) and len(told["startup_steps_s"]) == 2
    assert told["waits"][0]["for"] == 3 and told["ranks"][3]["data_s"] == pytest.approx(0.08)
    assert told["ranks"][0]["outside_s"] < 1e-6


STEPS = 120


def load_of(kind: str, dice: np.random.Generator) -> Floats:
    """Relative load of a machine over the steps, as other jobs make it."""
    if kind == "tails":
        return 0.03 * dice.standard_t(2, STEPS).clip(-1, 12)
    if kind == "correlated":
        values = dice.standard_normal(STEPS) * 0.036
        for step in range(1, STEPS):
            values[step] += 0.8 * values[step - 1]
        return values
    values, step, busy = np.zeros(STEPS), 0, bool(dice.random() < 0.5)
    while kind == "bursts" and step < STEPS:
        length = int(dice.exponential(15)) + 1
        values[step : step + length], step, busy = 0.15 * busy * dice.lognormal(0, 0.4), step + length, not busy
    return values


def noisy(kind: str, seed: int, growth: float = 0.0) -> Sections:
    """A job on such a machine; `growth`: share of a step by which transfers get longer in its middle."""
    dice = np.random.default_rng(seed)
    load = load_of(kind, dice)
    own = dice.lognormal(0, 0.04, (4, STEPS)) * (1 + np.maximum(load, -0.5))
    moved = 0.004 * dice.lognormal(0, 0.3, STEPS) * (1 + 3 * np.maximum(load, -0.2))
    return job(
        4, STEPS, seed=seed, noise=0.01, work=0.03, per_host=2, slow=lambda rank, step: float(own[rank, step]),
        transfer=lambda a, b, step: float(moved[step]) + 0.04 * growth * (step > 60),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["still", "tails", "correlated", "bursts"])
def test_machines_with_other_work_show_no_decline(kind: str) -> None:
    """At most one of 30 runs: bursts that happen to lie at a run's end cannot be told from a change by the steps alone."""
    tables = (noisy(kind, seed) for seed in range(30))
    assert sum(decline(step_table(one), match_transfers(one)) is not None for one in tables) <= 1


@pytest.mark.parametrize(("kind", "growth"), [("still", 0.1), ("tails", 0.15), ("correlated", 0.3), ("bursts", 0.4)])
def test_declines_that_exceed_the_noise_are_found(kind: str, growth: float) -> None:
    tables = [noisy(kind, seed, growth) for seed in range(12)]
    found = [decline(step_table(one), match_transfers(one)) for one in tables]
    assert sum(one is not None and one.verdict is Verdict.BANDWIDTH for one in found) >= 10


def test_a_machine_that_gets_busy_is_told_as_such() -> None:
    """Transfers take longer from step 60 on, and so do the waits of all processes for a core."""
    sections = noisy("still", 1, 0.3)
    steps = sections.where(sections.section == Section.STEP)
    seconds = np.where(steps.step > 60, 0.008, 0.0005)
    kind = np.full(len(steps), Section.HOST_GAP, np.uint8)
    waits = replace(steps, section=kind, name=np.zeros(len(steps), np.int32), seconds=seconds, host_seconds=seconds)
    busy = join_sections([sections, replace(waits, names=(NO_CORE_IN_STEP,))])
    found = decline(step_table(busy), match_transfers(busy))
    assert found is not None and found.verdict is Verdict.NO_CORE


def test_a_growth_within_the_waits_for_cores_of_each_step_is_no_decline() -> None:
    """Transfers take 3 ms longer from step 60 on; ranks wait 8 ms of each step for a core, before and after."""
    sections = noisy("still", 1, 0.1)
    steps = sections.where(sections.section == Section.STEP)
    kind, seconds = np.full(len(steps), Section.HOST_GAP, np.uint8), np.full(len(steps), 0.008)
    waits = replace(steps, section=kind, name=np.zeros(len(steps), np.int32), seconds=seconds, host_seconds=seconds)
    busy = join_sections([sections, replace(waits, names=(NO_CORE_IN_STEP,))])
    assert decline(step_table(sections), match_transfers(sections)) is not None
    assert decline(step_table(busy), match_transfers(busy)) is None


def test_one_machine_has_no_machines_whose_links_fade() -> None:
    sections = job(4, 60, per_host=4)
    table = step_table(sections)
    assert fading_machines(table.steps, match_transfers(sections)) == (1.0, ())
