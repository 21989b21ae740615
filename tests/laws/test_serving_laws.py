"""What holds for any engine, load and cache."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.cache import PagedCache
from windtunnel.serving.engine import ENGINES, ServeEngine
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.lane import Lane
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import ServeLoad, drawn_load
from windtunnel.serving.simulate import run_lane
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model


class CountedTimes:
    """Seconds that are linear in what a pass does, and how many tokens passes had."""

    def __init__(self, engine: ServeEngine, speculation: Speculation | None = None) -> None:
        drafts = speculation.drafts if speculation else 0
        self.server = SimpleNamespace(engine=engine, drafts=drafts, speculation=speculation, tiers=())

    def seconds(self, one: Passing, sampled: int) -> float:
        return 1e-3 + 1e-5 * one.tokens + 1e-8 * one.pairs + 1e-7 * one.cached


def as_times(times: CountedTimes) -> StepTimes:
    return cast(StepTimes, times)


LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=25)
LIMITS = st.builds(
    lambda name, tokens, running, block, reserves, keeps: ServeEngine(
        name, tokens, tokens, running, block, 0.9, 512, False, False, reserves_prompt=reserves, keeps_blocks=keeps
    ),
    st.sampled_from(list(ENGINES)), st.integers(20, 90), st.integers(1, 12), st.sampled_from([1, 4, 16]), st.booleans(),
    st.booleans(),
)  # fmt: skip


def load_of(lengths: list[tuple[int, int]], users: int, gaps: list[float] | None = None) -> ServeLoad:
    prompt, output = (np.array(part, np.int64) for part in zip(*lengths, strict=True))
    arrival = np.zeros(0) if gaps is None else np.cumsum(np.resize(gaps, len(lengths)))
    return ServeLoad(prompt, output, arrival, users)


@examples(120)
@given(LENGTHS, LIMITS, st.integers(1, 9), st.integers(7, 30))
def test_tokens_and_blocks_are_conserved_and_the_cache_never_overflows(
    lengths: list[tuple[int, int]], limits: ServeEngine, users: int, blocks: int
) -> None:
    """Each pass: blocks are neither lost nor made, and suffice for the tokens of their requests; in the end all outputs are there,
    and each token was computed once, but for those that were computed again."""
    load = load_of(lengths, users)
    lane = Lane(load, PagedCache(blocks * 16 // limits.block, limits.block, len(load)))
    lane.waiting.extend(range(len(load)))
    rules = rules_of(limits)
    computed = 0
    for _ in range(20_000):
        step = rules.next_step(lane)
        if step is None:
            break
        assert len(set(step.ids.tolist())) == len(step.ids)
        assert (step.counts > 0).all()
        assert step.counts.sum() <= limits.step_tokens or limits.name == "sglang"
        lane.cache.check()
        assert (lane.cache.held[step.ids] * limits.block >= lane.computed[step.ids] + step.counts).all()
        computed += int(step.counts.sum())
        lane.finish(step)
    assert not lane.running
    assert not lane.waiting
    assert (lane.emitted == load.output).all()
    assert lane.cache.available == lane.cache.total
    assert computed == int((load.prompt + load.output - 1).sum()) + lane.recomputed


@examples(80)
@given(LENGTHS, LIMITS, st.integers(14, 40), st.integers(1, 3))
def test_shared_prompts_lose_no_block_and_no_token(
    lengths: list[tuple[int, int]], limits: ServeEngine, blocks: int, trees: int
) -> None:
    """Prompts of `trees` kinds share their starts: blocks are conserved in each pass, and each token of a prompt is computed or was
    in the cache."""
    names = tuple(tuple(1000 * (n % trees) + part for part in range(4)) for n in range(len(lengths)))
    load = replace(load_of(lengths, 1), blocks=names, block=16)
    lane = Lane(load, PagedCache(blocks * 16 // limits.block, limits.block, len(load)))
    lane.waiting.extend(range(len(load)))
    rules, computed = rules_of(limits), 0
    for _ in range(20_000):
        step = rules.next_step(lane)
        if step is None:
            break
        computed += int(step.counts.sum())
        lane.cache.check()
        lane.finish(step)
        lane.cache.check()
    assert (lane.emitted == load.output).all()
    assert lane.cache.available == lane.cache.total
    if not lane.preempted:
        assert computed + lane.hits == int((load.prompt + load.output - 1).sum())


@examples(60)
@given(LENGTHS, LIMITS, st.integers(1, 9), st.lists(st.floats(0.0, 0.3), min_size=1, max_size=5) | st.none())
def test_every_request_is_served_in_order_of_its_tokens(
    lengths: list[tuple[int, int]], limits: ServeEngine, users: int, gaps: list[float] | None
) -> None:
    load = load_of(lengths, 0 if gaps is not None else users, gaps)
    found = run_lane(as_times(CountedTimes(limits)), load, 16 * 40)
    assert (found.sent >= 0.0).all()
    assert (found.first > found.sent).all()
    assert (found.last >= found.first).all()
    assert ((found.last > found.first) == (load.output > 1)).all()
    assert found.busy <= found.last.max() + 1e-9
    assert 0.0 <= found.peak <= 1.0


@examples(40)
@given(LENGTHS, LIMITS, st.integers(1, 9))
def test_runs_of_passes_are_worth_the_passes(lengths: list[tuple[int, int]], limits: ServeEngine, users: int) -> None:
    """Booked together or one by one, passes take as long where their seconds are linear in the cached tokens."""
    import windtunnel.serving.simulate as simulate

    load = load_of(lengths, users)
    together = run_lane(as_times(CountedTimes(limits)), load, 16 * 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "RUN", 0)
        alone = run_lane(as_times(CountedTimes(limits)), load, 16 * 60)
    if limits.name != "sglang":  # whose waiting requests are looked at less often
        assert together.last == pytest.approx(alone.last, rel=1e-9)
        assert together.steps == alone.steps


def server(engine: str, gpus: int = 1, **more: Any) -> Any:
    return server_of(load_model("llama3.2-1b"), "h100-ib", gpus, engine, ServePlan(), **more)


TIMES = {name: StepTimes(server(name)) for name in ENGINES}


@examples(25)
@given(st.sampled_from(list(ENGINES)), st.integers(1, 3000), st.integers(2, 300), st.integers(1, 40))
def test_a_token_never_takes_less_than_its_bytes(engine: str, isl: int, osl: int, users: int) -> None:
    times = TIMES[engine]
    answer = serve(times.server, drawn_load(isl, osl, concurrency=users, requests=2 * users), times=times)
    weights = times.weights() - times.graph.embedding(1).weights  # of which one row a token is read
    assert answer.tpot.p50 >= weights / times.gpu.memory_bandwidth
    assert answer.cache_peak <= 1.0


@examples(15)
@given(st.sampled_from(list(ENGINES)), st.integers(1, 2000), st.integers(1, 200), st.integers(1, 30), st.integers(1, 4))
def test_more_copies_never_lower_throughput(engine: str, isl: int, osl: int, users: int, copies: int) -> None:
    load = drawn_load(isl, osl, concurrency=users, requests=3 * users)
    few, many = (serve(server(engine, gpus), load, times=TIMES[engine]) for gpus in (copies, 2 * copies))
    assert many.requests == few.requests == 3 * users
    assert many.tokens_per_s >= few.tokens_per_s * (1.0 - 1e-9)


@examples(60)
@given(st.sampled_from(list(ENGINES)), st.integers(0, 8000), st.integers(0, 200), st.floats(1.0, 4000.0))
def test_a_pass_takes_no_less_for_more(engine: str, prompt: int, decodes: int, length: float) -> None:
    """More prompt tokens, or a longer cache, never make a pass shorter, but for the buckets of prompts."""
    times = TIMES[engine]
    one = Passing(prompt, min(prompt, 1), prompt * (prompt + 1) / 2, decodes, decodes * length)
    longer = one._replace(cached=2.0 * one.cached)
    assert times.seconds(longer, decodes) >= times.seconds(one, decodes)
    grown = one._replace(prompt=2 * prompt, pairs=2 * prompt * (2 * prompt + 1) / 2)
    assert times.seconds(grown, decodes) >= 0.97 * times.seconds(one, decodes)
