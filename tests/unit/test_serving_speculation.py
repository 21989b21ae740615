"""Drafted tokens as they are stated, and what they cost and save."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.cli import main
from windtunnel.serving import ServePlan, server_of
from windtunnel.serving.cache import PagedCache
from windtunnel.serving.drafting import DraftedTimes, times_of
from windtunnel.serving.engine import ServeEngine
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.lane import Lane
from windtunnel.serving.lengths import Passing, cache_bytes
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.speculation import Speculation, speculation_of
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

SMALL = {"gpus": 1, "tp": 1, "isl": 256, "osl": 64, "concurrency": 2, "requests": 6}


def stated(text: str, model: str = "deepseek-v3") -> Speculation | None:
    return speculation_of(text, load_model(model), load_model)


def answered(model: str = "llama3.2-1b", **more: Any) -> wt.Served:
    return wt.serve_predict(model, "h100-ib", **{**SMALL, **more})


@pytest.mark.parametrize(
    ("text", "accepted", "rate"),
    [
        ("mtp,drafts=3,accepted=4", 4.0, 1.0),
        ("mtp,drafts=3,accepted=1", 1.0, 0.0),
        ("eagle,drafts=2,rate=0.5", 1.75, 0.5),
        ("eagle, drafts=1, accepted=1.8", 1.8, 0.8),
    ],
)
def test_the_geometric_law_joins_rate_and_accepted_tokens(text: str, accepted: float, rate: float) -> None:
    found = stated(text)
    assert found is not None
    assert (found.accepted, found.rate) == (pytest.approx(accepted), pytest.approx(rate))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mtp,drafts=3,accepted=4.5", "accepted=4"),
        ("mtp,drafts=3,accepted=0.6", "accepted=1.6"),
        ("mtp,drafts=3,accepted=2,rate=0.5", "accepted, rate or neither"),
        ("mtp,drafts=-1,accepted=1", "0 to 32 drafts"),
        ("mtp,drafts=3,rate=1.2", "between 0 and 1"),
        ("mtp,drafts=3,rate=nan", "accepted, rate or neither"),
        ("mtp,drafts=x,rate=0.5", "drafts=3"),
        ("medusa,drafts=3,rate=0.5", "eagle"),
        ("draft,drafts=3,rate=0.5", "draft=MODEL"),
        ("mtp=1,drafts=3,rate=0.5", "mtp,drafts=3"),
        ("mtp,drafts=3,drafts=4,rate=0.5", "mtp,drafts=3"),
        ("", "mtp,drafts=3"),
    ],
)
def test_words_that_are_none_say_what_to_type(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        stated(text)
    assert words in str(caught.value)


def test_models_that_cannot_draft_are_refused() -> None:
    with pytest.raises(PlanError, match=r"llama3\.1-70b has none\. Write eagle"):
        stated("mtp,drafts=1,rate=0.8", "llama3.1-70b")
    with pytest.raises(SpecError, match="--speculate: got 'draft=nosuch.*a model that is known"):
        stated("draft=nosuch,drafts=4,rate=0.8")
    with pytest.raises(PlanError, match="tokens of llama3.1-70b"):
        stated("draft=qwen2.5-0.5b,drafts=4,rate=0.8", "llama3.1-70b")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_no_drafts_change_nothing(engine: str) -> None:
    """Zero drafts that accept one token are today's numbers to the bit."""
    plain, none = answered(engine=engine), answered(engine=engine, speculate="eagle,drafts=0,accepted=1")
    assert none.as_dict() == plain.as_dict()


def test_a_pass_of_one_user_is_shared_by_its_tokens() -> None:
    """One user: time a token is the pass over the accepted tokens; few users gain, and the draft's own price is paid."""
    plain = answered(concurrency=1, osl=513)
    full = answered(concurrency=1, osl=513, speculate="eagle,drafts=3,accepted=4")
    none = answered(concurrency=1, osl=513, speculate="eagle,drafts=3,accepted=1")
    assert full.accepted == 4.0 and none.accepted == 1.0
    assert none.tpot.mean == pytest.approx(4.0 * full.tpot.mean, rel=0.02)
    assert none.tpot.mean > plain.tpot.mean > full.tpot.mean


