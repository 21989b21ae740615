"""The search: the same winner as brute force, its certificate, its reasons, and going on after a stop."""

import io
import math
import os
import re
import signal
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from rich.console import Console

from windtunnel.base.errors import PlanError, SpecError, UnknownName
from windtunnel.draw.page.sheet import page
from windtunnel.draw.terminal import print_sheet
from windtunnel.memory.result import USABLE
from windtunnel.predict import predict
from windtunnel.search.api import search
from windtunnel.search.change import Change
from windtunnel.search.defaults import default_fields
from windtunnel.search.find import Search, SearchLimits, plans_of
from windtunnel.search.objective import objectives
from windtunnel.search.outcome import PlanOutcome, Trial, outcome_of
from windtunnel.search.reasons import front_lines, reason_lines
from windtunnel.search.result import MOST, SPARE
from windtunnel.search.sheet import _coordinates, _plans, front_shown, search_sheet, space_sheet
from windtunnel.search.space import WITH_TP, Space
from windtunnel.search.workers import Here, Processes
from windtunnel.sheet.blocks import Plot
from windtunnel.spec import load_job

JOB = load_job("llama3-8b-8xh100", ["plan.global_batch=32"])
FIELDS = {
    "plan.tp": (1, 2, 4),
    "plan.pp": (1, 2),
    "plan.micro_batch": (1, 2),
    "plan.recompute": ("none", "full"),
    "plan.sharding": ("fsdp", "zero1"),
    "plan.sequence_parallel": (WITH_TP,),
}
SPACE = Space(JOB, FIELDS)


def brute_force(space):
    columns = space.columns()
    outcomes = [outcome_of(space.job, columns.change(number)) for number in range(len(columns))]
    return [outcome for outcome in outcomes if outcome.fits]


@pytest.fixture(scope="module")
def all_outcomes():
    return brute_force(SPACE)


@pytest.fixture(scope="module")
def result():
    return search(JOB, FIELDS, processes=1)


def test_the_winner_is_that_of_brute_force(result, all_outcomes):
    assert result.best.outcome.step_time_s == min(outcome.step_time_s for outcome in all_outcomes)


def test_the_certificate_adds_up(result, all_outcomes):
    of = result.certificate
    assert of.exact
    assert of.open == 0
    assert of.combinations == SPACE.size == 48
    assert of.plans == of.refused + of.too_large + of.predicted + of.ruled_out
    assert of.predicted < len(all_outcomes)


def test_reasons(result):
    why = result.explanation
    assert {decision.path for decision in why.decisions} <= set(FIELDS)
    losses = [decision.loss for decision in why.decisions]
    assert losses == sorted(losses, reverse=True)
    assert min(losses) >= 0.0
    assert why.known is None or why.known.loss >= 0.0


def test_decisions_are_what_brute_force_says(result):
    columns = SPACE.columns()
    best = dict(result.best.change.fields)
    for decision in result.explanation.decisions:
        others = [
            outcome.step_time_s
            for number in range(len(columns))
            if dict(columns.change(number).fields)[decision.path] != best[decision.path]
            and (outcome := outcome_of(JOB, columns.change(number))).fits
        ]
        if decision.exact and math.isfinite(decision.loss):
            assert decision.loss == pytest.approx(min(others) / result.best.outcome.step_time_s - 1.0)


def test_several_processes_find_the_same(result):
    again = search(JOB, FIELDS, processes=2, explained=False)
    assert again.best.change == result.best.change
    assert again.best.outcome == result.best.outcome


def test_a_killed_worker_costs_nothing_but_its_share(result):
    plans = plans_of([SPACE], objectives("time"))
    workers = Processes(plans.jobs, 0.0, 2)
    killed = False

    def kill_one(_share):
        nonlocal killed
        if not killed:
            killed = True
            os.kill(next(iter(workers.pool._processes)), signal.SIGKILL)
        return False

    try:
        ranked, left = Search(plans, objectives("time"), workers).run(stop=kill_one)
    finally:
        workers.close()
    assert workers.restarts == 1
    assert left == 0
    assert ranked[0].change == result.best.change


