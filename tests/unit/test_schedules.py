"""Every schedule runs each pass once, in an order that data allows, holds no more micro batches than its paper says, and idles as
long as its paper says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from schedule_clock import Times, held, order_of, run

from windtunnel.base.errors import PlanError
from windtunnel.spec import Plan
from windtunnel.spec.shapes import SHAPES, check_batches, check_virtual
from windtunnel.workload.schedules import SCHEDULES, Order, Pass

LETTERS = {Pass.FORWARD: "F", Pass.BACKWARD: "B", Pass.INPUT_GRADIENT: "I", Pass.WEIGHT_GRADIENT: "W"}
SPLIT = ("zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev")


def written(order: Order) -> str:
    """`F0 B0`: one letter a pass, then its micro batch, with ' for the second virtual stage; & joins two at the same time."""
    words = [f"{LETTERS[a.direction]}{a.micro_batch}{chr(39) * a.chunk}{'&' if a.beside_next else ' '}" for a in order]
    return "".join(words).strip()


def sizes(name: str) -> list[tuple[int, int, int]]:
    """(stages, virtual stages, micro batches) that the schedule can run, of a grid."""
    grid = []
    for stages in (1, 2, 3, 4, 6, 8):
        for virtual in (1, 2, 3):
            for micro_batches in (1, 2, 3, stages, stages + 1, 2 * stages, 2 * stages + 1, 3 * stages, 16):
                try:
                    check_virtual(name, stages, virtual, stated=True)
                    check_batches(name, stages, micro_batches, 1)
                except PlanError:
                    continue
                grid.append((stages, virtual, micro_batches))
    return sorted(set(grid))


