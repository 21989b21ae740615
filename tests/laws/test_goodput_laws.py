"""Whatever the run: help never hurts, and the best interval is better than its neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import example, given
from hypothesis import strategies as st
from random_runs import setting

from windtunnel.goodput.answer import interval_choice, levers, spare_choices
from windtunnel.goodput.closed import at, steady
from windtunnel.goodput.conditions import CheckpointCost, Conditions
from windtunnel.goodput.simulate import simulate
from windtunnel.spec.reliability import Duration, Failure

ROUNDING = 1e-9
RUNS = st.builds(lambda seed, wide: setting(np.random.default_rng(seed), wide), st.integers(0, 2**32), st.booleans())


SECONDS = st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 60.0, 3600.0, 1e6, 1e9])
TIMES = st.builds(
    lambda mean, law, spread: Duration(mean=mean, law=law, spread=spread),
    SECONDS, st.sampled_from(["fixed", "exponential", "lognormal", "uniform"]), st.sampled_from([0.0, 0.5, 1.0]),
)  # fmt: skip
GAPS = st.none() | st.builds(lambda mean: Duration(mean=mean, law="uniform", spread=0.5), st.sampled_from([60.0, 3600.0, 1e9]))
KINDS = st.builds(
    Failure,
    per_node_day=st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 1e3]), per_job_day=st.sampled_from([0.0, 1e-9, 1.0, 1e4]),
    gap=GAPS, detect=TIMES, diagnose=TIMES, by_hand=TIMES, repair=TIMES, after=TIMES,
    automatic=st.sampled_from([0.0, 0.5, 1.0]), returns=st.sampled_from([0.0, 0.5, 0.99]), slows=st.sampled_from([1.0, 1.5, 1e6]),
    replaces_node=st.booleans(), restarts=st.booleans(), saves_first=st.booleans(), while_down=st.booleans(),
)  # fmt: skip
EXTREMES = st.builds(
    lambda kinds, save, flush, drag, load, interval, spares, times: Conditions(
        16, tuple((f"k{at}", kind) for at, kind in enumerate(kinds)), CheckpointCost(1.0, save, flush, drag, load),
        interval, 1.0, spares, times[0], times[1], times[2], times[3],
    ),
    st.lists(KINDS, max_size=3), SECONDS, st.sampled_from([0.0, 1.0, 60.0, 3600.0]), st.sampled_from([0.0, 0.1, 1e6]), SECONDS,
    st.sampled_from([None, 60.0, 3600.0, 1e6]), st.integers(0, 16), st.tuples(TIMES, TIMES, st.none() | TIMES, TIMES),
)  # fmt: skip


@examples(25)
@given(EXTREMES)
def test_any_figures_give_shares(run: Conditions) -> None:
    answer = steady(run)
    total = sum(answer.parts.values())
    assert total == 0.0 or total == pytest.approx(1.0)
    assert all(share >= 0.0 for share in answer.parts.values()) and 0.0 <= answer.goodput <= answer.ettr <= 1.0 + ROUNDING
    simulated = simulate(run, answer.interval, float("inf"), 2e4, 2)
    assert sum(simulated.parts.values()) == pytest.approx(2e4 / 3600.0, rel=1e-6)
    assert all(hours >= -1e-6 for hours in simulated.parts.values())


@examples(10)
@given(RUNS)
def test_parts_add_up(run: Conditions) -> None:
    answer = steady(run)
    assert sum(answer.parts.values()) == pytest.approx(1.0)
    assert 0.0 <= answer.goodput <= answer.ettr <= 1.0


@examples(10)
@given(RUNS)
def test_halving_a_time_never_hurts(run: Conditions) -> None:
    """A rate may by a hair: a failure during a long recovery begins it anew with its own, which may be shorter."""
    for each in (run, replace(run, interval=None)):
        for lever in levers(each):
            assert lever.gain >= (-1e-4 if lever.name.startswith("failures") else -ROUNDING)


@examples(10)
@given(RUNS, st.integers(0, 30))
def test_more_spares_never_hurt(run: Conditions, more: int) -> None:
    assert steady(replace(run, spares=run.spares + more)).goodput >= steady(run).goodput - ROUNDING


@examples(10)
@given(RUNS, st.floats(1.01, 3.0))
@example(setting(np.random.default_rng(25054183), True), 1.01171875)  # a stop that saves first waits for a flush under way
def test_the_best_interval_beats_its_neighbours(run: Conditions, factor: float) -> None:
    choice = interval_choice(run)
    top = at(run, choice.best).goodput
    assert top >= at(run, choice.best * factor).goodput - ROUNDING
    if choice.best / factor >= run.shortest:
        assert top >= at(run, choice.best / factor).goodput - ROUNDING
    assert choice.flat[0] <= choice.best <= choice.flat[1]


@examples(4)
@given(RUNS)
def test_the_best_number_of_spares_beats_the_others(run: Conditions) -> None:
    choices = spare_choices(run)
    assert all(choices[0].per_node >= other.per_node - ROUNDING for other in choices)


@examples(10)
@given(RUNS)
def test_no_failures_leave_the_cost_of_checkpoints(run: Conditions) -> None:
    calm = replace(run, kinds=tuple((name, kind.often(0.0)) for name, kind in run.kinds))
    interval, cost = run.interval or 1.0, run.checkpoint
    assert steady(calm).ettr == pytest.approx(interval / (interval + cost.save + cost.flush * cost.drag / (1.0 + cost.drag)))


@examples(4)
@given(st.integers(0, 2**32))
def test_simulated_help_never_hurts_where_nothing_is_random(seed: int) -> None:
    """Failures at fixed gaps and fixed times: faster repair and more spares are never worse, run by run."""
    draw = np.random.default_rng(seed)
    run = setting(draw, False)
    name, kind = run.kinds[0]
    gap, repair = Duration(mean=float(draw.uniform(7200, 86400))), Duration(mean=float(draw.uniform(3600, 2e5)))
    kind = kind.model_copy(
        update={
            "gap": gap, "per_node_day": 0.0, "per_job_day": 0.0, "automatic": 1.0, "replaces_node": True,
            "detect": Duration(mean=kind.detect.mean), "diagnose": Duration(mean=kind.diagnose.mean),
        }
    )  # fmt: skip
    swap, init = Duration(mean=run.swap.mean), Duration(mean=run.init.mean)
    fixed = replace(run, kinds=((name, kind),), node_repair=repair, spares=1, queue=None, swap=swap, init=init)

    def waits(changed: Conditions) -> float:
        return simulate(changed, run.interval or 1.0, float("inf"), 60 * gap.mean, 1).parts["wait"]

    now = waits(fixed)
    assert waits(replace(fixed, spares=2)) <= now + ROUNDING
    assert waits(replace(fixed, node_repair=repair.times(0.5))) <= now + ROUNDING