def test_large_batches_of_short_requests_gain_nothing() -> None:
    """Where products are bound by arithmetic, three drafts of which 40 % are right cost more than they bring."""
    load = {"isl": 64, "osl": 128, "concurrency": 768, "requests": 1536, "model": "llama3.1-8b"}
    few = {**load, "concurrency": 1, "requests": 3}
    drafts = {"speculate": "eagle,drafts=3,rate=0.4"}
    assert answered(**few, **drafts).tokens_per_s > 1.2 * answered(**few).tokens_per_s
    assert answered(**load, **drafts).tokens_per_s < answered(**load).tokens_per_s


def test_drafting_takes_memory() -> None:
    """A small model's weights and cache, and a dense layer's, leave less room."""
    plain, eagle = answered(model="llama3.1-8b"), answered(model="llama3.1-8b", speculate="eagle,drafts=3,rate=0.7")
    small = answered(model="llama3.1-8b", speculate="draft=llama3.2-1b,drafts=3,rate=0.7")
    assert plain.room.weights < eagle.room.weights < small.room.weights
    assert small.room.weights - plain.room.weights == pytest.approx(2.47e9, rel=0.05)
    assert eagle.room.token == pytest.approx(plain.room.token * 33 / 32)
    assert small.room.token > eagle.room.token


def test_decoding_copies_draft_too() -> None:
    both = [answered(prefill="gpus=1,tp=1", speculate=text) for text in (None, "eagle,drafts=3,accepted=3")]
    assert both[1].tpot.mean < both[0].tpot.mean
    assert both[1].accepted == pytest.approx(3.0, rel=0.1)


def drafted(drafts: int, method: str = "eagle", stages: int = 1) -> DraftedTimes:
    """Llama 3.1 8B with drafts of a dense layer, or of a model of 1B."""
    small = load_model("llama3.2-1b") if method == "draft" else None
    speculation = Speculation(method, drafts, 1.0 + 0.5 * drafts, small)
    server = server_of(load_model("llama3.1-8b"), "h100-ib", stages, "vllm", ServePlan(pp=stages), speculation=speculation)
    times = times_of(server)
    assert isinstance(times, DraftedTimes)
    return times


def test_drafting_is_a_pass_for_each_draft() -> None:
    """What drafts sees all tokens of the pass, four requests with 1,000 cached tokens; then the last token of each request twice
    more. A dense layer, the joining of four vectors and the drafter's own head each time."""
    times = drafted(3)
    kind, mixing = times.draft_layer
    (layer, joining) = times.price_blocks([times.graph.layer(kind, 4), times.graph.joining(4, 4)])
    decode = Passing(0, 0, 0.0, 4, 4000.0)
    once = layer + joining + float(np.interp(4, *times.draft_heads)) + times.cached_seconds(mixing, decode)
    assert times.drafting(decode, 4) == pytest.approx(3 * once, rel=1e-6)
    assert drafted(1).drafting(decode, 4) == pytest.approx(once, rel=1e-6)
    prompt = Passing(900, 3, 3 * 300 * 301 / 2, 0, 0.0)
    further = drafted(1).drafting(Passing(0, 0, 0.0, 3, 900.0), 3)
    assert times.drafting(prompt, 3) == pytest.approx(drafted(1).drafting(prompt, 3) + 2 * further, rel=1e-6)
    assert times.drafting(prompt, 0) == pytest.approx(drafted(1).drafting(prompt, 0), rel=1e-6)  # a part of a prompt drafts nothing


@pytest.mark.parametrize("method", ["eagle", "draft"])
def test_a_pass_has_the_drafting_after_it(method: str) -> None:
    """Four requests verify 12 drafts and sample 16 tokens; drafts are for four. A small model's passes are its own."""
    times = drafted(3, method)
    one = Passing(0, 0, 0.0, 4, 4000.0, 12)
    plain = StepTimes.seconds(times, one, 16)
    assert times.seconds(one, 16) == pytest.approx(plain + times.drafting(one, 4), rel=1e-9)
    assert times.pass_parts(one, 16)["drafting"] == times.drafting(one, 4)
    if method == "draft":
        assert times.server.drafter is not None
        small = StepTimes(times.server.drafter)
        alone = small.seconds(one, 4) + 2 * small.seconds(Passing(0, 0, 0.0, 4, 4000.0), 4)
        assert times.drafting(one, 4) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("stages", [1, 2])