def test_a_limit_leaves_a_gap():
    job = load_job("llama2-70b-64xh100", ["plan.global_batch=128"])
    fields = {
        "plan.tp": (4, 8),
        "plan.pp": (4, 8),
        "plan.vpp": (1, 2, 5),
        "plan.micro_batch": (1, 2),
        "plan.recompute": ("none", "full"),
    }
    plans = plans_of([Space(job, fields)], objectives("time"))
    found = Search(plans, objectives("time"), Here(plans.jobs, 0.0))
    ranked, left = found.run(limits=SearchLimits(predictions=2))
    of = found.certificate(left, ranked[0])
    assert left > 0
    assert of.predicted == 2
    assert 0.0 < of.gap < 1.0
    assert not of.exact


def test_a_gap_ends_earlier(result):
    wide = search(JOB, FIELDS, processes=1, limits=SearchLimits(gap=0.2), explained=False)
    assert wide.certificate.predicted <= result.certificate.predicted
    assert wide.certificate.gap <= 0.2
    assert wide.best.outcome.step_time_s <= result.best.outcome.step_time_s / 0.8


def test_a_stopped_search_goes_on(tmp_path, result):
    path = tmp_path / "plans.parquet"
    calls = []

    def stop(share):  # up to 0.3 bounds are computed, of which nothing can be kept
        calls.append(share)
        return sum(one > 0.3 for one in calls) > 8

    first = search(JOB, FIELDS, processes=1, out=str(path), stop=stop, explained=False)
    again = search(JOB, FIELDS, processes=1, out=str(path), explained=False)
    assert first.certificate.predicted <= again.certificate.predicted
    assert again.best.change == result.best.change
    tried = []
    third = search(JOB, FIELDS, processes=1, out=str(path), explained=False, stop=lambda share: tried.append(share) or False)
    assert third.best.outcome == again.best.outcome
    import pyarrow.parquet as pq

    assert pq.read_table(path).num_rows == again.certificate.predicted


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "plans.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(SpecError, match="windtunnel search"):
        search(JOB, FIELDS, processes=1, out=str(path))


def test_the_front_is_undominated_and_complete():
    spaces = [Space(load_job("llama3-8b-8xh100", ["plan.global_batch=32", f"cluster.gpus={n}"]), FIELDS) for n in (8, 16)]
    result = search([space.job for space in spaces], FIELDS, "tokens,dollars", processes=1, labels=("8", "16"))
    every = []
    for space in spaces:
        tokens = 32 * space.job.plan.seq
        rate = space.job.cluster.gpus * space.job.cluster.price_per_gpu_hour / 3600.0
        every += [(o.step_time_s / tokens, o.step_time_s * rate / tokens * 1e6) for o in brute_force(space)]
    values = np.array(every)
    front = {
        tuple(np.round(np.log(one), 9)) for one in values if not ((values <= one).all(axis=1) & (values < one).any(axis=1)).any()
    }
    assert {tuple(np.round(np.log(one.values), 9)) for one in result.ranked[: result.front]} == front


def test_memory_may_bind():
    job = load_job("llama2-70b-64xh100", ["plan.global_batch=128"])
    fields = {"plan.tp": (4, 8), "plan.pp": (4, 8), "plan.micro_batch": (1, 2, 4), "plan.recompute": ("none", "full")}
    result = search(job, fields, processes=1, margin=0.4)
    loose = search(job, fields, processes=1, explained=False)
    assert result.best.outcome.memory <= 0.6 * job.cluster.gpu.memory
    assert loose.best.outcome.step_time_s <= result.best.outcome.step_time_s
    assert result.explanation.relaxed.gain > 0.0
    told = result.as_dict()["explanations"][0]
    assert told["memory_binds"]["gain"] == result.explanation.relaxed.gain and told["memory_binds"]["missing"] > 0.0
    assert told["limits_bind"] is None
    assert result.explanation.relaxed.candidate.outcome.step_time_s == pytest.approx(loose.best.outcome.step_time_s)


def test_a_winner_that_fills_the_memory_is_told_with_the_price_of_some_room():
    job = load_job("llama2-70b-64xh100", ["plan.global_batch=128", "plan.seq=8192"])
    fields = {"plan.tp": (4, 8), "plan.pp": (4, 8), "plan.cp": (1, 2), "plan.micro_batch": (1, 2), "plan.dp": (None,)}
    tight = search(job, fields, processes=1)
    room = search(job, fields, processes=1, margin=SPARE)
    usable = job.cluster.gpu.memory * USABLE
    assert tight.explanation.roomier.free < SPARE * usable
    assert tight.explanation.roomier.candidate.change == room.best.change
    assert tight.explanation.roomier.loss == room.best.values[0] / tight.best.values[0] - 1.0 > 0.0
    assert room.explanation.roomier is None
    assert "--margin 0.05" in "\n".join(reason_lines(tight, tight.explanation))


