"""Laws that every timeline keeps, on random programs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.engine import HopKind, Program, ProgramBuilder, Timeline, run

CATEGORIES = 3
STREAMS = 3


@dataclass
class Draft:
    """A random program, kept so that it can be built again with its ranks in another order."""

    templates: list[dict[str, list[float]]]
    ranks: list[list[dict[str, object]]] = field(default_factory=list)
    tax: float = 0.0
    window: int = 0

    def build(self, order: list[int] | None = None) -> Program:
        builder = ProgramBuilder(CATEGORIES, self.tax, self.window)
        for template in self.templates:
            builder.add_template(**template)  # type: ignore[arg-type]
        for r in order or range(len(self.ranks)):
            rank = builder.rank()
            for instance in self.ranks[r]:
                (rank.add_rendezvous if "parts" in instance else rank.add)(**instance)  # type: ignore[operator]
        return builder.build()


@st.composite
def drafts(draw: st.DrawFn, tax: bool = False, host: bool = True) -> Draft:
    seconds = st.floats(0.0, 10.0, allow_subnormal=False)
    hosts = st.one_of(st.just(0.0), st.floats(0.0, 3.0, allow_subnormal=False)) if host else st.just(0.0)
    templates = []
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.integers(1, 4))
        templates.append(
            {
                "seconds": [draw(seconds) for _ in range(n)],
                "category": [draw(st.integers(0, CATEGORIES - 1)) for _ in range(n)],
                "stream": [draw(st.integers(0, STREAMS - 1)) for _ in range(n)],
                "host": [draw(hosts) for _ in range(n)],
                "comm": [draw(st.booleans()) for _ in range(n)],
                "wait0": [draw(st.integers(-1, k - 1)) for k in range(n)],
            }
        )
    count = draw(st.integers(1, 4))
    draft = Draft(templates, [[] for _ in range(count)])
    if tax:
        draft.tax = draw(st.sampled_from([0.1, 0.3, 1.0]))
    draft.window = draw(st.sampled_from([0, 0, 1, 4]))
    for step in range(draw(st.integers(1, 12))):
        if count > 1 and draw(st.booleans()):
            who = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=count, unique=True))
            stream = draw(st.integers(0, STREAMS - 1))
            for r in who:
                waits = draw(st.lists(st.integers(0, len(draft.ranks[r]) - 1), max_size=2)) if draft.ranks[r] else []
                parts = [(step, draw(seconds), len(who))]
                draft.ranks[r].append({"stream": stream, "parts": parts, "waits": waits, "cat_wait": 1, "cat_transfer": 2})
        else:
            r = draw(st.integers(0, count - 1))
            waits = draw(st.lists(st.integers(0, len(draft.ranks[r]) - 1), max_size=2)) if draft.ranks[r] else []
            template = draw(st.integers(0, len(templates) - 1))
            sync, join = draw(st.booleans()), draw(st.booleans())
            times = draw(st.integers(1, 3))
            draft.ranks[r].append({"template": template, "waits": waits, "times": times, "host_sync": sync, "join": join})
    return draft


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


def same(a: Timeline, b: Timeline, rank_a: int, rank_b: int) -> None:
    for name in ("begin", "end", "transfer_begin"):
        assert np.array_equal(getattr(a, name)[a.of_rank(rank_a)], getattr(b, name)[b.of_rank(rank_b)], equal_nan=True)
    for name in ("busy", "idle", "stretch", "rank_end", "host_end"):
        assert np.array_equal(getattr(a, name)[rank_a], getattr(b, name)[rank_b])


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
    before, after = run(program), run(replace(program, op_seconds=longer))
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
        same(straight, shuffled, rank, place)


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
