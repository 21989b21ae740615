"""Which tokens engines put into each forward pass: cases worked out by hand from the rules that each scheduler's file names."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.cache import PagedCache
from windtunnel.serving.engine import ServeEngine, captured_sizes, engine_of
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.engines.sglang import AHEAD, FALL, FLOOR, Sglang
from windtunnel.serving.lane import Lane
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import ServeLoad, drawn_load
from windtunnel.serving.simulate import Booked, LaneClock, ServedRank, _most_repeats
from windtunnel.spec import load_gpu, load_model

Passes = list[dict[int, int]]


def engine(name: str, step_tokens: int, running: int, block: int, chunk: int = 0) -> ServeEngine:
    return ServeEngine(name, step_tokens, chunk, running, block, 0.9, 512, False, False)


def lane_of(prompts: list[int], outputs: list[int], blocks: int, block: int, names: tuple[tuple[int, ...], ...] = ()) -> Lane:
    load = ServeLoad(np.array(prompts), np.array(outputs), np.zeros(0), len(prompts), names, block)
    lane = Lane(load, PagedCache(blocks, block, len(prompts)))
    lane.waiting.extend(range(len(prompts)))
    return lane


def run(name: str, lane: Lane, limits: ServeEngine, most: int = 200) -> Passes:
    """The passes until every request is done: request -> tokens."""
    rules, passes = rules_of(limits), []
    for _ in range(most):
        step = rules.next_step(lane)
        if step is None:
            break
        passes.append(dict(zip(step.ids.tolist(), step.counts.tolist(), strict=True)))
        lane.finish(step)
        lane.cache.check()
    assert not lane.running
    assert not lane.waiting
    return passes


def test_vllm_mixes_a_chunk_of_a_prompt_with_decodes() -> None:
    """Budget 8: request 0 takes 5, request 1 the other 3; then request 0 decodes beside 1's next 7 tokens, of which 6 are left."""
    passes = run("vllm", lane_of([5, 9], [3, 2], 64, 4), engine("vllm", 8, 4, 4))
    assert passes == [{0: 5, 1: 3}, {0: 1, 1: 6}, {0: 1, 1: 1}]


def test_vllm_preempts_the_last_running_and_puts_it_at_the_head() -> None:
    """Five blocks of 4: prompts of 8 take two each. The first decode of request 0 takes the fifth block; request 1 lacks one and is
    itself the last that runs, so it loses all and waits; a pass with a preemption admits nobody. It starts again when 0 is done,
    and computes its prompt and the token that it has emitted: 9."""
    lane = lane_of([8, 8], [3, 2], 5, 4)
    passes = run("vllm", lane, engine("vllm", 64, 4, 4))
    assert passes == [{0: 8, 1: 8}, {0: 1}, {0: 1}, {1: 9}]
    assert (lane.preempted, lane.recomputed) == (1, 8)


def test_vllm_never_takes_the_last_token_of_a_prompt_from_the_cache() -> None:
    """Both prompts are the same two blocks of 4. The second comes when the first has computed them: one block of two is taken,
    because the last token must be computed."""
    lane = lane_of([8, 8], [1, 1], 16, 4, ((1, 2), (1, 2)))
    passes = run("vllm", lane, engine("vllm", 64, 1, 4))
    assert passes == [{0: 8}, {1: 4}]
    assert lane.hits == 4


def test_vllm_stops_at_the_head_that_does_not_fit() -> None:
    """Request 1 needs 5 blocks of the 4 that are left; request 2 would fit, and waits behind it."""
    passes = run("vllm", lane_of([8, 20, 4], [1, 1, 1], 6, 4), engine("vllm", 64, 4, 4))
    assert passes == [{0: 8}, {1: 20, 2: 4}]


def test_sglang_prefills_alone_and_before_decodes() -> None:
    """Chunks of 8: request 0 whole and 3 of request 1; the cut prompt goes on before any decode; then both decode together."""
    passes = run("sglang", lane_of([5, 9], [3, 3], 64, 1), engine("sglang", 64, 4, 1, 8))
    assert passes == [{0: 5, 1: 3}, {1: 6}, {0: 1, 1: 1}, {0: 1, 1: 1}]