def test_fields_of_a_plan_are_those_that_say_something(result):
    """Without what other fields imply, switches that stay, an even layout and the framework's own schedule."""

    def fields(**changes):
        change = Change.of(**changes)
        return dict(result.fields(replace(result.best, change=change)))

    assert fields(plan__tp=2, plan__dp=None, plan__stages=None, plan__schedule="auto") == {"plan.tp": 2}
    assert fields(plan__stages=((4, 4),), plan__schedule="1f1b") == {"plan.stages": ((4, 4),), "plan.schedule": "1f1b"}
    now = JOB.runtime.overlap_p2p
    assert fields(runtime__overlap_p2p=now) == {} and fields(runtime__overlap_p2p=not now) == {"runtime.overlap_p2p": not now}
    assert fields(plan__recompute="selective", plan__recompute_modules=("mlp",)) == {
        "plan.recompute": "selective", "plan.recompute_modules": ("mlp",)
    }  # fmt: skip
    assert fields(plan__recompute="full", plan__recompute_modules=("mlp",)) == {"plan.recompute": "full"}


def test_nothing_fits():
    job = load_job("llama2-70b-64xh100", ["cluster.gpus=8", "plan.global_batch=64", "plan.pp=1", "plan.tp=8"])
    with pytest.raises(PlanError, match=r"the smallest lacks \d+\.\d GiB") as raised:
        search(job, {"plan.micro_batch": (1, 2)}, processes=1)
    each = [predict(Change.of(plan__micro_batch=size).apply(job)).memory for size in (1, 2)]
    missing = min(max(stage.missing for stage in memory) for memory in each)
    assert f"lacks {missing / 2**30:.1f} GiB" in str(raised.value)


def test_the_smallest_plan_is_none_that_contradicts_itself(monkeypatch):
    job = load_job("llama2-70b-64xh100", ["cluster.gpus=8", "plan.global_batch=64", "plan.pp=1", "plan.tp=8"])

    def outcome(job, change, *rest):
        refused = change.apply_unchecked(job).plan.micro_batch == 1
        return PlanOutcome(refused="plan.micro_batch") if refused else outcome_of(job, change, *rest)

    monkeypatch.setattr(import_module("windtunnel.search.workers"), "outcome_of", outcome)
    with pytest.raises(PlanError, match=r"plan\.micro_batch=2") as raised:
        search(job, {"plan.micro_batch": (1, 2)}, processes=1)
    missing = outcome_of(job, Change.of(plan__micro_batch=2)).missing
    assert f"lacks {missing / 2**30:.1f} GiB" in str(raised.value)


def test_a_margin_that_leaves_no_plan_is_named_with_one_that_does():
    with pytest.raises(SpecError, match=r"^--margin: got 0.9; allowed: less, such as 0\.\d") as raised:
        search(JOB, FIELDS, processes=1, margin=0.9)
    most = float(re.search(r"such as (\S+)\. ", str(raised.value))[1])
    assert search(JOB, FIELDS, processes=1, margin=most, explained=False).best.outcome.fits
    with pytest.raises(SpecError, match="--margin"):
        search(JOB, FIELDS, processes=1, margin=most + 0.03)


def test_objectives():
    with pytest.raises(UnknownName):
        objectives("speed")
    with pytest.raises(SpecError, match="once"):
        objectives("time,time")
    free = load_job("llama3-8b-8xh100", ["cluster.price_per_gpu_hour=none"])
    with pytest.raises(SpecError, match="price"):
        search(free, FIELDS, "dollars", processes=1)


def test_random_ranks_have_no_bound():
    job = load_job("llama3-8b-8xh100", ["unequal.spread=0.05"])
    with pytest.raises(SpecError, match=r"unequal\.spread"):
        search(job, FIELDS, processes=1)


def test_a_plan_that_contradicts_itself_is_an_outcome():
    outcome = outcome_of(JOB, Change.of(plan__tp=3))
    assert not outcome.fits
    assert "plan.tp" in outcome.refused


def test_workers_run_trials_in_any_order():
    workers = Processes([JOB], 0.0, 2)
    try:
        for number, size in enumerate((1, 2)):
            workers.submit(Trial(number, 0, Change.of(plan__micro_batch=size)))
        found = dict(workers.next() for _ in range(2))
    finally:
        workers.close()
    assert {trial.number for trial in found} == {0, 1}


