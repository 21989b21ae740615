"""The closed form against numbers worked out by hand and printed in papers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from windtunnel.goodput.answer import levers, spare_choices
from windtunnel.goodput.closed import at, best_interval, flat_range, pace_of, rates_of, smooth, steady, trained_seconds, wall_of
from windtunnel.goodput.conditions import CheckpointCost, Conditions, Rates
from windtunnel.goodput.recovery import Wait, failure_chance, no_spare, recoveries, spent, waiting
from windtunnel.spec.reliability import Duration, Failure

DAY = 86400.0


def run_with(kind: Failure, save: float = 20.0, **fields: object) -> Conditions:
    """A run of 100 nodes with one kind of failure and checkpoints that only block."""
    base = Conditions(nodes=100, kinds=(("crash", kind),), checkpoint=CheckpointCost(1e12, save, 0.0, 0.0, 0.0))
    return replace(base, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (Duration(mean=60.0), math.exp(-0.6)),
        (Duration(mean=60.0, law="exponential"), 1.0 / 1.6),
        (Duration(mean=60.0, law="uniform", spread=0.5), (math.exp(-0.3) - math.exp(-0.9)) / 0.6),
        (Duration(), 1.0),
    ],
)
def test_transforms(duration: Duration, expected: float) -> None:
    assert 1.0 - failure_chance(duration, 0.01) == pytest.approx(expected, rel=1e-12)
    assert spent(duration, 0.01) == pytest.approx((1.0 - expected) / 0.01, abs=1e-9)


@pytest.mark.parametrize("law", ["fixed", "exponential", "lognormal", "uniform"])
def test_rare_failures_cut_nothing_short(law: str) -> None:
    """Down to rates at which 1 - f is below a float's resolution at 1."""
    duration = Duration(mean=60.0, law=law, spread=0.5)  # type: ignore[arg-type]
    for rate in (1e-8, 1e-12, 1e-20, 0.0):
        assert spent(duration, rate) == pytest.approx(60.0, rel=1e-5)


def test_a_lognormal_transform_is_its_integral() -> None:
    """E[exp(-X)] of a lognormal of mean 1 and sigma 1, by the trapezoid rule over its density's 2e5 points."""
    points = 200_000
    total = sum(
        math.exp(-math.exp(z - 0.5) - 0.5 * z * z) for z in (-10.0 + 20.0 * i / points for i in range(points + 1))
    ) * (20.0 / points) / math.sqrt(2.0 * math.pi)  # fmt: skip
    assert 1.0 - failure_chance(Duration(mean=1.0, law="lognormal", spread=1.0), 1.0) == pytest.approx(total, rel=1e-5)


def test_dalys_interval() -> None:
    """Daly 2006, equation 20: (M + R)(exp((t + w) / M) - 1) with recoveries that no failure strikes; M = 3000, R = 200."""
    kind = Failure(per_job_day=DAY / 3000.0, detect=Duration(mean=200.0), while_down=False)
    answer = steady(run_with(kind, interval=1000.0))
    assert answer.goodput == pytest.approx(1000.0 / (3200.0 * math.expm1(1020.0 / 3000.0)), rel=1e-12)
    assert sum(answer.parts.values()) == pytest.approx(1.0, rel=1e-12)


def test_recoveries_that_failures_strike() -> None:
    """One kind of fixed length R: M (exp(R / M) - 1), as a restart that has to succeed as a whole."""
    kind = Failure(per_job_day=DAY / 3000.0, detect=Duration(mean=100.0), diagnose=Duration(mean=200.0))
    recovery = recoveries(run_with(kind))["crash"]
    assert recovery.seconds == pytest.approx(3000.0 * math.expm1(0.1), rel=1e-12)
    assert recovery.starts == pytest.approx(math.exp(0.1), rel=1e-12)