def test_sglang_admits_by_an_estimate_of_outputs() -> None:
    """27 pages: request 0 takes 8 and may emit 10; the 9 that this leaves are less than request 1's 8 + 10. When request 0 has
    emitted one, 27 - 8 are free and 9 x 0.7 expected: 12.7 are left; the room grows by 1 - 0.7 a pass less, so request 1 waits
    until request 0 is done."""
    passes = run("sglang", lane_of([8, 8], [10, 10], 27, 1), engine("sglang", 64, 4, 1, 64))
    assert passes == [{0: 8}, *[{0: 1}] * 9, {1: 8}, *[{1: 1}] * 9]


def test_sglang_admits_where_the_estimate_has_room() -> None:
    """40 pages: 40 - 8 - 10 leave 22 for the 8 + 10 of request 1, which joins the same pass."""
    passes = run("sglang", lane_of([8, 8], [10, 10], 40, 1), engine("sglang", 64, 4, 1, 64))
    assert passes == [{0: 8, 1: 8}, *[{0: 1, 1: 1}] * 9]


def test_sglang_retracts_the_fewest_outputs_and_the_longest_prompt() -> None:
    """Requests 0 and 1 run in 20 pages with prompts of 6 and 9 and one token out each. After two passes they hold 19; for a third
    both need one. Both have emitted three, so the longer prompt, 1, is retracted. The ratio is then 1, and 12 + 4 pages are free
    only when request 0 is done; request 1 computes 12 tokens again."""
    lane = lane_of([6, 9], [7, 7], 20, 1)
    rules = rules_of(engine("sglang", 64, 4, 1, 64))
    lane.waiting.clear()
    lane.running.extend([0, 1])
    assert all(lane.cache.grow(request, int(lane.load.prompt[request])) for request in (0, 1))
    lane.computed[:] = lane.load.prompt
    lane.emitted[:] = 1
    passes = []
    while lane.running or lane.waiting:
        step = rules.next_step(lane)
        assert step is not None
        passes.append(dict(zip(step.ids.tolist(), step.counts.tolist(), strict=True)))
        lane.finish(step)
    assert passes == [*[{0: 1, 1: 1}] * 2, *[{0: 1}] * 4, {1: 12}, *[{1: 1}] * 3]
    assert (lane.preempted, lane.recomputed) == (1, 11)


@pytest.mark.parametrize(("output", "ratio"), [(100, (3 + AHEAD) / 101), (7, 1.0)])
def test_sglang_expects_by_what_is_left_after_a_retraction(output: int, ratio: float) -> None:
    """As above, request 0 has emitted three; it is expected to emit 20 more of its outputs, all of them at most.
    Each pass without a retraction lets the share fall by a part of what lies between its start and its floor."""
    lane = lane_of([6, 9], [output, output], 20, 1)
    rules = Sglang(engine("sglang", 64, 4, 1, 64))
    lane.waiting.clear()
    lane.running.extend([0, 1])
    assert all(lane.cache.grow(request, int(lane.load.prompt[request])) for request in (0, 1))
    lane.computed[:] = lane.load.prompt
    lane.emitted[:] = 1
    for passes in range(3):
        begun = rules.start - passes * (rules.start - rules.start * FLOOR) / FALL
        assert rules.ratio == pytest.approx(begun)
        step = rules.next_step(lane)
        assert step is not None
        lane.finish(step)
    assert lane.preempted == 1 and rules.ratio == pytest.approx(ratio)
    rules.fall(10**6)
    assert rules.ratio == pytest.approx(rules.start * FLOOR)


@pytest.mark.parametrize(
    ("name", "gpu", "tp", "limits"),
    [
        # tokens of a pass, of a chunk, requests, tokens of a block, share of memory, tokens of the largest graph
        ("vllm", "h100-sxm-80gb", 1, (8192, 0, 1024, 16, 0.9, 512)),
        ("vllm", "a100-sxm-80gb", 1, (2048, 0, 256, 16, 0.9, 512)),
        ("sglang", "h100-sxm-80gb", 1, (16384, 8192, 2048, 1, 0.88, 256)),
        ("sglang", "a100-sxm-40gb", 4, (16384, 4096, 2048, 1, 0.88, 512)),
        ("sglang", "b200-sxm-180gb", 8, (16384, 16384, 2048, 1, 0.88, 512)),
        ("trtllm", "h100-sxm-80gb", 1, (8192, 0, 2048, 32, 0.9, 2048)),
    ],
)
def test_defaults_of_engines(name: str, gpu: str, tp: int, limits: tuple[float, ...]) -> None:
    made = engine_of(name, load_gpu(gpu), tp)
    found = (made.step_tokens, made.prefill_chunk, made.running, made.block, made.memory, made.graph_tokens)
    assert found == limits