@pytest.mark.parametrize("option", ["margin", "gap", "seconds"])
def test_an_odd_share_is_refused_by_its_option(option):
    with pytest.raises(SpecError, match={"seconds": "--limit"}.get(option, f"--{option}") + ": got nan"):
        given = {"margin": math.nan} if option == "margin" else {"limits": SearchLimits(**{option: math.nan})}
        search(JOB, FIELDS, processes=1, **given)


def test_a_limit_without_tokens_names_the_option_that_was_typed():
    job = JOB.model_copy(update={"tokens": None})
    for name, option in (("days", "--deadline"), ("bill", "--budget")):
        with pytest.raises(SpecError, match=rf"{option}: got 3.*--set tokens="):
            search(job, FIELDS, at_most={name: 3.0}, processes=1)


def test_other_words_for_an_objective_lead_to_it():
    for word, name in (("money", "dollars"), ("energy", "joules"), ("throughput", "tokens")):
        with pytest.raises(UnknownName, match=f"Did you mean '{name}'"):
            objectives(word)


def test_a_front_says_what_each_plan_is_for():
    jobs = [load_job("llama3-8b-8xh100", [f"cluster.gpus={gpus}", "plan.global_batch=64"]) for gpus in (16, 64)]
    result = search(jobs, FIELDS, "time,dollars", processes=1)
    lines = front_lines(result)
    assert result.front > 1
    assert "best in $ a million tokens; beside plan 1: s a step +" in lines[0]
    cheapest = min(range(result.front), key=lambda place: result.ranked[place].values[1])
    assert front_shown(result, 2) == [0, cheapest]
    assert "$ a million tokens" in _text(search_sheet(result))
    assert "days" in _text(search_sheet(result)) and "$ in all" in _text(search_sheet(result))


def test_what_the_first_plan_alone_sets_is_said_of_the_others(result):
    """The first plan has stages of its own, which the second one, the same but for them, has not."""
    best = result.ranked[0]
    first = replace(best, change=best.change + Change.of(plan__stages=(result.jobs[0].model.layers,)))
    table = _plans(replace(result, ranked=(first, best), front=1), (0, 1), brief=True)
    assert "stages of equally many layers" in str(table.rows[1][-1])


def test_lines_of_plans_go_through_the_fields_that_differ_with_values_in_order(result):
    """Sixteen stands after two, which a sort by letters would not do; the fastest plan is at the top."""
    first = result.ranked[0]
    plans = tuple(
        replace(
            first, change=Change((("plan.micro_batch", size), ("plan.tp", 1))), outcome=replace(first.outcome, step_time_s=step)
        )
        for size, step in ((16, 1.0), (2, 3.0), (4, 2.0))
    )
    (picture,) = _coordinates(replace(result, ranked=plans))
    heads, lines, ticks = (picture.data[name] for name in ("heads", "lines", "ticks"))
    assert heads == ["micro batch", "step"] and [text for _, _, text in ticks] == ["2", "4", "16"]
    assert [line[0] for line in lines] == [pytest.approx([5 / 6, 0.0]), pytest.approx([1 / 6, 1.0]), pytest.approx([0.5, 0.5])]


def test_marks_of_the_front_are_filled():
    jobs = [load_job("llama3-8b-8xh100", [f"cluster.gpus={gpus}", "plan.global_batch=64"]) for gpus in (16, 64)]
    result = search(jobs, FIELDS, "time,dollars", processes=1)
    (plot,) = [block for section in search_sheet(result).sections for block in section.blocks if isinstance(block, Plot)]
    assert sum(not mark.hollow for mark in plot.marks) == result.front
    assert (plot.marks[-1].x, plot.marks[-1].y) == pytest.approx(
        result.ranked[0].values[:1] + (result.objectives[1].shown(result.ranked[0].values[1]),)
    )