def test_a_node_that_is_owed_is_paid_by_the_next_recovery() -> None:
    """Two kinds at equal rates; only one needs a node, whose swap takes 60 s: while it is owed, either start pays it.

    With detection of 100 s and no other phase, rate 2 / M: a start that owes ends with a = exp(-2 160 / M), one that does not
    with b = exp(-2 100 / M)."""
    detect = Duration(mean=100.0)
    kinds = (
        ("crash", Failure(per_job_day=DAY / 3000.0, detect=detect, replaces_node=True)),
        ("hang", Failure(per_job_day=DAY / 3000.0, detect=detect)),
    )
    run = Conditions(
        2, kinds, CheckpointCost(1.0, 1.0, 0.0, 0.0, 0.0), spares=10, node_repair=Duration(mean=1e-6), swap=Duration(mean=60.0)
    )
    rate = 2.0 / 3000.0
    ends_detect, ends_swap = math.exp(-100.0 * rate), math.exp(-60.0 * rate)
    detection, swap = (1.0 - ends_detect) / rate, ends_detect * (1.0 - ends_swap) / rate
    # r1 = t1 + p r1 + q r0 for cuts while owing (p) and during the swap (q); r0 = mean start of both kinds
    owing, late = 1.0 - ends_detect, ends_detect * (1.0 - ends_swap)
    t1, free = detection + swap, detection + 0.5 * swap
    a, b = 0.5 * owing, 0.5 * (late + (1.0 - ends_detect))
    # r0 = free + a r1 + b r0
    r1 = (t1 * (1.0 - b) + late * free) / ((1.0 - owing) * (1.0 - b) - late * a)
    r0 = (free + a * r1) / (1.0 - b)
    answer = recoveries(run)
    assert answer["crash"].seconds == pytest.approx(t1 + owing * r1 + late * r0, rel=1e-9)
    assert answer["hang"].seconds == pytest.approx(detection + (1.0 - ends_detect) * r0, rel=1e-9)


def test_a_flush_delays_the_mark() -> None:
    """A(t) = (1 - exp(-L c)) exp(L g) / L; c = t + w + F s / (1 + s), g = t + w + F."""
    cost = CheckpointCost(1e12, 10.0, 100.0, 0.25, 0.0)
    c, g, rate = 600.0 + 10.0 + 20.0, 710.0, 1.0 / 5000.0
    assert trained_seconds(600.0, Rates(rate), cost) == pytest.approx(
        (1.0 - math.exp(-c * rate)) * math.exp(g * rate) / rate, rel=1e-12
    )
    assert trained_seconds(600.0, Rates(0.0), cost) == pytest.approx(c)


def test_stops_that_save_first_keep_what_was_trained() -> None:
    """Without a flush and with saves of no time, work between two durable moments is p(u) = u: the work kept until the first
    stop of either kind is t q / (1 - q) + m (1 - q (1 + r t)) / r^2 / (1 - q) with r = L + m and q = exp(-r t)."""
    loses, saves, t = 1.0 / 4000.0, 1.0 / 1000.0, 600.0
    r = loses + saves
    q = math.exp(-r * t)
    kept = t * q / (1.0 - q) + saves * (1.0 - q * (1.0 + r * t)) / r**2 / (1.0 - q)
    cost = CheckpointCost(1e12, 0.0, 0.0, 0.0, 0.0)
    assert trained_seconds(t, Rates(loses, saves), cost) == pytest.approx(t / r / kept, rel=1e-12)
    assert trained_seconds(t, Rates(loses, 1e-15), cost) == pytest.approx(trained_seconds(t, Rates(loses), cost), rel=1e-9)


def test_best_interval_is_youngs_where_losses_are_small() -> None:
    kind = Failure(per_job_day=1.0)
    run = run_with(kind, save=0.1)
    assert best_interval(run, Rates(1.0 / DAY), 1e9, wall_of(run)) == pytest.approx(math.sqrt(2.0 * 0.1 * DAY), rel=2e-3)


def test_best_interval_solves_its_equation() -> None:
    """(1 - x) exp(x) = exp(-L a); for L a = 1 the root is x = 1 + W(-exp(-2)) = 0.841405660436961 (Lambert's W by hand:
    Newton)."""
    run = run_with(Failure(), save=500.0)
    assert best_interval(run, Rates(1.0 / 500.0), 1e9, wall_of(run)) == pytest.approx(0.841405660436961 * 500.0, rel=1e-9)


def test_flat_range_loses_one_percent() -> None:
    run = run_with(Failure(per_job_day=8.0), save=10.0)
    rates = rates_of(run)
    best = best_interval(run, rates, 1e6, wall_of(run))
    low, high = flat_range(run, rates, best, 1e6, wall_of(run))
    top = at(run, best).goodput
    assert low < best < high
    assert at(run, low).goodput == pytest.approx(0.99 * top, rel=1e-6)
    assert at(run, high).goodput == pytest.approx(0.99 * top, rel=1e-6)


def test_no_spare_with_a_queue_of_no_time_is_erlangs() -> None:
    """B(2, 1) = (1/2) / (1 + 1 + 1/2) = 0.2."""
    kind = Failure(per_job_day=1.0, replaces_node=True)
    run = run_with(kind, spares=2, node_repair=Duration(mean=DAY), queue=Duration())
    assert no_spare(run) == pytest.approx(0.2, rel=1e-6)


