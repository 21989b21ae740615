"""Laws that every timeline keeps, on random programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from random_programs import CATEGORIES, Draft, assert_same_rank, drafts

from windtunnel.engine import HopKind, Program, ProgramBuilder, run
from windtunnel.engine.program import finest


def longest_chain(program: Program, rank: int) -> float:
    """The longest chain of instances by their waits alone, an instance counting as its longest operator."""
    first = int(program.rank_start[rank])
    ends: list[float] = []
    row = int((program.template[:first] < 0).sum())
    for i in range(first, int(program.rank_start[rank + 1])):
        waits = program.waits[program.wait_start[i] : program.wait_start[i + 1]]
        t = int(program.template[i])
        if t < 0:
            own = float(program.part_seconds[program.part_start[row] : program.part_start[row + 1]].max())
            row += 1
        else:
            own = float(program.op_seconds[program.template_start[t] : program.template_start[t + 1]].max())
        ends.append(max((ends[w] for w in waits), default=0.0) + own)
    return max(ends, default=0.0)


@given(drafts())
@examples(50)
def test_no_step_is_shorter_than_its_chains_and_streams(draft: Draft) -> None:
    program = draft.build()
    timeline = run(program)
    slack = 1e-12 * timeline.makespan
    for rank in range(program.ranks):
        assert timeline.makespan >= longest_chain(program, rank) - slack
    assert (timeline.busy.sum(axis=2) <= timeline.makespan + slack).all()
    assert timeline.makespan == timeline.end.max()


@given(drafts(tax=True))
@examples(50)
def test_accounts_and_critical_path_add_up_to_the_step(draft: Draft) -> None:
    timeline = run(draft.build())
    accounted = timeline.busy[:, 0].sum(axis=1) + timeline.idle.sum(axis=1)
    assert accounted == pytest.approx(np.full(len(accounted), timeline.makespan), rel=1e-12, abs=1e-15)
    assert sum(hop.seconds for hop in timeline.path) == pytest.approx(timeline.makespan, rel=1e-12, abs=1e-15)
    assert (timeline.idle >= -1e-12 * timeline.makespan).all()
    assert all(hop.op == -1 for hop in timeline.path if hop.kind != HopKind.OP)


@given(drafts(), st.data())
@examples(50)
def test_a_longer_operator_never_shortens_an_untaxed_step(draft: Draft, data: st.DataObject) -> None:
    program = draft.build()
    longer = program.op_seconds.copy()
    longer[data.draw(st.integers(0, len(longer) - 1))] += data.draw(st.floats(0.0, 5.0, allow_subnormal=False))
    changed = replace(program, op_seconds=longer)
    before, after = run(program, grid=finest(changed)), run(changed)
    assert after.makespan >= before.makespan
    assert (after.end >= before.end).all()


@given(drafts(tax=True), st.randoms(use_true_random=False))
@examples(50)
def test_the_order_of_ranks_changes_nothing(draft: Draft, random: object) -> None:
    order = list(range(len(draft.ranks)))
    random.shuffle(order)  # type: ignore[attr-defined]
    straight, shuffled = run(draft.build()), run(draft.build(order))
    assert straight.makespan == shuffled.makespan
    for place, rank in enumerate(order):
        assert_same_rank(straight, shuffled, rank, place)


@given(drafts(tax=True))
@examples(25)
def test_the_tax_only_adds(draft: Draft) -> None:
    taxed, free = run(draft.build()), run(replace(draft.build(), compute_tax=0.0))
    assert taxed.makespan >= free.makespan * (1 - 1e-12)
    assert (taxed.stretch >= 0.0).all()
    assert (free.stretch == 0.0).all()


@given(drafts(host=False))
@examples(25)
def test_a_free_host_is_never_the_cause(draft: Draft) -> None:
    draft.window = 0
    for rank in draft.ranks:
        for instance in rank:
            instance.pop("host_sync", None)
    timeline = run(draft.build())
    assert (timeline.idle[:, -2] == 0.0).all()
    assert all(hop.kind != HopKind.HOST for hop in timeline.path)


def test_accounts_add_up_over_a_million_operators() -> None:
    builder = ProgramBuilder(categories=CATEGORIES)
    layer = builder.add_template([1.1e-6, 2.3e-6, 0.7e-6], category=[0, 1, 2], stream=[0, 1, 0], host=1.3e-6, wait0=[-1, 0, 1])
    builder.rank().add(layer, times=350_000)
    timeline = run(builder.build(), critical_path=False)
    assert timeline.ops == 1_050_000
    assert timeline.busy[0, 0].sum() + timeline.idle[0].sum() == pytest.approx(timeline.makespan, rel=1e-12)


@st.composite
def repeating(draw: st.DrawFn) -> Program:
    """Ranks that run a few long templates over and over, with the same transfers between them in each round."""
    seconds, hosts = st.sampled_from([0.0, 1e-3, 0.1, 0.7, 1.0, 3.0]), st.sampled_from([0.0, 0.05, 0.4])
    builder = ProgramBuilder(CATEGORIES, draw(st.sampled_from([0.0, 0.3])))
    templates = draw(st.integers(1, 3))
    for _ in range(templates):
        n = draw(st.integers(8, 12))
        builder.add_template(
            seconds=[draw(seconds) for _ in range(n)],
            category=[draw(st.integers(0, CATEGORIES - 1)) for _ in range(n)],
            stream=[draw(st.integers(0, 2)) for _ in range(n)],
            host=[draw(hosts) for _ in range(n)],
            comm=[draw(st.sampled_from([False, False, True])) for _ in range(n)],
            wait0=[draw(st.integers(-1, k - 1)) for k in range(n)],
            wait1=[draw(st.integers(-1, k - 1)) for k in range(n)],
            sync=[draw(st.integers(0, 9)) == 0 for _ in range(n)],
        )
    ranks = [builder.rank() for _ in range(draw(st.integers(1, 3)))]
    turns = [
        (draw(st.integers(0, templates - 1)), draw(st.integers(1, 2)), draw(st.booleans()), draw(st.integers(0, 9)) == 0)
        for _ in range(draw(st.integers(1, 3)))
    ]
    sent, stream = draw(seconds), draw(st.integers(0, 3))
    for step in range(draw(st.integers(2, 12))):
        for rank in ranks:
            last = -1
            for template, times, join, sync in turns:
                last = rank.add(template, () if last < 0 else (last,), times, sync, join)
            if len(ranks) > 1:
                rank.add_rendezvous(stream, ((step, sent, len(ranks)),), (last,), 0.1, 1, 2)
    taxes = [draw(st.sampled_from([0.0, 0.1, 0.5])) for _ in ranks] if draw(st.booleans()) else []
    return replace(builder.build(), taxes=np.array(taxes))


@given(repeating())
@examples(200)
def test_recalled_instances_have_the_bits_of_those_that_are_walked_through(program: Program) -> None:
    walked = run(program)
    for recalled in (run(program, critical_path=False), run(program, "all", critical_path=False)):
        for name in ("makespan", "begin", "end", "transfer_begin", "busy", "idle", "stretch", "rank_end", "host_end", "host_begin"):
            assert np.array_equal(getattr(walked, name), getattr(recalled, name), equal_nan=True), name
    again = run(program, "all")
    assert again.recalled == 0
    assert np.array_equal(recalled.recorded.start, again.recorded.start)
    assert np.array_equal(recalled.recorded.end, again.recorded.end)


def test_a_chain_of_equal_passes_is_walked_through_once() -> None:
    builder = ProgramBuilder(1, 0.3)
    template = builder.add_template([1.0] * 10, stream=[0, 1] * 5, host=0.1, comm=[False, True] * 5, wait0=range(-1, 9))
    rank = builder.rank()
    for _ in range(50):
        rank.add(template)
    assert run(builder.build(), critical_path=False).recalled >= 480
    assert run(builder.build()).recalled == 0