def test_captured_batches_are_those_of_vllm() -> None:
    assert captured_sizes(2) == (1, 2) and captured_sizes(16) == (1, 2, 4, 8, 16)
    assert captured_sizes(300)[-4:] == (248, 256, 272, 288)


def test_trtllm_starts_only_what_never_needs_eviction() -> None:
    """Blocks of 4, 6 of them: request 0 may come to need 4 (8 + 8 tokens), request 1 as many: it starts when 0 has ended."""
    passes = run("trtllm", lane_of([8, 8], [8, 8], 6, 4), engine("trtllm", 64, 4, 4))
    assert passes == [{0: 8}, *[{0: 1}] * 7, {1: 8}, *[{1: 1}] * 7]


def test_trtllm_cuts_a_prompt_at_a_block_behind_decodes() -> None:
    """Ten tokens: request 0 takes 4, 6 are left for request 1, rounded down to a block of 4; then 1 + 8 whole blocks of 9."""
    passes = run("trtllm", lane_of([4, 12], [2, 1], 64, 4), engine("trtllm", 10, 4, 4))
    assert passes == [{0: 4, 1: 4}, {0: 1, 1: 8}]


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm"])
def test_requests_end_with_all_their_tokens(name: str) -> None:
    lane = lane_of([3, 17, 40, 8], [5, 1, 9, 30], 40, 4)
    run(name, lane, engine(name, 16, 3, 4, 16))
    assert lane.emitted.tolist() == [5, 1, 9, 30]
    assert lane.cache.available == 40


def test_a_scheduler_that_looks_seldom_lets_new_requests_wait() -> None:
    """Eight users on SGLang: with a look after every 30 passes the mean first token is later, and every token is still served."""
    model = load_model("llama3.1-8b")
    found = []
    for polls in (1, 30):
        server = server_of(model, "h100-ib", 1, "sglang", ServePlan(), polls=polls)
        found.append(serve(server, drawn_load("64-512", "32-256", concurrency=8, requests=64)))
    often, seldom = found
    assert seldom.ttft.mean > 1.5 * often.ttft.mean
    assert seldom.seconds > 0.9 * often.seconds and seldom.batch < often.batch


@pytest.mark.parametrize(
    ("blocks", "output", "passes"),
    [
        (20, 1000, 64),  # 9 + 128 tokens are 35 blocks, 32 more than it has and 15 more than there are; 9 + 64 are 19
        (40, 1000, 128),  # at most so many
        (200, 60, 58),  # one token is out, the last pass ends the request
        (3, 1000, 2),  # 12 tokens fit: halves of 128 come to two
    ],
)
def test_passes_in_one_piece_end_where_blocks_do(blocks: int, output: int, passes: int) -> None:
    """A request with 8 tokens in the cache decodes, in three blocks of 4."""
    lane = lane_of([8], [output], blocks, 4)
    rules = rules_of(engine("vllm", 64, 4, 4))
    prompt = rules.next_step(lane)
    assert prompt is not None
    lane.finish(prompt)
    decode = rules.next_step(lane)
    assert decode is not None
    booked = Booked(ServedRank(lane, rules, LaneClock(lane.load)), decode, Passing(0, 0, 0.0, 1, 9.0), 1)
    assert _most_repeats(booked) == passes


def test_an_open_loop_begins_with_a_request_and_has_its_rate() -> None:
    load = drawn_load(10, 10, requests=4000, rate=5.0, seed=3)
    assert load.arrival[0] == 0.0 and np.all(np.diff(load.arrival) >= 0.0)
    assert load.arrival[-1] == pytest.approx(4000 / 5.0, rel=0.05)
    bursty = np.diff(drawn_load(10, 10, requests=4000, rate=5.0, burstiness=0.25, seed=3).arrival)
    assert np.std(bursty) / np.mean(bursty) == pytest.approx(2.0, rel=0.1)  # 1 / sqrt(0.25)