def test_no_spare_without_a_queue_is_a_poisson_tail() -> None:
    """P(n >= 2) of a Poisson with mean 1 is 1 - 2 / e."""
    kind = Failure(per_job_day=1.0, replaces_node=True)
    run = run_with(kind, spares=2, node_repair=Duration(mean=DAY))
    assert no_spare(run) == pytest.approx(1.0 - 2.0 / math.e, rel=1e-6)
    assert no_spare(replace(run, spares=0)) == pytest.approx(1.0)


def test_spares_of_the_hand_calculation() -> None:
    """2,048 nodes, 3.8e-3 failures a node-day, two days of repair: 15.6 in repair, and 27 spares leave about 0.4 % without."""
    kind = Failure(per_node_day=3.8e-3, replaces_node=True)
    run = run_with(kind, nodes=2048, spares=27, node_repair=Duration(mean=2 * DAY))
    assert 0.002 < no_spare(run) < 0.006


def test_waits_end_by_the_first_repair_or_the_queue() -> None:
    """Queue of 600 s, the first of 4 + 1 repairs of 3000 s each: E[min] = 600 (1 - exp(-1))."""
    run = run_with(
        Failure(per_job_day=1.0, replaces_node=True), spares=4, node_repair=Duration(mean=3000.0), queue=Duration(mean=600.0)
    )
    assert waiting(run).spent(0.0) == pytest.approx(600.0 * (1.0 - math.exp(-1.0)), rel=1e-12)


def test_slow_nodes_take_pace_and_not_ettr() -> None:
    """One slow node of 2x in the mean half of the time: x = 0.5, active for 1 - exp(-0.5)."""
    kind = Failure(per_job_day=24.0, slows=2.0, detect=Duration(mean=1800.0), saves_first=True)
    run = run_with(kind, save=0.0, interval=100.0)
    active = 1.0 - math.exp(-0.5)
    assert pace_of(run) == pytest.approx(1.0 - 0.5 * active)
    answer = steady(run)
    assert answer.ettr == pytest.approx(1.0) and answer.goodput == pytest.approx(1.0 - 0.5 * active)


def test_failures_that_return_come_more_often() -> None:
    kind = Failure(per_job_day=1.0, returns=0.5)
    assert rates_of(run_with(kind)).loses == pytest.approx(2.0 / DAY)


def test_without_failures_only_checkpoints_cost() -> None:
    answer = steady(run_with(Failure(), save=10.0, interval=990.0))
    assert answer.ettr == pytest.approx(0.99) and answer.mtbf == math.inf and answer.recovery == 0.0


def test_a_run_that_never_ends_says_so() -> None:
    kind = Failure(per_job_day=DAY / 60.0, detect=Duration(mean=600.0))
    answer = steady(run_with(kind))
    assert not answer.progresses and answer.ettr < 0.01
    hopeless = steady(run_with(Failure(per_job_day=DAY, detect=Duration(mean=DAY))))
    assert hopeless.ettr == 0.0 and not hopeless.progresses


def test_a_save_waits_for_the_flush_before_it() -> None:
    """A flush of 60 s, a save of 5 s: checkpoints every 10 s of training come every 65 s, those every 100 s every 105 s."""
    cost = CheckpointCost(1e12, save=5.0, flush=60.0, drag=0.0, load=0.0)
    assert smooth(10.0, Rates(0.0), cost) == 65.0
    assert smooth(100.0, Rates(0.0), cost) == 105.0
    dragged = replace(cost, drag=0.2)  # 60 s of flush take 10 s of training
    assert smooth(10.0, Rates(0.0), dragged) == 65.0
    assert smooth(100.0, Rates(0.0), dragged) == pytest.approx(115.0)
    assert smooth(30.0, Rates(0.0, pace=0.5), dragged) == pytest.approx(75.0)  # at half the pace 30 s take 60 s
    # An interval of 10 s with a failure every 1,000 s of training: (1 - exp(-65 L)) exp((10 + 5 + 60) L) / L.
    assert trained_seconds(10.0, Rates(1e-3), cost) == pytest.approx((1.0 - math.exp(-0.065)) * math.exp(0.075) * 1e3, rel=1e-12)


def test_a_wide_uniform_duration_under_many_failures() -> None:
    """X uniform from 30 to 90 s, a failure every 10 s: 1 - (exp(-3) - exp(-9)) / 6."""
    duration = Duration(mean=60.0, law="uniform", spread=0.5)
    assert failure_chance(duration, 0.1) == pytest.approx(1.0 - (math.exp(-3.0) - math.exp(-9.0)) / 6.0, rel=1e-12)