def test_each_objective_has_its_own_reasons():
    jobs = [load_job("llama3-8b-8xh100", [f"cluster.gpus={gpus}", "plan.global_batch=64"]) for gpus in (16, 64)]
    result = search(jobs, FIELDS, "time,dollars,gpus", processes=1)
    assert [why.objective.name for why in result.explanations] == ["time", "dollars"]
    for place, why in enumerate(result.explanations):
        alone = search(jobs, FIELDS, why.objective.name, processes=1)
        assert why.best.change == alone.best.change
        assert why.best.values == alone.best.values == (min(one.values[place] for one in result.ranked),)
        losses = {one.path: one.loss for one in alone.explanation.decisions if one.exact}
        for one in why.decisions:
            if one.exact and one.path in losses:
                assert one.loss == pytest.approx(losses[one.path])
        assert result.as_dict()["explanations"][place]["plan"] == result.place(why.best)
    assert any(one.loss > 0.0 for one in result.explanations[1].decisions)
    text = _text(search_sheet(result))
    assert "Which decision matters most, by time" in text
    assert "Which decision matters most, by dollars" in text
    assert " worse" in "\n".join(reason_lines(result, result.explanations[1]))
    assert "decisions-dollars" in page(search_sheet(result))


def test_prices_stand_beside_every_plan(result):
    assert "$ in all" in _text(search_sheet(result)) and "days" in _text(search_sheet(result))
    plan = result.as_dict()["plans"][0]
    assert plan["cost_per_step"] == result.best.outcome.cost_per_step > 0.0


def test_a_narrow_terminal_shows_whole_plans():
    job = load_job("llama3-8b-8xh100", ["plan.global_batch=32", "tokens=1e12"])
    fields = {"plan.tp": (1, 2), "plan.sharding": ("fsdp", "zero1")}
    text = _text(search_sheet(search(job, fields, "days,bill,joules", processes=1, labels=["runtime.of_a_very_long_name"])), 80)
    assert "…" not in text
    assert "tp " in text.partition("How sure")[0]


def _text(shown, width=150):
    console = Console(width=width, record=True, file=io.StringIO())
    print_sheet(shown, console)
    return console.export_text()


def test_a_limit_that_binds_says_what_it_costs():
    jobs = [load_job("llama3-8b-8xh100", [f"cluster.gpus={gpus}", "plan.global_batch=64"]) for gpus in (16, 64)]
    free = search(jobs, FIELDS, processes=1, labels=["16 GPUs", "64 GPUs"])
    assert free.explanation.unlimited is None
    cheapest = search(jobs, FIELDS, "bill", processes=1, explained=False)
    limit = cheapest.best.values[0] * 1.0001
    bound = search(jobs, FIELDS, at_most={"bill": limit}, processes=1, labels=["16 GPUs", "64 GPUs"])
    why = bound.explanation.unlimited
    assert why.candidate.change == free.best.change
    assert why.gain == pytest.approx(1.0 - free.best.values[0] / bound.best.values[0])
    assert why.needs[0][1] > limit
    assert "A limit binds: with" in _text(search_sheet(bound))
    assert bound.as_dict()["explanations"][0]["limits_bind"]["gain"] == why.gain


def test_orders_of_the_axes_are_shown_as_megatron_writes_them():
    orders = (("tp", "cp", "ep", "dp", "pp"), ("tp", "pp", "cp", "ep", "dp"))
    job = load_job("llama3-8b-8xh100", ["cluster.gpus=16", "plan.global_batch=32"])
    space = Space(job, {"plan.placement": orders, "plan.tp": (1, 2)})
    assert "tp-cp-ep-dp-pp, tp-pp-cp-ep-dp" in _text(space_sheet([space], [""]))
    assert "placement tp-" in _text(search_sheet(search(space.job, space.fields, processes=1)))


def test_the_default_space_is_that_of_the_framework():
    job = load_job("llama3-8b-8xh100", ["plan.global_batch=8", "model.layers=2", "plan.seq=1024"])
    found = search(job, limits=SearchLimits(gap=0.5), processes=1, explained=False)
    assert dict(found.best.change.fields).keys() >= default_fields(job).keys()
    assert found.labels == ("",)


def test_a_field_that_makes_another_job_cannot_be_open():
    with pytest.raises(SpecError, match=r"space: got 'runtime\.precision'.*give several jobs"):
        search(JOB, {"runtime.precision": ("bf16", "fp8")})
    with pytest.raises(UnknownName, match=r"plan\.tq"):
        search(JOB, {"plan.tq": (1, 2)})


def test_plans_state_the_errors_of_their_steps():
    """Those of their own predictions, for as many as are predicted again."""
    found = search(JOB, FIELDS, processes=1, top=MOST + 2, explained=False)
    errors = [plan["relative_error"] for plan in found.as_dict()["plans"]]
    assert errors[:MOST] == [predict(found.job_of(plan)).relative_error for plan in found.ranked[:MOST]]
    assert len(errors) > MOST and set(errors[MOST:]) == {None}
