"""The exec core through its Python door: cases worked out by hand, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.base.errors import EngineError
from windtunnel.engine import COPY, HOST, TAIL, Cause, HopKind, ProgramBuilder, Timeline, run


def pipeline(stages: int, micro_batches: int, forward: float, backward: float, hop: float) -> ProgramBuilder:
    """1F1B: stage s runs stages-1-s forwards ahead; categories 0 compute, 1 waiting, 2 transfer."""
    builder = ProgramBuilder(categories=3)
    passes = [builder.add_template([forward]), builder.add_template([backward])]
    for stage in range(stages):
        rank = builder.rank()
        ahead = min(stages - 1 - stage, micro_batches)
        order = [(0, m) for m in range(ahead)]
        for m in range(micro_batches):
            if m + ahead < micro_batches:
                order.append((0, m + ahead))
            order.append((1, m))
        for direction, m in order:
            came_from, goes_to = (stage - 1, stage + 1) if direction == 0 else (stage + 1, stage - 1)
            waits = []
            if 0 <= came_from < stages:
                key = (direction * micro_batches + m) * stages + stage
                waits = [rank.add_rendezvous(1 + direction, [(key, hop, 2)], cat_wait=1, cat_transfer=2)]
            done = rank.add(passes[direction], waits)
            if 0 <= goes_to < stages:
                key = (direction * micro_batches + m) * stages + goes_to
                rank.add_rendezvous(3 + direction, [(key, hop, 2)], [done], cat_wait=1, cat_transfer=2)
    return builder


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 4), (4, 16), (8, 8)])
def test_one_f_one_b_without_transfers_has_the_textbook_bubble(stages: int, micro_batches: int) -> None:
    timeline = run(pipeline(stages, micro_batches, 1.0, 2.0, 0.0).build())
    assert timeline.makespan == pytest.approx((micro_batches + stages - 1) * 3.0, rel=1e-12)
    idle = timeline.idle.sum(axis=1)
    assert idle == pytest.approx(np.full(stages, (stages - 1) * 3.0), rel=1e-12)


def test_a_single_micro_batch_pays_every_hop() -> None:
    timeline = run(pipeline(4, 1, 1.0, 2.0, 0.25).build())
    assert timeline.makespan == pytest.approx(4 * 3.0 + 2 * 3 * 0.25, rel=1e-12)
    hops = [hop for hop in timeline.path if hop.kind == HopKind.TRANSFER]
    assert len(hops) == 6
    assert sum(hop.seconds for hop in timeline.path) == pytest.approx(timeline.makespan, rel=1e-12)
    assert [hop.rank for hop in timeline.path if hop.kind == HopKind.OP] == [0, 1, 2, 3, 3, 2, 1, 0]


def test_host_bound_kernels_leave_the_device_idle_for_the_host() -> None:
    builder = ProgramBuilder(categories=1)
    layer = builder.add_template([1e-6] * 10, host=5e-6)
    builder.rank().add(layer, times=12)
    timeline = run(builder.build())
    assert timeline.makespan == pytest.approx(120 * 5e-6 + 1e-6, rel=1e-12)
    assert timeline.idle[0, HOST] == pytest.approx(120 * 5e-6 - 119e-6, rel=1e-9)
    assert timeline.path[0].kind == HopKind.HOST


def test_waiting_and_transfer_are_told_apart() -> None:
    builder = ProgramBuilder(categories=3)
    slow, fast = builder.add_template([3.0]), builder.add_template([1.0])
    for template in (slow, fast):
        rank = builder.rank()
        first = rank.add(template)
        met = rank.add_rendezvous(1, [(5, 0.5, 2)], [first], cat_wait=1, cat_transfer=2)
        rank.add(fast, [met])
    timeline = run(builder.build())
    assert timeline.idle[:, 1] == pytest.approx([0.0, 2.0])
    assert timeline.idle[:, 2] == pytest.approx([0.5, 0.5])
    rows = timeline.of_rank(1)
    assert timeline.begin[rows] == pytest.approx([0.0, 1.0, 3.5])
    assert timeline.transfer_begin[rows][1] == 3.0
    assert np.isnan(timeline.transfer_begin[rows][0])


def test_the_tail_is_the_rest_of_the_step() -> None:
    builder = ProgramBuilder(categories=1)
    template = builder.add_template([1.0])
    builder.rank().add(template, times=5)
    builder.rank().add(template)
    timeline = run(builder.build())
    assert timeline.idle[1, TAIL] == 4.0
    assert timeline.rank_end.tolist() == [5.0, 1.0]


def times_of(timeline: Timeline, rank: int, instance: int) -> tuple[list[float], list[float]]:
    recorded = timeline.recorded
    rows = (recorded.rank == rank) & (recorded.instance == instance)
    return recorded.start[rows].tolist(), recorded.end[rows].tolist()


def test_recorded_ranks_have_the_times_of_each_operator() -> None:
    builder = ProgramBuilder(categories=2)
    template = builder.add_template([1.0, 2.0], category=[0, 1])
    rank = builder.rank()
    rank.add(template)
    second = rank.add(template, times=2)
    builder.rank().add(template)
    timeline = run(builder.build(), record_ops=[0])
    assert times_of(timeline, 0, second) == ([3.0, 4.0, 6.0, 7.0], [4.0, 6.0, 7.0, 9.0])
    assert times_of(timeline, 1, 0) == ([], [])
    assert times_of(run(builder.build(), record_ops="all"), 1, 0)[1] == [1.0, 3.0]


def test_the_compute_tax_stretches_the_overlap_only() -> None:
    builder = ProgramBuilder(categories=2, compute_tax=0.2)
    template = builder.add_template([4.0, 8.0], stream=[1, 0], category=[1, 0], comm=[True, False])
    builder.rank().add(template)
    timeline = run(builder.build())
    assert timeline.makespan == pytest.approx(8.8)  # 4 s at 0.8 do 3.2 s of the 8
    assert timeline.stretch[0].tolist() == pytest.approx([0.8, 0.0])


def test_copies_neither_slow_computing_nor_are_slowed() -> None:
    builder = ProgramBuilder(categories=2, compute_tax=0.2)
    template = builder.add_template([4.0, 8.0, 6.0], stream=[1, 0, 2], category=[1, 0, 1], comm=np.array([COPY, 0, COPY], np.uint8))
    rank = builder.rank()
    rank.add(template)
    assert run(builder.build()).makespan == 8.0
    beside = builder.rank()
    beside.add(builder.add_template([4.0], stream=3, category=1, comm=True))
    beside.add(template)
    timeline = run(builder.build())
    assert timeline.stretch[:, 0].tolist() == pytest.approx([0.0, 0.8])  # the call slows computing, the copies do not
    assert timeline.busy[1, 2].tolist() == [0.0, 6.0]


def test_an_operator_is_one_of_three_kinds() -> None:
    builder = ProgramBuilder(categories=1)
    builder.rank().add(builder.add_template([1.0], comm=np.array([3], np.uint8)))
    with pytest.raises(EngineError, match="none of 0, 1, 2"):
        run(builder.build())


def test_cause_of_a_hop_says_what_bound_it() -> None:
    builder = ProgramBuilder(categories=1)
    template = builder.add_template([1.0, 1.0], stream=[1, 0], wait0=[-1, 0])
    rank = builder.rank()
    first = rank.add(template)
    rank.add(builder.add_template([1.0], stream=2), [first])
    path = run(builder.build()).path
    assert [hop.cause for hop in path] == [Cause.BEGIN, Cause.WAIT]
    assert run(builder.build(), critical_path=False).path == ()


def test_a_deadlock_names_who_waits_for_what() -> None:
    builder = ProgramBuilder(categories=1)
    for keys in ((1, 2), (2, 1)):
        rank = builder.rank()
        for key in keys:
            rank.add_rendezvous(0, [(key, 1.0, 2)])
    with pytest.raises(EngineError, match=r"rank 0, instance 0 waits at key 1 \(1 of 2 have posted; missing: rank 1, instance 1\)"):
        run(builder.build())


@pytest.mark.parametrize(
    ("seconds", "wait", "template", "message"),
    [
        (float("nan"), -1, 0, "finite and not negative"),
        (float("inf"), -1, 0, "finite and not negative"),
        (-1.0, -1, 0, "finite and not negative"),
        (1.0, 0, 0, "waits for op 0"),
        (1.0, -2, 0, "waits for op -2"),
        (1.0, -1, 1, "names template 1"),
        (1.0, -1, -2, "names template -2"),
    ],
)
def test_wrong_columns_are_refused_before_the_run(seconds: float, wait: int, template: int, message: str) -> None:
    builder = ProgramBuilder(categories=1)
    builder.add_template([seconds], wait0=wait)
    builder.rank().add(template)
    with pytest.raises(EngineError, match=message):
        run(builder.build())


def test_a_wait_for_a_later_instance_is_refused() -> None:
    builder = ProgramBuilder(categories=1)
    template = builder.add_template([1.0])
    builder.rank().add(template, [0])
    with pytest.raises(EngineError, match="rank 0, instance 0 waits for instance 0"):
        run(builder.build())


def test_columns_of_another_type_or_length_are_refused() -> None:
    builder = ProgramBuilder(categories=1)
    builder.rank().add(builder.add_template([1.0]))
    program = builder.build()
    with pytest.raises(EngineError, match="op_seconds must be a contiguous one-dimensional array of float64, not float32"):
        run(replace(program, op_seconds=program.op_seconds.astype(np.float32)))
    with pytest.raises(EngineError, match="column times has 0 rows; 1 were expected"):
        run(replace(program, times=np.zeros(0, np.int32)))
    with pytest.raises(EngineError, match="record_ops names rank 3"):
        run(program, record_ops=[3])
    with pytest.raises(EngineError, match="columns of unequal length"):
        builder.add_template([1.0, 2.0], category=[0])
    with pytest.raises(EngineError, match="compute_tax is 2; allowed: 0 to 1"):
        run(replace(program, compute_tax=2.0))


def test_an_empty_program_takes_no_time() -> None:
    timeline = run(ProgramBuilder(categories=1).build())
    assert timeline.makespan == 0.0
    assert timeline.busy.shape == (0, 1, 1)
