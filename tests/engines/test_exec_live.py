"""Programs with calls inside templates whose end a network finds: laws on random programs, and what shares a link."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from random_programs import CATEGORIES, Draft, assert_same_rank, drafts

from windtunnel.base.errors import EngineError
from windtunnel.engine import Program, ProgramBuilder, Timeline, flow, run
from windtunnel.engine._core import FlowNetwork
from windtunnel.engine.flow import Demands, Variables

KEY = 1 << 56


def stated() -> FlowNetwork:
    """A network that answers every call with the seconds stated for it."""
    none = np.zeros(0, np.int64)
    empty = Variables(np.zeros(0), np.zeros(0))
    return flow.network(np.ones(1), Demands(np.zeros(1, np.int64), np.zeros(0, np.int32)), np.zeros(1, np.int64), empty, none,
                        none.astype(np.int32))  # fmt: skip


def lane(capacity: float, program: Program, size: float) -> FlowNetwork:
    """One link; call n of any rank moves `size` bytes over it."""
    calls = program.live_calls
    keys = program.live_key + np.arange(program.ranks * calls)
    return flow.network(
        np.array([capacity]),
        Demands(np.arange(calls + 1), np.zeros(calls, np.int32)),
        np.arange(calls + 1),
        Variables(np.zeros(calls), np.full(calls, size)),
        keys,
        (np.arange(len(keys)) % calls).astype(np.int32),
    )


def with_live(program: Program, pick: np.ndarray) -> Program:
    """The program whose communication operators are live where `pick` says so."""
    live = np.where((program.op_comm == 1) & pick[: len(program.op_comm)], 0, -1).astype(np.int32)
    return replace(program, op_live=live, live_key=KEY, live_calls=1)


def agree(a: Timeline, b: Timeline) -> None:
    for name in ("begin", "end", "transfer_begin", "busy", "idle", "stretch", "rank_end", "host_end", "host_begin"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-9, abs=1e-9, nan_ok=True), name
    assert a.recorded.start == pytest.approx(b.recorded.start, rel=1e-9, abs=1e-9)
    assert a.recorded.end == pytest.approx(b.recorded.end, rel=1e-9, abs=1e-9)


@given(drafts(), st.integers(0, 2**16))
@examples(50)
def test_a_network_that_adds_nothing_changes_nothing(draft: Draft, seed: int) -> None:
    program = draft.build()
    live = with_live(program, np.random.default_rng(seed).random(len(program.op_comm)) < 0.5)
    walked, by_time = run(program, "all"), run(live, "all", network=stated())
    agree(by_time, walked)
    assert sum(hop.seconds for hop in by_time.path) == pytest.approx(walked.makespan, rel=1e-9, abs=1e-12)


@given(drafts(tax=True))
@examples(50)
def test_accounts_and_critical_path_add_up_with_a_tax(draft: Draft) -> None:
    program = draft.build()
    timeline = run(with_live(program, np.ones(len(program.op_comm), bool)), network=stated())
    accounted = timeline.busy[:, 0].sum(axis=1) + timeline.idle.sum(axis=1)
    assert accounted == pytest.approx(np.full(len(accounted), timeline.makespan), rel=1e-12, abs=1e-15)
    assert sum(hop.seconds for hop in timeline.path) == pytest.approx(timeline.makespan, rel=1e-12, abs=1e-15)
    assert (timeline.idle >= -1e-12 * timeline.makespan).all()
    assert (timeline.stretch >= 0.0).all()


@given(drafts(tax=True), st.randoms(use_true_random=False))
@examples(50)
def test_the_order_of_ranks_changes_no_bit(draft: Draft, random: object) -> None:
    """Calls of all ranks share one link."""
    order = list(range(len(draft.ranks)))
    random.shuffle(order)  # type: ignore[attr-defined]
    programs = [with_live(p, np.ones(len(p.op_comm), bool)) for p in (draft.build(), draft.build(order))]
    straight, shuffled = (run(p, network=lane(2.0, p, 3.0)) for p in programs)
    assert straight.makespan == shuffled.makespan
    for place, rank in enumerate(order):
        assert_same_rank(straight, shuffled, rank, place)


@given(drafts())
@examples(50)
def test_a_slower_link_never_shortens_an_untaxed_step(draft: Draft) -> None:
    """Alone on its link: calls of one stream never meet."""
    for rank in draft.ranks[1:]:
        rank.clear()
    draft.ranks = [[i for i in draft.ranks[0] if "parts" not in i]]
    for instance in draft.ranks[0]:
        instance["waits"] = []
    for template in draft.templates:
        template["stream"] = [0 if not comm else 1 for comm in template["comm"]]
    program = draft.build()
    live = with_live(program, np.ones(len(program.op_comm), bool))
    fast, slow = (run(live, network=lane(rate, live, 3.0)) for rate in (4.0, 1.0))
    assert slow.makespan >= fast.makespan * (1 - 1e-9)


def test_calls_of_two_ranks_share_their_link() -> None:
    builder = ProgramBuilder(categories=CATEGORIES, live_key=KEY)
    call = builder.add_template([1.0], stream=1, comm=True, live=0)
    for _ in range(2):
        builder.rank().add(call)
    program = builder.build()
    timeline = run(program, network=lane(10.0, program, 10.0))
    assert timeline.end == pytest.approx([2.0, 2.0])


def test_computing_is_slowed_for_as_long_as_the_call_takes() -> None:
    """A call that takes 4 s for the 1 s stated; computing behind it loses half of its rate meanwhile."""
    builder = ProgramBuilder(categories=CATEGORIES, compute_tax=0.5, live_key=KEY)
    layer = builder.add_template([1.0, 3.0], stream=[1, 0], comm=[True, False], live=[0, -1])
    builder.rank().add(layer)
    program = builder.build()
    timeline = run(program, network=lane(10.0, program, 40.0))
    assert timeline.makespan == pytest.approx(5.0)
    assert timeline.stretch.sum() == pytest.approx(2.0)


def test_what_does_not_depend_on_a_live_call_goes_on() -> None:
    builder = ProgramBuilder(categories=CATEGORIES, live_key=KEY)
    layer = builder.add_template(
        [1.0, 1.0, 1.0, 1.0], stream=[0, 1, 0, 0], comm=[False, True, False, False], wait0=[-1, 0, -1, 1], live=[-1, 0, -1, -1]
    )
    builder.rank().add(layer, times=2)
    program = builder.build()
    timeline = run(program, "all", network=lane(1.0, program, 5.0))
    assert timeline.recorded.start == pytest.approx([0, 1, 1, 6, 7, 8, 8, 13])


def test_a_repetition_that_joins_waits_for_the_live_call_before() -> None:
    builder = ProgramBuilder(categories=CATEGORIES, live_key=KEY)
    layer = builder.add_template([1.0, 1.0], stream=[1, 0], comm=[True, False], live=[0, -1])
    builder.rank().add(layer, times=3, join=True)
    program = builder.build()
    assert run(program, "all", network=lane(1.0, program, 5.0)).recorded.start == pytest.approx([0, 0, 5, 5, 10, 10])


def test_a_call_behind_another_ends_the_transfer() -> None:
    """Key 1 moves 3 bytes, and 2 the 4 bytes behind it; another rank's 5 bytes are on the link meanwhile."""
    builder = ProgramBuilder(categories=CATEGORIES, live_key=KEY)
    call = builder.add_template([1.0], stream=1, comm=True, live=0)
    for _ in range(2):
        builder.rank().add(call)
    program = builder.build()
    keys = np.array([KEY, KEY + 1, 2])
    demands = Demands(np.arange(4), np.zeros(3, np.int32))
    link = flow.network(np.ones(1), demands, np.arange(4), Variables(np.zeros(3), np.array([3.0, 5.0, 4.0])), keys,
                        np.arange(3, dtype=np.int32))  # fmt: skip
    timeline = run(program, network=link, follows={KEY: 2})
    assert timeline.end == pytest.approx([12.0, 10.0])  # 6 s at half of the rate, 4 more, and the last 2 bytes alone


@pytest.mark.parametrize("network", [False, True])
def test_a_slow_instance_stretches_what_the_network_says(network: bool) -> None:
    builder = ProgramBuilder(categories=CATEGORIES, live_key=KEY)
    call = builder.add_template([4.0], stream=1, comm=True, live=0, group=1)
    rows = builder.add_factors(np.array([[1.0, 1.0], [1.0, 1.5]]))
    rank = builder.rank()
    rank.add(call)
    rank.add(call)
    rank.scale(rows)
    program = builder.build()
    assert run(program, network=lane(1.0, program, 4.0) if network else stated()).end == pytest.approx([4.0, 10.0])


def test_only_communication_can_be_live() -> None:
    builder = ProgramBuilder(categories=CATEGORIES, live_key=KEY)
    builder.rank().add(builder.add_template([1.0], live=0))
    with pytest.raises(EngineError, match="only communication and copies can be live"):
        run(builder.build(), network=stated())
