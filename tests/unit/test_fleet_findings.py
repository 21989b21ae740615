"""Findings on jobs whose fault is known: who is slow, which link, what grows; and nothing on healthy ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from tests.helpers.fleet_synthetic import job
from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.clocks import end_times
from windtunnel.fleet.findings.decline import _less_sure, _rise_chance, decline, fading_machines
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.judge import judge
from windtunnel.fleet.findings.slow_links import Transfers, match_transfers, slow_links
from windtunnel.fleet.findings.slow_ranks import _independent_share, pace_of, since_step, slow_ranks, starved_ranks
from windtunnel.fleet.findings.steps import step_table
from windtunnel.records.sections import Section, Sections, join_sections


def test_own_time_leaves_out_calls_and_gaps() -> None:
    """Backward of 1 s holds a call that blocks for 0.2 s, a gap of 0.1 s, and a call in flight at its end that was issued 0.3 s
    before."""
    rows = Sections.of(
        [0] * 5, [3] * 5, [Section.FORWARD, Section.BACKWARD, Section.CALL, Section.HOST_GAP, Section.CALL],
        [0.0, 1.0, 1.1, 1.5, 1.7], [0.5, 1.0, 0.2, 0.1, 0.4], host_seconds=[0.5, 1.0, 0.2, 0.1, 0.01],
    )  # fmt: skip
    table = step_table(rows)
    assert table.work[Section.FORWARD].item() == pytest.approx(0.5)
    # Held up: 0.2 s by the first call; from 1.7 on by the second (0.3 s, its larger one counts); 0.1 s by the gap.
    assert table.work[Section.BACKWARD].item() == pytest.approx(1.0 - 0.3 - 0.1)
    assert table.own.item() == pytest.approx(1.1)


def test_waits_for_a_core_are_no_work() -> None:
    """A backward of 1 s of which a call holds up 0.5 s, with waits of 0.2 s: who sleeps in a call asks for no core."""
    rows = Sections.of(
        [0] * 3, [0] * 3, [Section.BACKWARD, Section.CALL, Section.HOST_GAP], [0.0, 0.2, 0.8], [1.0, 0.5, 0.2], name=[-1, -1, 0],
        names=("no core",),
    )  # fmt: skip
    table = step_table(rows)
    assert table.starved.item() == pytest.approx(0.2) and table.own.item() == pytest.approx(0.3)
    assert np.isnan(table.work[Section.HOST_GAP].item())


def _without_core(rank: int, share: float, sections: Sections) -> Sections:
    """`rank`'s forwards and backwards get longer by waits for a core of `share` of their time."""
    mine = np.isin(sections.section, (Section.FORWARD, Section.BACKWARD))
    seconds = np.where(mine & (sections.rank == rank), sections.seconds * (1 + share), sections.seconds)
    longer = replace(sections, seconds=seconds, host_seconds=seconds)
    gaps = longer.where(mine)
    waits = gaps.seconds * np.where(gaps.rank == rank, share / (1 + share), 1e-3)
    kind = np.full(len(gaps), Section.HOST_GAP, np.uint8)
    begin = gaps.begin + gaps.seconds - waits
    gaps = replace(gaps, section=kind, name=np.zeros(len(gaps), np.int32), begin=begin, seconds=waits, host_seconds=waits)
    return join_sections([longer, replace(gaps, names=("no core",))])


def test_a_rank_without_a_core_is_no_slow_rank() -> None:
    table = step_table(_without_core(2, 0.3, job(steps=24)))
    assert slow_ranks(table) == []
    found = starved_ranks(table)
    assert [(one.verdict, one.ranks) for one in found] == [(Verdict.NO_CORE, (2,))] and "waits for a core 30.1 ms" in found[0].text
    assert starved_ranks(step_table(_without_core(2, 0.001, job(steps=24)))) == []