def test_a_schedule_has_one_name_everywhere() -> None:
    names = set(get_args(Plan.model_fields["schedule"].annotation)) - {"auto"}
    assert names == set(SCHEDULES) == set(SHAPES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_pass_runs_once_and_data_flows(name: str) -> None:
    """`run` fails for a pass that runs twice or never, for one before its data, and where all stages wait for each other."""
    assert len(sizes(name)) >= 8
    for stages, virtual, micro_batches in sizes(name):
        run(name, stages, virtual, micro_batches)
        halves = {a.direction for order in order_of(name, stages, virtual, micro_batches) for a in order}
        assert (Pass.WEIGHT_GRADIENT in halves) == (name in SPLIT)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_pair_is_a_forward_and_a_whole_backward_pass(name: str) -> None:
    for stages, virtual, micro_batches in sizes(name):
        for order in order_of(name, stages, virtual, micro_batches):
            second = [order[i + 1] for i, a in enumerate(order) if a.beside_next]
            assert all(a.direction is Pass.FORWARD for a in order if a.beside_next)
            assert all(b.direction is Pass.BACKWARD and not b.beside_next for b in second)
            assert bool(second) <= name.startswith("dualpipe")


TIMES = (Times(1.0, 1.0, 1.0, 3.0), Times(1.0, 1.25, 0.75, 2.5), Times(1.25, 1.0, 1.0, 3.25))


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("p", [2, 4, 8])
def test_bubbles_of_the_papers(p: int, times: Times) -> None:
    f, b, w = times.forward, times.input_gradient, times.weight_gradient
    for m in (2 * p, 4 * p):

        def idle(name: str, virtual: int = 1, size: int = m) -> float:
            clock = run(name, p, virtual, size, times)
            return clock.makespan - max(clock.work)

        # Narayanan et al. 2021, sections 2.2.1 and 2.2.2; Lamy-Poirier 2023, section 4.1
        assert idle("1f1b") == idle("gpipe") == (p - 1) * (f + b + w)
        assert idle("interleaved", 3) == idle("breadth-first", 3) == (p - 1) * (f + b + w)
        # Qi et al. 2023, table 2
        assert idle("zb-h1") == idle("interleaved-zb", 2) == (p - 1) * (f + b - w)
        # DeepSeek-V3, table 2 and, for DualPipeV, its repository: F&B is the pair, B the whole backward pass. Their order is
        # laid out for equal halves and pairs that save nothing: only there is the formula exact.
        if f == b == w and times.pair == f + b + w:
            assert idle("dualpipe") == (p // 2 - 1) * (times.pair + (b + w) - 3 * w)
            assert idle("dualpipev", 2) == (p - 1) * (times.pair + (b + w) - 3 * w)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_no_bubble_from_first_to_last_pass(p: int) -> None:
    """Qi et al. 2023: ZB-H2 idles (p - 1)(F + B - 2W), ZBV not at all where F = B = W; a stage starts late, and ends as late."""
    for m in (2 * p, 3 * p, 5 * p):
        for name, virtual in (("zb-h2", 1), ("zbv", 2)):
            clock = run(name, p, virtual, m)
            assert clock.span == clock.work
            assert [begin[0] for begin in clock.begin] == list(range(p))
    clock = run("zb-h2", p, 1, 4 * p, Times(1.0, 1.25, 0.75))
    idle = max(span - work for span, work in zip(clock.span, clock.work, strict=True))
    assert idle == (p - 1) * (1.0 + 1.25 - 2 * 0.75)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_micro_batches_in_flight(p: int) -> None:
    """Until the input's gradient, and until the weights'. Qi et al. 2023, section 2; DeepSeek-V3, table 2: p + 1."""
    m = 4 * p

    def most(name: str, gone: Pass, virtual: int = 1) -> list[int]:
        return [held(order, gone) for order in order_of(name, p, virtual, m)]

    i, w = Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT
    falling = [p - s for s in range(p)]
    assert most("gpipe", i) == [m] * p and most("breadth-first", i, 2) == [2 * m] * p
    assert most("1f1b", i) == falling
    assert (most("zb-h1", i), most("zb-h1", w)) == (falling, [p] * p)
    assert (most("zb-h2", i), most("zb-h2", w)) == ([2 * n - 1 for n in falling], [2 * p - 1] * p)
    assert most("interleaved", i, 2) == [p + 2 * n - 1 for n in falling]
    assert most("interleaved-zb", w, 2) == [2 * p] * p
    assert most("zbv", w, 2) == [2 * p] * p, "2 p halves of a stage: as 1F1B"
    assert most("dualpipe", w) == [p + 1] * p
    assert most("dualpipev", w, 2) == [2 * p + 1] * p


def test_interleaved_warm_up_is_megatrons() -> None:
    plans = order_of("interleaved", 4, 2, 8)
    warm_up = [next(i for i, a in enumerate(plan) if a.direction is Pass.BACKWARD) - 1 for plan in plans]
    assert warm_up == [2 * 3 + 4, 2 * 2 + 4, 2 * 1 + 4, 4]


def test_orders_by_hand() -> None:
    """Read off the papers' figures (Qi et al. 2023, figures 2 and 3, with four stages), and DualPipe's two stages by its rules."""
    first, *_, last = order_of("zb-h1", 4, 1, 8)
    assert written(first) == "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7"
    assert written(last) == "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7"
    first, *_, last = order_of("zb-h2", 4, 1, 8)
    assert written(first) == "F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7"
    assert written(last) == "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7"
    first, last = order_of("zbv", 2, 2, 3)
    assert written(first) == "F0 F1 F2 F0' I0' W0' F1' I1' W1' I0 W0 F2' I2' W2' I1 W1 I2 W2"
    assert written(last) == "F0 F0' F1 F1' I0' W0' F2 I0 W0 F2' I1' W1' I1 I2' I2 W1 W2' W2"
    first, last = order_of("dualpipe", 2, 1, 4)
    assert written(first) == "F0 F2' F1 B2' F3'&B0 B3' I1 W1"
    assert written(last) == "F2' F0 F3' B0 F1&B2' B1 I3' W3'"
    assert [written(order) for order in order_of("breadth-first", 2, 2, 2)] == ["F0 F1 F0' F1' B1' B0' B1 B0"] * 2


def test_the_example_of_the_guide_runs_as_it_is_pasted() -> None:
    guide = Path(__file__).parents[2] / "docs" / "extend" / "schedule.md"
    block = guide.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    pasted: dict[str, Any] = {}
    exec(compile(block, str(guide), "exec"), pasted)
    stages = pasted["eager_one_f_one_b"](4, 1, 8)
    assert len(stages) == 4 and all(len(actions) == 16 for actions in stages)
