"""What holds for drafted tokens with any engine, load and cache."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel.serving.simulate as simulate
from tests.laws.test_serving_laws import LENGTHS, LIMITS, CountedTimes, as_times, load_of
from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.cache import PagedCache
from windtunnel.serving.drafting import times_of
from windtunnel.serving.engine import ENGINES, ServeEngine
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.lane import Lane
from windtunnel.serving.load import drawn_load
from windtunnel.serving.simulate import run_lane
from windtunnel.serving.speculation import ROW, Speculation, mean_tokens
from windtunnel.spec import load_model

DRAFTS = st.integers(1, 5).flatmap(
    lambda drafts: st.builds(Speculation, st.just("eagle"), st.just(drafts), st.floats(1.0, 1.0 + drafts), seed=st.integers(0, 9))
)


@examples(150)
@given(LENGTHS, LIMITS, st.integers(16, 40), DRAFTS, st.booleans())
def test_tokens_and_blocks_are_conserved_with_drafts(
    lengths: list[tuple[int, int]], limits: ServeEngine, blocks: int, drafts: Speculation, shared: bool
) -> None:
    """Each pass has blocks for all of its tokens; in the end every output is there to the token, each token was computed once but
    for rejected drafts and those that were computed again, and the cache is empty."""
    load = load_of(lengths, 1)
    lane = Lane(load, PagedCache(blocks * 16 // limits.block, limits.block, len(load)), drafts)
    lane.waiting.extend(range(len(load)))
    rules, computed = rules_of(limits), 0
    for _ in range(20_000):
        step = rules.next_step(lane)
        if step is None:
            break
        assert (step.counts > 0).all()
        assert step.counts.sum() <= limits.step_tokens or limits.name == "sglang"
        lane.cache.check()
        assert (lane.cache.held[step.ids] * limits.block >= lane.computed[step.ids] + step.counts).all()
        computed += int(step.counts.sum())
        rules.finish(lane, step)
        lane.cache.check()
        if limits.name != "vllm":  # rejected drafts have no block
            going = np.array(lane.running, np.int64)
            assert (lane.cache.held[going] <= -(-lane.computed[going] // limits.block)).all()
    assert not lane.running and not lane.waiting
    assert (lane.emitted == load.output).all()
    assert lane.cache.available == lane.cache.total
    assert computed == int((load.prompt + load.output - 1).sum()) + lane.recomputed + lane.rejected


@examples(60)
@given(st.integers(1, 8), st.floats(0.0, 1.0), st.integers(0, 99))
def test_the_row_yields_what_is_stated(drafts: int, share: float, seed: int) -> None:
    """The mean pass of the row has the accepted tokens, no pass fewer than one or more than drafts and one; longer outputs from any
    place have it too, as far as a row of random numbers can."""
    accepted = 1.0 + share * drafts
    row = Speculation("eagle", drafts, accepted, seed=seed)
    passes = row.tokens[:ROW]
    assert passes.mean() == pytest.approx(accepted, abs=drafts / ROW + 1e-6)
    assert passes.min() >= 1 and passes.max() <= drafts + 1
    assert mean_tokens(row.rate, drafts) == pytest.approx(accepted, abs=1e-9)
    places = row.begin(500)
    spread = float(passes.std()) / np.sqrt(500 * 128)
    assert row.grown(places, 128).sum() / (500 * 128) == pytest.approx(accepted, abs=8.0 * spread + 0.02)


@examples(60)
@given(LENGTHS, LIMITS, st.integers(1, 9), DRAFTS)
def test_runs_of_passes_with_drafts_are_worth_the_passes(
    lengths: list[tuple[int, int]], limits: ServeEngine, users: int, drafts: Speculation
) -> None:
    load = load_of(lengths, users)
    together = run_lane(as_times(CountedTimes(limits, drafts)), load, 16 * 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "RUN", 0)
        alone = run_lane(as_times(CountedTimes(limits, drafts)), load, 16 * 60)
    if limits.name != "sglang":  # whose waiting requests are looked at less often
        assert together.last == pytest.approx(alone.last, rel=1e-9)
        assert (together.steps, together.verified, together.rejected) == (alone.steps, alone.verified, alone.rejected)


@examples(40)
@given(LENGTHS, LIMITS, st.integers(1, 5), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_accepted_tokens_are_never_slower(
    lengths: list[tuple[int, int]], limits: ServeEngine, drafts: int, one: float, other: float
) -> None:
    """One user: each pass costs the same but for its cache, and a higher rate keeps at least as many drafts of each."""
    load = load_of(lengths, 1)
    few, many = (
        run_lane(as_times(CountedTimes(limits, Speculation("mtp", drafts, 1.0 + share * drafts))), load, 16 * 60)
        for share in sorted((one, other))
    )
    assert many.steps <= few.steps
    assert many.last.max() <= few.last.max() * (1.0 + 1e-4)  # as many passes may read a longer cache
    assert many.steps <= few.steps


SERVERS = {
    (name, method): server_of(
        load_model("llama3.2-1b"), "h100-ib", 1, name, ServePlan(),
        speculation=Speculation(method, 3, 2.5, load_model("llama3.2-1b") if method == "draft" else None),
    )
    for name in ENGINES for method in ("eagle", "draft")
}  # fmt: skip
TIMES = {key: times_of(server) for key, server in SERVERS.items()}
PLAIN = {name: times_of(server_of(load_model("llama3.2-1b"), "h100-ib", 1, name, ServePlan())) for name in ENGINES}


@examples(25)
@given(
    st.sampled_from(list(ENGINES)),
    st.sampled_from(["eagle", "draft"]),
    st.integers(1, 2000),
    st.integers(2, 200),
    st.integers(1, 30),
)
def test_a_token_is_a_pass_over_what_it_yields(engine: str, method: str, isl: int, osl: int, users: int) -> None:
    """Never less than the bytes of a pass over the tokens that it may yield; the yield is as stated, less the ends."""
    times = TIMES[engine, method]
    answer = serve(times.server, drawn_load(isl, osl, concurrency=users, requests=2 * users), times=times)
    assert answer.tpot.p50 >= (times.weights() - times.graph.embedding(1).weights) / times.gpu.memory_bandwidth / 8.0
    assert answer.accepted is not None and 1.0 <= answer.accepted <= 4.0


@examples(30)
@given(st.sampled_from(list(ENGINES)), st.sampled_from(["eagle", "draft"]), st.integers(1, 200), st.floats(1.0, 4000.0))
def test_a_pass_with_drafts_takes_longer_than_one_without(engine: str, method: str, decodes: int, length: float) -> None:
    """Verifying three drafts and computing the next three is never free."""
    plain = simulate.Passing(0, 0, 0.0, decodes, decodes * length)
    verifying = plain._replace(verified=3 * decodes)
    assert TIMES[engine, method].seconds(verifying, 4 * decodes) > PLAIN[engine].seconds(plain, decodes)