def test_what_drafts_is_whole_on_the_last_stage(stages: int) -> None:
    """Llama's layers have 4,096 bytes a token, those of the 1B's 16 layers half of that. A dense layer of 218,112,000 weights,
    8,192 for norms among them, four vectors of 4,096 joined with their norms, and a head over 32,000 tokens with its norm."""
    eagle, small = drafted(3, "eagle", stages), drafted(3, "draft", stages)
    assert cache_bytes(eagle.server) == (32 // stages * 4096 + 4096, 0.0)
    assert cache_bytes(small.server) == (32 // stages * 4096 + 16 * 2048, 0.0)
    plain = StepTimes.weights(eagle)
    assert eagle.weights() - plain == pytest.approx(2 * (218_112_000 + 4 * 4096 * 4096 + 4 * 4096 + 32_000 * 4096 + 4096))


def test_ranks_that_meet_wait_for_the_slowest_drafting() -> None:
    """One rank decodes four requests, one 64 requests with longer caches; the others are idle."""
    plan = ServePlan(dp=8, ep=8)
    drafts = Speculation("mtp", 2, 2.0)
    server = server_of(load_model("deepseek-v3"), "h200-ib", 8, "sglang", plan, weights="fp8", speculation=drafts)
    times = times_of(server)
    assert isinstance(times, DraftedTimes)
    few, many = Passing(0, 0, 0.0, 4, 4000.0, 8), Passing(0, 0, 0.0, 64, 256_000.0, 128)
    plain = StepTimes.meeting_seconds(times, [(few, 12, 1), (many, 192, 1)], 6)
    assert times.drafting(many, 64) > 1.1 * times.drafting(few, 4)
    met = times.meeting_seconds([(few, 12, 1), (many, 192, 1)], 6)
    assert met == pytest.approx(plain + times.drafting(many, 64), rel=1e-9)


@pytest.mark.parametrize("model", ["deepseek-v3"])
def test_the_models_own_layer_caches_on_the_last_stage(model: str) -> None:
    """61 layers of 576 numbers in 16 bits: 31 on the fuller stage of two, and the further layer."""
    plan = ServePlan(tp=8, pp=2)
    server = server_of(load_model(model), "h200-ib", 16, "vllm", plan, weights="fp8", speculation=Speculation("mtp", 1, 1.8))
    assert cache_bytes(server) == (pytest.approx(32 * 576 * 2), 0.0)


def lane_of(drafts: Speculation, blocks: int, block: int, prompts: list[int], outputs: list[int]) -> Lane:
    load = ServeLoad(np.array(prompts), np.array(outputs), np.zeros(0), len(prompts))
    lane = Lane(load, PagedCache(blocks, block, len(prompts)), drafts)
    lane.waiting.extend(range(len(prompts)))
    return lane


def test_engines_reserve_and_give_back_by_their_rules() -> None:
    """Prompt 4, 3 drafts of which all are right, blocks of 1. vLLM's decode pass has 4 tokens and 3 lookahead slots: 4 + 4 + 3
    blocks, which stay. SGLang and TensorRT-LLM have 4 + 4, all of them filled by accepted tokens."""
    for name, held in (("vllm", 11), ("sglang", 8), ("trtllm", 8)):
        lane = lane_of(Speculation("eagle", 3, 4.0), 64, 1, [4], [20])
        rules = rules_of(ServeEngine(name, 64, 64, 4, 1, 0.9, 512, False, False))
        for counts in ([4], [4]):
            step = rules.next_step(lane)
            assert step is not None and step.counts.tolist() == counts
            rules.finish(lane, step)
        assert lane.emitted.tolist() == [5] and lane.computed.tolist() == [8]
        assert lane.cache.held.tolist() == [held], name


def test_rejected_drafts_give_their_blocks_back() -> None:
    """No draft is right: of 4 + 4 blocks 5 stay in SGLang and TensorRT-LLM, in vLLM 11 for the tokens to come."""
    for name, held in (("vllm", 11), ("sglang", 5), ("trtllm", 5)):
        lane = lane_of(Speculation("eagle", 3, 1.0), 64, 1, [4], [20])
        rules = rules_of(ServeEngine(name, 64, 64, 4, 1, 0.9, 512, False, False))
        for _ in range(2):
            step = rules.next_step(lane)
            assert step is not None
            rules.finish(lane, step)
        assert (lane.rejected, lane.verified) == (3, 1)
        assert lane.cache.held.tolist() == [held], name
        lane.cache.check()


def test_a_budget_cuts_drafts() -> None:
    """vLLM with 6 tokens a pass: two requests decode, the first with 4 tokens, the second with the 2 that are left."""
    lane = lane_of(Speculation("eagle", 3, 4.0), 64, 1, [2, 2], [20, 20])
    rules = rules_of(ServeEngine("vllm", 6, 0, 4, 1, 0.9, 512, False, False))
    for counts in ([2, 2], [4, 2]):
        step = rules.next_step(lane)
        assert step is not None and step.counts.tolist() == counts
        rules.finish(lane, step)
    assert lane.emitted.tolist() == [5, 3]


def test_the_seed_is_the_answer() -> None:
    text = "eagle,drafts=3,rate=0.7"
    assert answered(speculate=text).as_dict() == answered(speculate=text).as_dict()
    row = Speculation("eagle", 3, 2.5)
    assert (row.tokens != replace(row, seed=2).tokens).any()


def test_the_command_line_says_what_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--isl", "256", "--osl", "64", "--requests", "8"]
    assert main([*command, "--speculate", "draft=llama3.2-1b,drafts=4,accepted=3"]) == 0
    assert "4 a pass by llama3.2-1b" in capsys.readouterr().out
    assert main([*command, "--speculate", "mtp,drafts=1,accepted=1.8"]) != 0
    assert "Write eagle" in capsys.readouterr().err
    search = ["serve-search", "llama3.1-8b", "--on", "h100-ib", "--gpus", "1", "--users", "1,4", "--isl", "256", "--osl", "64"]
    assert main([*search, "--jobs", "1", "--speculate", "none", "--speculate", "eagle,drafts=3,rate=0.8"]) == 0
    assert "+eagle3" in capsys.readouterr().out


def test_a_drafter_in_a_checkpoint_of_its_own() -> None:
    """Gemma 4's assistants: 4 layers of 1,024, found by the model's own name; heads of the hub are eagle."""
    from windtunnel.jobs.imports import load_model_apart

    model = load_model_apart("google/gemma-4-31B-it")
    own = speculation_of("mtp,drafts=4,accepted=3", model, load_model_apart)
    named = speculation_of("draft=google/gemma-4-31B-it-assistant,drafts=4,accepted=3", model, load_model_apart)
    assert own is not None and own == named and own.model is not None
    assert (own.method, own.model.name, own.model.layers, own.model.hidden) == ("draft", "gemma4-31b-assistant", 4, 1024)
    head = speculation_of("draft=lightseekorg/kimi-k2.6-eagle3.1-mla,drafts=3,accepted=2", model, load_model_apart)
    assert head is not None and (head.method, head.model) == ("eagle", None)
    with pytest.raises(PlanError, match=r"Write eagle .* or draft=MODEL"):
        speculation_of("mtp,drafts=4,accepted=3", load_model_apart("llama3.1-8b"), load_model_apart)


def test_the_head_of_an_eagle_drafter_knows_the_commonest_tokens() -> None:
    """A quarter of Llama's 128,256 tokens: its product reads a quarter of the weights. Models of few tokens and further layers use
    the model's own head."""
    times = drafted(1)
    (whole,), (own,) = (np.interp(1.0, *curve)[None] for curve in (times.heads, times.draft_heads))
    assert 0.2 < own / whole < 0.6
    small = server_of(load_model("llama2-7b"), "h100-ib", 1, "vllm", ServePlan(), speculation=Speculation("eagle", 1, 1.5))
    further = server_of(load_model("deepseek-v3"), "h200-ib", 8, "sglang", ServePlan(tp=8), weights="fp8",
                        speculation=Speculation("mtp", 1, 1.8))  # fmt: skip
    for server in (small, further):
        other = times_of(server)
        assert isinstance(other, DraftedTimes) and other.small_head is None and other.draft_heads is other.heads


def test_drafts_from_the_text_cost_no_pass() -> None:
    """No weights, no cache, no drafting: with every draft right, a pass of four tokens yields four; with none, it is a loss."""
    plain = answered(model="llama3.1-8b", concurrency=1, osl=513)
    full, none = (answered(model="llama3.1-8b", concurrency=1, osl=513, speculate=f"ngram,drafts=3,accepted={n}") for n in (4, 1))
    assert full.room.weights == plain.room.weights and full.room.token == plain.room.token
    assert 3.5 < plain.tpot.mean / full.tpot.mean < 4.0 < 4.01 * none.tpot.mean / plain.tpot.mean
    eagle = answered(model="llama3.1-8b", concurrency=1, osl=513, speculate="eagle,drafts=3,accepted=4")
    assert full.tpot.mean < eagle.tpot.mean
