"""DP-attention ranks that share experts begin each pass together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel.serving.simulate as simulate
from tests.laws.test_serving_laws import LENGTHS, LIMITS, CountedTimes, as_times, load_of
from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.disaggregated import run_apart
from windtunnel.serving.drafting import times_of
from windtunnel.serving.engine import ENGINES, ServeEngine
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import ServeLoad, drawn_load
from windtunnel.serving.simulate import run_lane, run_ranks
from windtunnel.serving.speculation import Speculation
from windtunnel.spec import load_cluster, load_model


class MeetingTimes(CountedTimes):
    """The slowest rank's seconds, and some for the tokens of all."""

    def meeting_seconds(self, ones: list[tuple[Passing, int, int]], idle: int) -> float:
        tokens = sum(one.tokens * count for one, _, count in ones) + idle
        return max(self.seconds(one, sampled) for one, sampled, _ in ones) + 1e-6 * tokens


RANKS = st.lists(LENGTHS, min_size=2, max_size=4)
DRAFTS = st.none() | st.builds(Speculation, st.just("eagle"), st.integers(1, 3), st.floats(1.0, 2.0))


@examples(60)
@given(RANKS, LIMITS, st.integers(1, 5), DRAFTS)
def test_ranks_that_meet_serve_every_token(
    ranks: list[list[tuple[int, int]]], limits: ServeEngine, users: int, drafts: Speculation | None
) -> None:
    """All requests end, in order of their tokens; every rank has the passes of the group, and is busy as long; none with one
    user is faster than it is alone."""
    loads = [load_of(lengths, users) for lengths in ranks]
    times = as_times(MeetingTimes(limits, drafts))
    found = run_ranks(times, loads, 16 * 60, [1] * len(loads))
    for load, one in zip(loads, found, strict=True):
        assert (one.first > one.sent).all()
        assert ((one.last > one.first) == (load.output > 1)).all()
        assert one.busy == pytest.approx(found[0].busy)
        assert one.steps == found[0].steps
        if users == 1:  # more users can be batched better in turn for a pass that takes longer
            alone = run_lane(times, load, 16 * 60)
            assert one.last.max() >= alone.last.max() * (1.0 - 1e-9)
            assert one.steps >= alone.steps


@examples(40)
@given(RANKS, LIMITS, st.integers(1, 5), DRAFTS)
def test_runs_of_meetings_are_worth_the_meetings(
    ranks: list[list[tuple[int, int]]], limits: ServeEngine, users: int, drafts: Speculation | None
) -> None:
    loads = [load_of(lengths, users) for lengths in ranks]
    times = as_times(MeetingTimes(limits, drafts))
    together = run_ranks(times, loads, 16 * 60, [1] * len(loads))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "RUN", 0)
        alone = run_ranks(times, loads, 16 * 60, [1] * len(loads))
    if limits.name != "sglang":  # whose waiting requests are looked at less often
        for one, other in zip(together, alone, strict=True):
            assert one.steps == other.steps
            assert one.last == pytest.approx(other.last, rel=1e-3)  # the slowest rank may change inside a run


def mixture(engine: str, dp: int, gpus: int | None = None) -> simulate.StepTimes:
    plan = ServePlan(tp=1, dp=dp, ep=dp)
    return times_of(server_of(load_model("qwen3-30b-a3b"), "h100-ib", gpus or dp, engine, plan))


TIMES = {name: mixture(name, 4) for name in ENGINES}


@examples(30)
@given(st.sampled_from(list(ENGINES)), st.integers(0, 3000), st.integers(0, 300), st.floats(1.0, 4000.0))
def test_equal_ranks_take_what_one_takes(engine: str, prompt: int, decodes: int, length: float) -> None:
    """Four ranks with the same pass; a rank with less does not make it longer, one with more not shorter."""
    times = TIMES[engine]
    decodes = max(decodes, 1 - min(prompt, 1))
    one = Passing(prompt, min(prompt, 1), prompt * (prompt + 1) / 2, decodes, decodes * length)
    few = Passing(0, 0, 0.0, 1, length)
    same = times.meeting_seconds([(one, decodes, 4)], 0)
    assert same == pytest.approx(times.seconds(one, decodes), rel=1e-9)
    assert times.meeting_seconds([(one, decodes, 1), (few, 1, 1)], 2) <= same * (1.0 + 1e-9)
    assert times.meeting_seconds([(one, decodes, 1)], 3) <= times.meeting_seconds([(one, decodes, 2)], 2) * (1.0 + 1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_drafted_before_the_first_token(engine: str) -> None:
    """A prompt of one token is computed in a pass of its own; the next pass has the second token."""
    limits = replace(ENGINES.find(engine).limits(load_cluster("h100-ib").node.gpu, 1), step_tokens=72)
    times = as_times(MeetingTimes(limits, Speculation("eagle", 3, 2.0)))
    for prompt in (1, 2):
        found = run_lane(times, load_of([(prompt, 2)], 1), 960)
        assert found.steps == 2 and (found.last > found.first).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prompt_of_one_rank_holds_up_the_others(engine: str) -> None:
    """One rank has long prompts, three decode: their tokens wait for each of its passes."""
    times, output = TIMES[engine], 200
    short = ServeLoad(np.full(4, 16), np.full(4, output), np.zeros(0), 1)
    long = replace(short, prompt=np.full(4, 6000), output=np.full(4, 2))
    calm = run_ranks(times, [short], 10**6, [4])[0]
    held = run_ranks(times, [short, long], 10**6, [3, 1])[0]
    assert held.last.max() > calm.last.max() + 3 * times.seconds(Passing(6000, 1, 18e6, 0, 0.0), 1) * 0.5


def test_equal_lanes_are_simulated_once_and_unequal_ones_meet() -> None:
    """Eight users on four ranks are two each: the numbers of one lane. Six are two, two, one and one: the ranks with one wait."""
    times = TIMES["vllm"]
    even, odd = (serve(times.server, drawn_load(256, 64, concurrency=users, requests=3 * users), times=times) for users in (8, 6))
    single = run_lane(times, ServeLoad(np.full(6, 256), np.full(6, 64), np.zeros(0), 2), even.room.lane_tokens)
    assert even.seconds == pytest.approx(single.last.max())
    assert odd.batch == pytest.approx(6.0, rel=0.15)
    assert even.tpot.mean >= odd.tpot.mean > 0.8 * even.tpot.mean


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_of_both_sides_meet(engine: str) -> None:
    """Two ranks for prompts, four for tokens: all requests are served in order; a token takes no less than on the same
    ranks without prompts before it, whose kernels no host has to call."""
    front, back = mixture(engine, 2), TIMES[engine]
    load = drawn_load("200-900", "16-80", concurrency=12, requests=60)
    ran = run_apart(front, back, load, (200_000, 200_000))
    assert (ran.result.first > ran.result.sent).all()
    assert (ran.result.last > ran.result.first).all()
    free = times_of(replace(back.server, engine=replace(back.server.engine, call_host=0.0)))
    alone = serve(free.server, replace(load, prompt=np.ones(60, np.int64)), times=free)
    assert (ran.result.last - ran.result.first).mean() > 0.9 * alone.tpot.mean * float((load.output - 1).mean())
    assert 0.0 < ran.decode_busy <= 1.0 and 0.0 < ran.prefill_busy <= 1.0
