"""A watched run against its prediction: which section is named, on synthetic records of a catalogue job."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.helpers.fleet_expected import watched
from windtunnel.base.errors import SpecError
from windtunnel.draw.terminal import print_sheet
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.liveness import Beat
from windtunnel.fleet.monitor import Monitor
from windtunnel.fleet.recorded import Recorded
from windtunnel.predict import predict
from windtunnel.records.sections import Section, Sections, join_sections
from windtunnel.runs.factors import stages_of
from windtunnel.runs.fleet.comparison import FleetComparison, compare_sections
from windtunnel.runs.fleet.comparison_sheet import comparison_sheet
from windtunnel.runs.fleet.expected import expected_sections
from windtunnel.runs.fleet.usual import usual_sections
from windtunnel.runs.fleet.watching import Expectation, calls_block, cores_of_rank
from windtunnel.spec import Job, check, load_job
from windtunnel.spec.runtime import Host


@cache
def data_parallel() -> Job:
    return check(load_job("llama3-8b-8xh100", ["plan.sharding=none", "model.layers=2"]))


@cache
def pipeline() -> Job:
    changes = ["plan.sharding=none", "plan.pp=2", "model.layers=4", "plan.micro_batch=1", "plan.schedule=1f1b"]
    return check(load_job("llama3-8b-8xh100", changes))


def compared(job: Job, sections: Sections) -> FleetComparison:
    return compare_sections(sections, job, blocking=True)


def names(comparison: FleetComparison) -> list[str]:
    return [cause.key for cause in comparison.causes]


def test_expected_sections_are_those_of_the_prediction() -> None:
    job = data_parallel()
    known, answer = expected_sections(job, True), predict(job)
    kernels = {
        phase: sum(row.seconds_total for row in answer.kernels if row.phase in phase)
        for phase in (("forward",), ("dgrad", "wgrad"))
    }
    assert known.own[Section.FORWARD][0] >= 0.99 * kernels["forward",]
    assert known.own[Section.BACKWARD][0] >= 0.99 * kernels["dgrad", "wgrad"]
    assert known.own[Section.FORWARD][0] + known.own[Section.BACKWARD][0] <= answer.step_time_s
    assert known.step == answer.step_time_s
    assert all(0 < known.errors[one] < 1 for one in known.own)


def test_a_run_as_predicted_has_no_causes() -> None:
    comparison = compared(data_parallel(), watched(data_parallel()))
    assert comparison.causes == ()
    assert not any(part.leaves for part in comparison.sections)


@pytest.mark.parametrize("name", ["forward", "backward", "optimizer"])
def test_a_section_that_is_longer_is_named_and_priced(name: str) -> None:
    job = data_parallel()
    comparison = compared(job, watched(job, grows=lambda rank, step, section: 1.5 if section == name else 1.0))
    assert names(comparison) == [name]
    cause = comparison.causes[0]
    part = next(one for one in comparison.sections if one.name == name)
    assert cause.factor == pytest.approx(1.5, rel=0.05)
    assert cause.seconds == pytest.approx(part.median - part.expected, rel=0.3)


def test_calls_have_the_key_of_a_calibration() -> None:
    job = data_parallel()
    comparison = compared(job, watched(job, grows=lambda rank, step, section: 2.0 if section == "call" else 1.0))
    assert names(comparison) == ["calls.dp"]
    assert comparison.causes[0].factor == pytest.approx(2.0, rel=0.05)


def test_calls_that_cost_less_than_a_hundredth_of_the_step_are_shown_but_no_cause() -> None:
    job = data_parallel()
    known = replace(expected_sections(job, True), call_error=0.0)
    share = sum(each * count for each, count in known.calls.values()) / known.step
    for cost, named in ((0.008, []), (0.015, ["calls.dp"])):
        longer = 1.0 + cost / share
        run = watched(job, grows=lambda rank, step, section, by=longer: by if section == "call" else 1.0, noise=0.001)
        comparison = compare_sections(run, job, blocking=True, expected=known)
        assert any(row.leaves for row in comparison.calls) and names(comparison) == named


def test_calls_of_the_default_group_count_as_data_parallel_ones() -> None:
    job = data_parallel()
    run = replace(watched(job), group_names=("world",))
    comparison = compared(job, run)
    assert comparison.causes == ()
    assert {row.axis for row in comparison.calls if row.measured_count == row.expected_count > 0} == {"dp"}


def test_one_slow_rank_is_told_apart_from_all_ranks() -> None:
    job = data_parallel()
    slow = watched(job, grows=lambda rank, step, section: 1.4 if rank == 5 and section in ("forward", "backward") else 1.0)
    comparison = compared(job, slow)
    assert names(comparison) == ["rank 5"]
    assert comparison.causes[0].seconds > 0


def test_late_data_is_a_cause() -> None:
    job = data_parallel()
    assert names(compared(job, watched(job, data=0.2 * expected_sections(job, True).step))) == ["data"]


def test_time_between_sections_has_no_expectation_and_is_told_apart() -> None:
    job = data_parallel()
    known = expected_sections(job, True)
    comparison = compared(job, watched(job, idle=0.2 * known.step))
    assert comparison.causes == () and comparison.explained_step == known.step
    row = next(one for one in comparison.sections if one.name == "between")
    assert not row.leaves and row.rest == row.median - row.expected == pytest.approx(0.2 * known.step, rel=0.1)
    assert [(one.key, one.seconds) for one in comparison.apart] == [("between", row.rest)]
    assert f"{row.rest / comparison.step.median:.1%} of the step" in comparison.apart[0].words
    assert "--usual" in comparison.apart[0].test
    assert [one["key"] for one in comparison.as_dict()["apart"]] == ["between"]
    assert compared(job, watched(job, idle=0.002 * known.step)).apart == ()


@pytest.mark.parametrize("longer", ["", "forward", "backward", "optimizer"])
def test_a_longer_section_comes_first_beside_time_between_sections(longer: str) -> None:
    """More of the step lies between sections than what the longer section costs."""
    job = data_parallel()
    idle = 0.15 * expected_sections(job, True).step
    found = compared(job, watched(job, idle=idle, grows=lambda rank, step, section: 1.2 if section == longer else 1.0))
    assert names(found) == ([longer] if longer else [])
    assert [one.key for one in found.apart] == ["between"]
    assert found.apart[0].seconds > max([cause.seconds for cause in found.causes], default=0.0)


@pytest.mark.parametrize("longer", ["", "forward", "backward", "optimizer", "between"])
def test_an_earlier_run_is_an_expectation_of_the_time_between_sections_too(longer: str) -> None:
    job = data_parallel()
    idle = 0.1 * expected_sections(job, True).step
    usual = usual_sections(watched(job, idle=idle), job, True)
    more = 1.2 if longer == "between" else 1.0
    run = watched(job, idle=more * idle, grows=lambda rank, step, section: 1.2 if section == longer else 1.0, seed=1)
    found = compare_sections(run, job, blocking=True, expected=usual)
    assert names(found)[:1] == ([longer] if longer else []) and found.apart == ()
    assert longer != "between" or found.causes[0].seconds == pytest.approx(0.2 * idle, rel=0.05)


def test_launches_inside_of_passes_are_not_expected_between_them() -> None:
    """A small step whose host is slow: much of its waiting for launches is in passes, whose time holds it already."""
    job = check(load_job("llama3-8b-8xh100", ["plan.sharding=none", "model.layers=2", "plan.seq=64", "plan.micro_batch=1"]))
    slow = job.model_copy(update={"runtime": job.runtime.model_copy(update={"host": Host(launch=1e-3, micro_batch=2e-3)})})
    known, answer = expected_sections(slow, True), predict(slow)
    assert answer.by_stage[0]["host"] > 0.2 * known.step
    assert 0 < known.between[0] < 0.5 * answer.by_stage[0]["host"]
    calls = sum(seconds for name, seconds in answer.by_stage[0].items() if name.startswith("exposed_"))
    timed = sum(float(one[0]) for one in known.own.values()) + float(known.between[0])
    assert timed + calls == pytest.approx(known.step, rel=0.02)  # each second of the step once
    comparison = compared(slow, watched(slow, idle=0.5 * known.step + float(known.between[0])))
    assert "ms of its launches" in comparison.apart[0].words
    assert comparison.apart[0].seconds == pytest.approx(0.5 * known.step, rel=0.05)


def test_a_stage_that_is_off_is_named_alone() -> None:
    job = pipeline()
    stage = stages_of(np.arange(job.cluster.gpus), job)
    run = watched(job, grows=lambda rank, step, section: 1.6 if section == "backward" and stage[rank] == 1 else 1.0)
    found = [cause for cause in compared(job, run).causes if cause.key.startswith("backward")]
    assert [cause.key for cause in found] == ["backward stage 1"]
    assert found[0].seconds > 0


def test_the_dictionary_has_the_keys_of_compare() -> None:
    plain = compared(data_parallel(), watched(data_parallel(), idle=0.05, data=0.05)).as_dict()
    shared = {"job", "measured_step_s", "steps", "expected_step_s", "explained_step_s", "calls", "causes"}
    assert shared <= set(plain)
    assert {"key", "factor", "seconds", "words", "test"} == set(plain["causes"][0]) == set(plain["apart"][0])


def on_half_a_core(sections: Sections) -> Sections:
    """Forward and backward take twice as long; the second half of each is a wait for a core. Steps and calls move with them."""
    mine = np.isin(sections.section, (Section.FORWARD, Section.BACKWARD))
    seconds = np.where(mine | (sections.section == Section.STEP), 2 * sections.seconds, sections.seconds)
    slower = replace(sections, begin=2 * sections.begin, seconds=seconds)
    waits = slower.where(mine)
    kind, names = np.full(len(waits), Section.HOST_GAP, np.uint8), np.zeros(len(waits), np.int32)
    half = waits.seconds / 2
    waits = replace(waits, section=kind, name=names, begin=waits.begin + half, seconds=half, host_seconds=half)
    return join_sections([slower, replace(waits, names=("no core",))])


@pytest.mark.parametrize("longer", ["", "forward", "backward"])
def test_a_longer_section_is_named_where_ranks_share_cores(longer: str) -> None:
    job = data_parallel()
    alone = expected_sections(job, True)
    expected = expected_sections(job, True, cores=0.5)
    assert expected.starved[0] == pytest.approx(sum(one[0] for one in alone.own.values()), rel=0.1)
    run = on_half_a_core(watched(job, grows=lambda rank, step, section: 1.2 if section == longer else 1.0))
    found = compare_sections(run, job, blocking=True, cores=0.5)
    for part in found.sections:
        if part.name in ("forward", "backward"):
            assert part.expected == alone.own[Section[part.name.upper()]][0]
    sections = [name for name in names(found) if name in ("forward", "backward", "optimizer")]
    assert sections == ([longer] if longer else [])
    for cause in found.causes:  # what a rank works longer it also waits longer
        if cause.key == longer:
            assert cause.seconds == pytest.approx(2.0 * 0.2 * alone.own[Section[longer.upper()]][0], rel=0.3)


def test_ranks_share_the_cores_that_all_of_them_may_use() -> None:
    run = recorded(watched(data_parallel(), steps=4), 3)
    for facts, cores in (
        ({"devices": ["cpu"], "cores": [[0, 1], [4, 5]]}, 0.5),  # eight ranks of one machine on four cores
        ({"devices": ["cpu"], "cores": [[0, 63]]}, 1.0),
        ({"devices": ["cpu"]}, 1.0),  # each rank has its own, or the system does not say
        ({"devices": ["NVIDIA H100"], "cores": [[0, 1]]}, 1.0),
    ):
        assert cores_of_rank(replace(run, facts=facts)) == cores


def test_calls_that_are_longer_than_usual_cost_what_they_are_longer() -> None:
    job = data_parallel()
    usual = usual_sections(watched(job), job, True)
    found = compare_sections(
        watched(job, grows=lambda rank, step, section: 2.0 if section == "call" else 1.0), job, blocking=True, expected=usual
    )
    seconds = sum(each * count for each, count in usual.calls.values())
    assert names(found) == ["calls.dp"] and found.causes[0].seconds == pytest.approx(seconds, rel=0.1)


def test_waits_for_a_core_are_a_cause() -> None:
    comparison = compared(data_parallel(), on_half_a_core(watched(data_parallel())))
    assert names(comparison)[0] == "no core" and "wait for a core" in comparison.causes[0].words


def test_the_terminal_names_section_and_cause() -> None:
    from io import StringIO

    from rich.console import Console

    job, text = data_parallel(), StringIO()
    slow = watched(job, grows=lambda rank, step, section: 1.5 if section == "backward" else 1.0)
    print_sheet(comparison_sheet(compared(job, slow)), Console(file=text, width=140))
    assert "1. the backward pass takes 1.5" in text.getvalue()
    assert "between sections" not in text.getvalue()


def test_the_terminal_says_how_much_lies_between_sections_and_what_to_do() -> None:
    from io import StringIO

    from rich.console import Console

    job, text = data_parallel(), StringIO()
    run = watched(job, idle=0.2 * expected_sections(job, True).step)
    print_sheet(comparison_sheet(compared(job, run)), Console(file=text, width=140))
    said = text.getvalue()
    assert "nothing: every section and call is within its error bar" in said
    assert "of the step between sections" in said and "known in part" in said
    assert "name an earlier run of the job with --usual RUN" in said
    text.truncate(0)
    usual = usual_sections(run, job, True)
    print_sheet(comparison_sheet(compare_sections(run, job, blocking=True, expected=usual)), Console(file=text, width=140))
    assert "between sections" not in text.getvalue() and "known in part" not in text.getvalue()


def test_too_few_steps_and_too_many_ranks_are_refused() -> None:
    job = data_parallel()
    with pytest.raises(SpecError, match="settled steps"):
        compared(job, watched(job, steps=3))
    small = check(load_job("llama3-8b-8xh100", ["cluster.gpus=4", "plan.global_batch=8"]))
    with pytest.raises(SpecError, match="8 ranks"):
        compared(small, watched(job))


def recorded(sections: Sections, last: int) -> Recorded:
    beats = {rank: Beat(rank, 0.0, last, last, "running", None, "node0") for rank in range(8)}
    shown = sections.where(sections.step <= last)
    return Recorded("run", 8, shown, (), beats, {"devices": ["cpu"]}, 1.8e9 + last)


def test_the_monitor_tells_what_leaves_the_prediction_and_takes_it_back() -> None:
    job = data_parallel()
    run = watched(job, steps=90, grows=lambda rank, step, section: 1.5 if section == "backward" and 20 <= step < 50 else 1.0)
    monitor = Monitor(against=Expectation(job))
    alarms = [alarm for last in range(5, 90, 5) for alarm in monitor.look(recorded(run, last))]
    backward = [alarm for alarm in alarms if alarm.finding is not None and alarm.finding.part == "backward 0"]
    assert [alarm.cleared for alarm in backward] == [False, True]
    assert all(alarm.verdict is Verdict.UNEXPECTED for alarm in backward)
    others = [alarm for alarm in alarms if alarm.finding and alarm.finding.part not in ("backward 0", "step -1")]
    assert {alarm.verdict for alarm in others} == {Verdict.COMPUTE}  # the run itself says too that all ranks' work has jumped


def test_the_monitor_tells_of_time_between_sections_with_the_step_that_it_makes_longer() -> None:
    job = data_parallel()
    step = expected_sections(job, True).step
    found = Expectation(job)(recorded(watched(job, idle=0.5 * step), 20))
    assert [one.part for one in found] == ["step -1"]
    assert "of the step between sections" in found[0].text
    assert "between" not in Expectation(job)(recorded(watched(job, grows=lambda *_: 1.5), 20))[0].text


def test_calls_block_on_processors_only() -> None:
    plain = recorded(watched(data_parallel(), steps=4), 3)
    assert calls_block(plain)
    assert not calls_block(replace(plain, facts={"devices": ["cuda:0"]}))
    assert len(join_sections([plain.sections])) == len(plain.sections)


@pytest.mark.parametrize("longer", ["", "forward", "backward"])
def test_against_the_usual_a_factor_of_the_whole_job_cancels(longer: str) -> None:
    """Both runs take half as long again as predicted, on half a core; the later one has one section 20 % longer."""
    job = data_parallel()

    def run(more: str) -> Sections:
        return on_half_a_core(watched(job, grows=lambda rank, step, section: 1.5 * (1.2 if section == more else 1.0)))

    usual = usual_sections(run(""), job, True)
    found = compare_sections(run(longer), job, blocking=True, expected=usual)
    assert names(found)[:1] == ([longer] if longer else [])
    if longer:
        part = next(one for one in found.sections if one.name == longer)
        assert found.causes[0].seconds == pytest.approx(part.median - part.expected) and "is usual" in found.causes[0].words
    with pytest.raises(SpecError, match="settled steps"):
        usual_sections(watched(job), job, True, last=2)