def test_lateness_is_against_the_middle_of_the_group() -> None:
    rows = Sections.of(
        [0, 1, 2], [0] * 3, [Section.CALL] * 3, [1.0, 1.1, 1.5], [1.0, 0.9, 0.5], comm=1, group=0, call=4, groups=((0, 1, 2),)
    )
    assert step_table(rows).late[:, 0] == pytest.approx([-0.1, 0.0, 0.4])


@pytest.mark.parametrize("factor", [1.1, 1.2, 1.5])
def test_a_slow_rank_is_named(factor: float) -> None:
    found = [
        slow_ranks(step_table(job(seed=seed, steps=22, slow=lambda rank, _: factor if rank == 5 else 1.0))) for seed in range(20)
    ]
    assert sum([one.ranks for one in ones] == [(5,)] for ones in found) >= 19
    assert all(ones[0].size == pytest.approx((factor - 1.0) / 1.04, abs=0.02) for ones in found if ones)  # 4 % is the optimizer


def test_one_of_four_is_named() -> None:
    """Three others say little about how far equal GPUs lie apart; what is known of GPUs of one kind says the rest."""
    named = 0
    for seed in range(20):
        usual = 1.0 + 0.005 * np.random.default_rng(seed).standard_normal(4)
        slow = [1.2 * each if rank == 1 else each for rank, each in enumerate(usual)]
        table = step_table(job(ranks=4, seed=seed, steps=30, slow=lambda rank, _, slow=slow: slow[rank]))
        named += [one.ranks for one in slow_ranks(table)] == [(1,)]
    assert named >= 17


def test_no_healthy_rank_of_four_is_named() -> None:
    """100 runs of 4 ranks that differ by 2 % (standard deviation) for good, with hiccups."""
    for seed in range(100):
        usual = 1.0 + 0.02 * np.random.default_rng(seed).standard_normal(4)
        table = step_table(job(ranks=4, seed=seed, steps=22, hiccups=0.02, slow=lambda rank, _, usual=usual: usual[rank]))
        assert slow_ranks(table) == []


def test_no_healthy_rank_is_named() -> None:
    """100 runs of 8 ranks with noise, 40 of them with hiccups of single steps."""
    for seed in range(100):
        table = step_table(job(seed=seed, steps=22, noise=0.01 + 0.03 * (seed % 3), hiccups=0.02 if seed % 5 < 2 else 0.0))
        assert slow_ranks(table) == []


def test_a_rank_that_is_stopped_now_and_then_is_named() -> None:
    """Every fifth step loses half of its work: 10 % on average, nothing in most steps."""
    table = step_table(job(steps=24, slow=lambda rank, step: 1.5 if rank == 2 and step % 5 == 0 else 1.0))
    assert [one.ranks for one in slow_ranks(table)] == [(2,)]