def test_who_waits_for_a_node_waits_for_the_queue_or_for_a_repair() -> None:
    """Fixed times: the shorter one. Repairs at random: the queue, which the repair of one of S + 1 nodes may end at (S + 1) / T."""
    kind = Failure(per_node_day=0.01, replaces_node=True)
    hour, short, long = Duration(mean=3600.0, law="fixed"), Duration(mean=600.0), Duration(mean=7200.0)
    fixed = run_with(kind, node_repair=hour, spares=0)
    assert waiting(replace(fixed, queue=short)) == Wait(short)
    assert waiting(replace(fixed, queue=long)) == Wait(hour)
    assert waiting(replace(fixed, queue=None)) == Wait(hour)
    chance = replace(fixed, node_repair=replace_law(hour))
    assert waiting(replace(chance, queue=short)) == Wait(short, 1.0 / 3600.0)
    assert waiting(replace(fixed, queue=short, spares=3)) == Wait(short, 4.0 / 3600.0)
    assert waiting(replace(fixed, queue=None, spares=3)) == Wait(Duration(mean=900.0, law="exponential"))


def replace_law(duration: Duration) -> Duration:
    return duration.model_copy(update={"law": "exponential"})


def test_spares_are_paid_for_like_the_jobs_nodes() -> None:
    kind = Failure(per_node_day=0.05, replaces_node=True, detect=Duration(mean=60.0))
    run = run_with(kind, node_repair=Duration(mean=7 * DAY), queue=Duration(mean=DAY), spares=10)
    for choice in spare_choices(run):
        assert choice.share == pytest.approx(choice.spares / 100)
        assert choice.per_node == pytest.approx(choice.goodput * 100 / (100 + choice.spares))
        assert choice.goodput == pytest.approx(steady(replace(run, spares=choice.spares)).goodput)


def test_failures_are_counted_by_the_second_of_the_whole_run() -> None:
    """A kind that also strikes recoveries comes at its rate; one that does not, in the seconds of training only."""
    every = Failure(per_job_day=24.0, detect=Duration(mean=600.0))
    busy = every.model_copy(update={"while_down": False})
    assert steady(run_with(every)).failures["crash"] == pytest.approx(24.0 / DAY, rel=1e-12)
    answer = steady(run_with(busy))
    training = answer.parts["useful"] + answer.parts["save"] + answer.parts["replay"]
    assert answer.failures["crash"] == pytest.approx(24.0 / DAY * training, rel=1e-9)
    assert answer.failures["crash"] < 0.9 * 24.0 / DAY


def test_only_times_that_are_spent_can_be_halved() -> None:
    kind = Failure(per_job_day=24.0, detect=Duration(mean=600.0))
    named = {one.field: one.gain for one in levers(run_with(kind))}
    assert [field for field in named if "*" in field] == ["reliability.*.detect"]
    assert named["reliability.crash"] > 0.0 and named["reliability.*.detect"] > 0.0 and named["reliability.checkpoint.block"] > 0.0
    never = levers(run_with(kind.model_copy(update={"per_job_day": 0.0}), interval=1000.0))
    assert not {"reliability.crash", "reliability.*.detect"} & {one.field for one in never}


def test_work_kept_by_stops_that_save_first_is_the_integral_of_what_was_trained() -> None:
    """Stops that save first keep p(u), integrated here in steps of 0.01 s. Checkpoints every 200 s: a save of 20 s, durable 60 s
    after it, beside training. Failures every 2,000 s lose work, stops every 1,000 s save it."""
    t, save, flush, loses, stops = 200.0, 20.0, 60.0, 1 / 2000, 1 / 1000
    rate = loses + stops
    moments = math.exp(-rate * (t + save + flush)) / -math.expm1(-rate * (t + save))

    def kept(*pieces: tuple[float, float, float]) -> float:
        """Pieces (seconds, work at their begin, work a second) one after the other."""
        total, begin, step = 0.0, 0.0, 0.01
        for seconds, work, slope in pieces:
            for number in range(round(seconds / step)):
                middle = (number + 0.5) * step
                total += (work + slope * middle) * math.exp(-rate * (begin + middle)) * step
            begin += seconds
        return total

    # Between two durable moments the 60 s of work beside the last flush are there already.
    first = kept((t, 0.0, 1.0), (save, t, 0.0), (flush, t, 1.0))
    between = kept((t - flush, flush, 1.0), (save, t, 0.0), (flush, t, 1.0))
    work = t * moments + stops * (first + moments * between)
    cost = CheckpointCost(1e12, save, flush, 0.0, 0.0)
    assert trained_seconds(t, Rates(loses, stops), cost) == pytest.approx(t / rate / work, rel=1e-7)