def test_one_in_two_hundred_machines_is_found() -> None:
    """MegaScale's case: 0.5 % of the machines 10 % slow. 200 machines of 4 ranks, one slow, noise of 3 % a section."""
    table = step_table(job(ranks=800, steps=16, noise=0.03, slow=lambda rank, _: 1.1 if rank // 4 == 77 else 1.0))
    found = slow_ranks(table)
    assert [(one.verdict, one.hosts, one.ranks) for one in found] == [(Verdict.SLOW_MACHINE, ("node77",), (308, 309, 310, 311))]


def test_stages_that_differ_are_not_slow() -> None:
    """A stage with more layers takes longer; its ranks are each other's equals."""
    roles = {rank: rank // 4 for rank in range(8)}
    table = step_table(job(steps=24, slow=lambda rank, _: 1.3 if rank >= 4 else 1.0), roles)
    assert slow_ranks(table) == []


def test_stages_are_known_from_pipeline_groups_where_there_is_no_mesh() -> None:
    """As Megatron-Core makes them."""
    sections = job(steps=24, slow=lambda rank, _: 1.3 if rank >= 4 else 1.0)
    pairs = tuple((rank, rank + 4) for rank in range(4))
    names = sections.group_names or ("",) * len(sections.groups)
    staged = replace(sections, groups=(*sections.groups, *pairs), group_names=(*names, *["pp"] * 4))
    slow = [one for one in judge(staged).findings if one.verdict is Verdict.SLOW_RANK]
    assert judge(staged).table.roles.tolist() == [0] * 4 + [1] * 4 and not slow
    assert judge(sections).table.roles.tolist() == [0] * 8


def test_when_a_rank_became_slow_is_told() -> None:
    table = step_table(job(steps=60, slow=lambda rank, step: 1.2 if rank == 1 and step >= 35 else 1.0))
    assert abs(since_step(table, [1]) - 35) <= 1
    assert since_step(step_table(job(steps=60)), [1]) == -1
    found = slow_ranks(table, window=20)
    assert [one.ranks for one in found] == [(1,)] and abs(found[0].since_step - 35) <= 1


def test_five_percent_is_a_figure() -> None:
    pace = pace_of(step_table(job(steps=60, noise=0.01, slow=lambda rank, _: 1.05 if rank == 3 else 1.0)))
    assert pace.excess[3] == pytest.approx(0.05, abs=0.01) and pace.error[3] < 0.01


def test_few_ranks_name_nobody() -> None:
    assert slow_ranks(step_table(job(ranks=2, slow=lambda rank, _: 2.0 if rank else 1.0))) == []


def test_a_slow_link_is_named_and_no_rank() -> None:
    def transfer(a: str, b: str, _: int) -> float:
        return 0.02 if {a, b} == {"node1", "node2"} else 0.002

    sections = job(ranks=8, per_host=2, steps=30, sends=True, transfer=transfer)
    found = slow_links(match_transfers(sections))
    assert [(one.verdict, one.hosts) for one in found] == [(Verdict.SLOW_LINK, ("node1", "node2"))]
    assert found[0].size == pytest.approx(9.0, rel=0.1)
    assert slow_ranks(step_table(sections)) == []


def _pairs_of_four(seconds: Callable[[int, int], float], steps: int) -> Transfers:
    """A call of 64 KiB on each pair of four machines in each step; `seconds(pair, step)`, pairs in the order of combinations."""
    pairs = tuple(combinations(("m0", "m1", "m2", "m3"), 2))
    rows = [(pair, step) for step in range(steps) for pair in range(len(pairs))]
    took = np.array([seconds(pair, step) for pair, step in rows])
    joins, step = (np.array(column) for column in zip(*rows, strict=True))
    return Transfers(took, np.full(len(rows), 65536.0), np.zeros(len(rows), np.int64), ((6, 65536, 2),), joins, pairs, step)


@pytest.mark.parametrize("seed", range(5))
def test_steps_in_which_all_other_links_were_late_do_not_clear_a_slow_one(seed: int) -> None:
    """Twice the time in 22 steps; in three of them four of the other five links took as long too, by chance."""
    draw = np.random.default_rng(seed)
    late = {int(step) for step in draw.choice(22, 3, replace=False)}
    noise = draw.uniform(1.0, 1.1, (6, 22))
    found = slow_links(
        _pairs_of_four(lambda pair, step: noise[pair, step] * (2.0 if pair == 4 or pair and step in late else 1.0), 22)
    )
    assert [one.hosts for one in found] == [("m1", "m3")] and found[0].size == pytest.approx(0.9, abs=0.15)
    assert slow_links(_pairs_of_four(lambda pair, step: noise[pair, step] * (2.0 if pair and step in late else 1.0), 22)) == []


def test_the_link_that_fades_is_seen_beside_transfers_that_wait() -> None:
    """One of six links fades to a quarter over 78 steps of noise; the sum of a step's transfers varies by as much."""
    draw = np.random.default_rng(1)
    noise = draw.uniform(1.0, 1.2, (6, 78))
    chance, machines = fading_machines(
        np.arange(78), _pairs_of_four(lambda pair, step: noise[pair, step] * (1 + step / 26 * (pair == 2)), 78)
    )
    assert machines == ("m0", "m3") and chance < 1e-6
    steady, _ = fading_machines(np.arange(78), _pairs_of_four(lambda pair, step: noise[pair, step], 78))
    assert steady > 0.01


def test_a_slow_uplink_is_one_machine() -> None:
    sections = job(ranks=8, per_host=2, steps=30, sends=True, transfer=lambda a, b, _: 0.01 if "node3" in (a, b) else 0.002)
    assert [(one.verdict, one.hosts) for one in slow_links(match_transfers(sections))] == [(Verdict.SLOW_UPLINK, ("node3",))]


def test_equal_links_are_not_named() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        sections = job(ranks=8, per_host=2, steps=30, sends=True, transfer=lambda a, b, _: 0.002 * float(rng.lognormal(0, 0.3)))
        assert slow_links(match_transfers(sections)) == []


def test_two_machines_are_held_against_what_the_link_should_do() -> None:
    sections = job(ranks=4, per_host=2, steps=30, sends=True, transfer=lambda a, b, _: 0.01)
    assert slow_links(match_transfers(sections)) == []
    found = slow_links(match_transfers(sections), lambda comm, size, pair: 0.005 if comm is Comm.SEND_RECV else float("nan"))
    assert [(one.hosts, round(one.size, 2)) for one in found] == [(("node0", "node1"), 1.0)]


GROWTH = {
    Verdict.LAUNCH_SKEW: {"gap": lambda rank, step: 0.0004 * step if rank == 6 else 0.0},
    Verdict.BANDWIDTH: {"transfer": lambda a, b, step: 0.002 + 0.0002 * step},
    Verdict.DATA: {"data": lambda rank, step: 0.0005 + (0.0003 * step if rank == 1 else 0.0)},
    Verdict.COMPUTE: {"slow": lambda rank, step: 1.0 + (0.003 * step if rank == 4 else 0.0)},
}
CULPRIT = {Verdict.LAUNCH_SKEW: (6,), Verdict.BANDWIDTH: (), Verdict.DATA: (1,), Verdict.COMPUTE: (4,)}


@pytest.mark.parametrize("verdict", GROWTH)
def test_a_decline_has_its_verdict(verdict: Verdict) -> None:
    for seed in range(10):
        sections = job(steps=80, seed=seed, **GROWTH[verdict])  # type: ignore[arg-type]
        found = decline(step_table(sections), match_transfers(sections))
        assert found is not None and (found.verdict, found.ranks) == (verdict, CULPRIT[verdict])
        assert {text.split(":")[0] for text in found.excluded} == {str(other) for other in GROWTH if other is not verdict}


def test_irregular_gaps_that_grow_are_launch_skew() -> None:
    """Garbage collection every tenth step, longer each time, on one rank."""
    sections = job(steps=200, gap=lambda rank, step: 0.0005 * step if rank == 3 and step % 10 == 9 else 0.0)
    found = decline(step_table(sections), match_transfers(sections))
    assert found is not None and (found.verdict, found.ranks) == (Verdict.LAUNCH_SKEW, (3,))


@pytest.mark.parametrize("since", [20, 40, 60])
@pytest.mark.parametrize("everyone", [True, False])
def test_a_jump_is_told_with_its_step(since: int, everyone: bool) -> None:
    """A clock that drops once, of all ranks or of one; a rank that is named as slow is not told again."""
    sections = job(steps=80, slow=lambda rank, step: 1.2 if step >= since and (everyone or rank == 2) else 1.0)
    table, transfers = step_table(sections), match_transfers(sections)
    found = decline(table, transfers)
    assert found is not None and (found.verdict, found.ranks) == (Verdict.COMPUTE, () if everyone else (2,))
    assert abs(found.since_step - since) <= 2 and found.size == pytest.approx(0.02, abs=0.005)
    if not everyone:
        assert decline(table, transfers, named=[2]) is None


def test_steady_steps_do_not_decline() -> None:
    for seed in range(20):
        sections = job(steps=80, seed=seed, noise=0.05, hiccups=0.05)
        assert decline(step_table(sections), match_transfers(sections)) is None


def test_a_slow_machine_costs_what_its_slowest_rank_costs() -> None:
    """Work of 100 ms; the ranks of a machine take 120, 130, 140 and 150 ms, the longest of the others 103 ms: 47 ms."""
    slow = {0: 1.03, 4: 1.2, 5: 1.3, 6: 1.4, 7: 1.5}
    (found,) = slow_ranks(step_table(job(ranks=40, noise=0.001, slow=lambda rank, _: slow.get(rank, 1.0))))
    assert (found.verdict, found.ranks) == (Verdict.SLOW_MACHINE, (4, 5, 6, 7))
    assert found.cost == pytest.approx(0.047, abs=5e-4)


def test_what_grows_for_all_does_not_hide_since_when_one_is_slow() -> None:
    """All ranks take three times as long from step 20 on, rank 5 another 30 % from step 40 on."""
    table = step_table(
        job(steps=80, slow=lambda rank, step: (3.0 if step >= 20 else 1.0) * (1.3 if rank == 5 and step >= 40 else 1.0))
    )
    (found,) = slow_ranks(table)
    assert (found.ranks, found.since_step) == ((5,), 40)
    assert found.size == pytest.approx(0.3, abs=0.02)


def test_evidence_has_the_lateness_at_calls_and_the_wait_for_a_core() -> None:
    """Work of 100 ms, 30 % longer on rank 5: it comes 30 ms after the others. Its waits for a core are a tenth of its time."""
    sections = job(noise=0.001, slow=lambda rank, _: 1.3 if rank == 5 else 1.0)
    (found,) = slow_ranks(step_table(sections))
    (late,) = [text for text in found.evidence if text.startswith("enters its calls")]
    assert float(late.split()[3]) == pytest.approx(30.0, abs=0.5) and "ms after the median rank of its groups" in late
    assert not any("waits for a core" in text for text in found.evidence)
    (found,) = slow_ranks(step_table(_without_core(5, 0.12, sections)))
    # 12 % of 130 ms, of 130 ms of work and 4.5 ms of data and update
    (core,) = [text for text in found.evidence if text.startswith("also waits for a core")]
    share = 0.12 * 130 / (1.12 * 130 + 4.5)
    assert float(core.split()[5].rstrip("%")) == pytest.approx(100 * share, abs=0.4)


def test_steps_that_follow_each_other_count_as_fewer() -> None:
    """(1 - r) / (1 + r) of the steps, r the correlation of neighbours: 1/4 here; where it is negative, all of them."""
    assert _independent_share(np.array([[1.0, 1.0, -1.0, -1.0]])) == pytest.approx(0.75 / 1.25)
    assert _independent_share(np.array([[1.0, -1.0, 1.0, -1.0]])) == 1.0


def test_a_slow_link_costs_what_its_transfers_take_longer() -> None:
    """Six pairs of machines send for 1 s in each step, one of them for 4 s: 3 s of a step."""
    draw = np.random.default_rng(1).uniform(1.0, 1.01, (6, 22))
    (found,) = slow_links(_pairs_of_four(lambda pair, step: draw[pair, step] * (4.0 if pair == 4 else 1.0), 22))
    assert found.cost == pytest.approx(3.0, rel=0.02) and found.size == pytest.approx(3.0, rel=0.02)


def test_a_section_ends_when_host_and_device_are_done() -> None:
    rows = Sections.of(
        [0] * 3, [0] * 3, [Section.CALL] * 3, [10.0, 20.0, 30.0], [2.0, 1.0, np.nan], host_seconds=[0.5, 3.0, 1.0]
    )  # fmt: skip
    assert end_times(rows).tolist()[:2] == [12.0, 23.0] and np.isnan(end_times(rows)[2])


def test_the_chance_of_a_rise_is_that_of_mann_and_kendall() -> None:
    """Ten rising values: S = 45 of variance 10 x 9 x 25 / 18 = 125, so the upper tail of a normal beyond 44 / sqrt(125)."""
    assert _rise_chance(np.arange(10.0)) == pytest.approx(norm.sf(44 / np.sqrt(125.0)), rel=1e-9)
    assert _rise_chance(np.arange(10.0)[::-1]) == 1.0


@pytest.mark.parametrize(
    ("residuals", "kept"),
    [
        ([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0], 0.5 / 1.5),  # r = 1/8, for 8 values (8 r + 1) / 4 = 1/2
        ([3.0, 3.0, 1.0, 1.0, 3.0, 3.0, 1.0, 1.0], 0.5 / 1.5),  # the same about a mean of 2
        ([1.0, -1.0] * 4, 1.0),  # neighbours that differ make nothing surer
        ([1.0] * 4 + [-1.0] * 4, 0.05 / 1.95),  # (5 + 1) / 4 is above the most that counts, 0.95
        ([0.0] * 8, 0.75 / 1.25),  # no residuals: r = 0, and Kendall's correction alone
    ],
)
def test_values_that_follow_each_other_make_a_chance_less_sure(residuals: list[float], kept: float) -> None:
    """z of a normal value times ((1 - r) / (1 + r))^(1/2), Kendall's correction of r in short series among it."""
    assert _less_sure(norm.cdf(-3.0), np.array(residuals)) == pytest.approx(norm.cdf(-3.0 * np.sqrt(kept)), rel=1e-9)
    assert _less_sure(0.6, np.array(residuals)) == 0.6


@pytest.mark.parametrize(("noise", "since"), [(0.001, 22), (0.0148, 22), (0.0155, -1), (0.1, -1)])
def test_a_change_within_the_noise_has_no_step(noise: float, since: int) -> None:
    """An excess of 4 % in the last 20 of 40 steps gains 20 x 20 / 40 x 0.04^2 = 0.016; steps that alternate by 2 a vary by
    2 a / 0.954, and 16 times the square of that is 0.016 at a = 0.01509."""
    table = step_table(job(steps=42))
    own = np.ones_like(table.own)
    own[1, 2:] += np.repeat([0.0, 0.04], 20) + noise * np.tile([1.0, -1.0], 20)
    assert since_step(replace(table, own=own), [1]) == since


def test_a_decline_says_how_long_steps_were_and_are() -> None:
    """Rank 2's work of 100 ms takes 120 from step 40 on: a step of 106.5 ms (data, update, 2 ms of transfer) takes 126.5."""
    sections = job(steps=80, noise=0.001, slow=lambda rank, step: 1.2 if step >= 40 and rank == 2 else 1.0)
    found = decline(step_table(sections), match_transfers(sections))
    assert found is not None and found.cost == pytest.approx(0.02, abs=1e-3)
    words = found.evidence[0].split()
    assert words[:3] == ["a", "step", "took"] and "takes" in words
    was, now = (float(words[words.index(verb) + 1]) for verb in ("took", "takes"))
    assert (was, now) == (pytest.approx(106.5, abs=1.5), pytest.approx(126.5, abs=1.5))


def test_a_rank_whose_work_grows_is_told_once() -> None:
    """As what it is: the cause of the decline, and not beside that as a slow rank."""
    judged = judge(job(steps=80, slow=lambda rank, step: 1.0 + 0.01 * step if rank == 6 else 1.0))
    assert [(one.verdict, one.ranks) for one in judged.findings if 6 in one.ranks] == [(Verdict.COMPUTE, (6,))]


def test_the_pace_of_no_steps_has_no_steps() -> None:
    assert pace_of(step_table(job(steps=2)), warm_up=2).steps == (-1, -1)
