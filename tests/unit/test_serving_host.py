"""What the host adds to a server's passes: passes chosen ahead, kernels that no captured graph covers, all-reduces over PCIe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.compute.engines.curves import ReduceCurve
from windtunnel.predict.price.calls import CallKey
from windtunnel.serving import ServePlan, Server, serve, server_of
from windtunnel.serving.engine import CALL, ENGINES, HOST_TASK, REQUEST, UNHIDDEN, ServeEngine
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import ServeLoad, drawn_load
from windtunnel.serving.room import GRAPHS, room_of
from windtunnel.serving.simulate import FRONT, HANDLE, TOKENISE, LaneClock, most_tokens, run_lane
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.step_times import REREAD, StepTimes
from windtunnel.spec import load_model
from windtunnel.workload.ops import Axis, Comm


def with_engine(server: Server, **fields: object) -> Server:
    return replace(server, engine=replace(server.engine, **fields))  # type: ignore[arg-type]


def small(engine: str = "vllm") -> Server:
    return server_of(load_model("llama3.1-8b"), "h100-ib", 1, engine, ServePlan())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_a_request_that_comes_during_a_pass_waits_for_the_one_chosen_ahead(engine: str, share: float) -> None:
    """One request decodes; another is seen within its twentieth pass. It joins the next pass, or the one after that."""
    server = with_engine(small(engine), polls=1)
    times = StepTimes(server)
    alone = run_lane(times, ServeLoad(np.array([100]), np.array([60]), np.zeros(1)), 10**5)
    token = (alone.last[0] - alone.first[0]) / 59
    seen = alone.first[0] + (19 + share) * token
    load = ServeLoad(np.array([100, 100]), np.array([60, 1]), np.array([0.0, seen - FRONT - 100 * TOKENISE]))
    first = {}
    for ahead in (False, True):
        changed = StepTimes(with_engine(server, ahead=ahead))
        first[ahead] = float(run_lane(changed, load, 10**5).first[1])
    assert first[True] - first[False] == pytest.approx(token, rel=0.02)
    joined = times.seconds(Passing(100, 1, 5050.0, 1, 120.0), 2)
    assert first[False] - seen == pytest.approx((1 - share) * token + joined, rel=0.05)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_server_that_waits_takes_a_request_at_once(engine: str) -> None:
    """No pass runs, so none was chosen ahead: the same seconds with and without."""
    server = small(engine)
    load = drawn_load(300, 20, concurrency=1, requests=4)
    waits = [serve(with_engine(server, ahead=ahead), load).ttft.mean for ahead in (False, True)]
    assert waits[0] == pytest.approx(waits[1], rel=1e-9)


@pytest.mark.parametrize(
    "engine, prompt, captured", [("vllm", 512, True), ("vllm", 513, False), ("sglang", 16, False), ("trtllm", 16, False)]
)
def test_passes_without_a_graph_last_as_long_as_their_calls(engine: str, prompt: int, captured: bool) -> None:
    """A short prompt of a mixture: kernels are done before the host has called the next one."""
    server = server_of(load_model("qwen3-30b-a3b"), "b200-ib", 1, engine, ServePlan(), weights="fp8")
    times = StepTimes(with_engine(server, call_host=1e-3))  # slow enough to be the longer
    one = Passing(prompt, 1, prompt * (prompt + 1) / 2, 0, 0.0)
    kernels = StepTimes(with_engine(server, call_host=0.0)).seconds(one, 1)
    assert times.is_captured(one) is captured
    assert times.seconds(one, 1) == pytest.approx(kernels if captured else 1e-3 * times.calls + server.engine.gap)


def test_calls_are_those_of_the_published_passes() -> None:
    """Qwen3-4B in 16.6 ms and DeepSeek-V3 with tp 8 in 82.6 ms without graphs: half of the constant to twice it."""
    for model, machine, tp, seconds in (("qwen3-4b", "h100-ib", 1, 16.6e-3), ("deepseek-v3", "h200-ib", 8, 82.6e-3)):
        weights = "fp8_block" if tp == 8 else "bf16"
        times = StepTimes(server_of(load_model(model), machine, tp, "sglang", ServePlan(tp=tp), weights=weights))
        assert 0.5 * CALL < seconds / times.calls < 2.0 * CALL


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_have_no_kernel_of_their_own_over_pcie_beyond_two_gpus(engine: str) -> None:
    """Large messages: the engine's share of the link is above NCCL's for two GPUs, and NCCL's it is for four."""
    for gpus in (2, 4):
        times = StepTimes(server_of(load_model("qwen3-32b"), "rtx-pro-6000", gpus, engine, ServePlan(tp=gpus)))
        key = CallKey(Comm.ALL_REDUCE, Axis.TP, 1e6)
        nccl = times._book.price_of(key).seconds
        assert (times.call_seconds(key) == nccl) == (gpus == 4)


@pytest.mark.parametrize("comm", [Comm.REDUCE_SCATTER, Comm.ALL_GATHER, Comm.ALL_REDUCE])
@pytest.mark.parametrize(("share", "engines"), [(0.5, True), (0.05, False)])
def test_calls_of_ranks_with_experts_by_hand(comm: Comm, share: float, engines: bool) -> None:
    """8 ranks, 1 MB: a start of 4 us, 0.1 us a rank, and seven eighths of the bytes at a share of 450 GB/s; an all-reduce is two
    of these with one and a half starts, or all bytes of seven ranks in one. NCCL's time where it is shorter, as beside a slow
    kernel."""
    plan = ServePlan(dp=8, ep=8)
    times = StepTimes(server_of(load_model("deepseek-v3"), "h100-ib", 8, "sglang", plan, weights="fp8_block"))
    times.__dict__["curves"] = replace(times.curves, reduce=ReduceCurve(4e-6, 1e-7, share, 1.5, share))
    moved = 7 / 8 * 1e6 / (share * 450e9)
    own = 4e-6 + 0.8e-6 + moved
    if comm is Comm.ALL_REDUCE:
        own = min(6e-6 + 0.8e-6 + 2 * moved, 4e-6 + 0.8e-6 + 8 * moved)
    nccl = times._wide_book.price_of(CallKey(comm, Axis.TP, 1e6)).seconds
    assert (own < nccl) == engines
    assert times.call_seconds(CallKey(comm, Axis.EP, 1e6)) == pytest.approx(min(own, nccl), rel=1e-9)


def test_calls_of_tensor_parallel_ranks_that_are_no_all_reduce_are_of_nccl() -> None:
    times = StepTimes(server_of(load_model("llama3.1-8b"), "h100-ib", 2, "vllm", ServePlan(tp=2)))
    key = CallKey(Comm.ALL_GATHER, Axis.TP, 1e4)
    assert times.call_seconds(key) == times._book.price_of(key).seconds


def test_ranks_on_several_nodes_have_nccl() -> None:
    times = StepTimes(server_of(load_model("llama3.1-70b"), "h100-ib", 16, "vllm", ServePlan(tp=16)))
    key = CallKey(Comm.ALL_REDUCE, Axis.TP, 1e4)
    assert times.call_seconds(key) == times._book.price_of(key).seconds


def test_ranks_that_meet_by_hand() -> None:
    """Eight DP-attention ranks of SGLang: one computes a prompt of 512, two decode 4 requests each, the others have an empty pass.
    Own rows and attention of the slowest, experts for the mean of all (512 + 2 x 4 + 5 x 1) / 8, the head of most samples."""
    plan = ServePlan(dp=8, ep=8)
    times = StepTimes(server_of(load_model("deepseek-v3"), "h200-ib", 8, "sglang", plan, weights="fp8"))
    prompt, decode = Passing(512, 1, 512 * 513 / 2, 0, 0.0), Passing(0, 0, 0.0, 4, 40_000.0)
    own, shared = times.parts
    attention = 0.0
    for kind, count, mixing in times.kinds:
        attention += count * max(times.prompt_seconds(kind, mixing, prompt), times.cached_seconds(mixing, decode))
    kernels = float(np.interp(512, times.sizes, own)) + float(np.interp((512 + 8 + 5) / 8, times.sizes, shared)) + attention
    kernels += float(np.interp(4, *times.heads))
    engine = times.server.engine
    called = max(engine.layer_host * 61, engine.call_host * times.calls)  # a prompt has no graph in SGLang
    expected = max(1.25 * kernels, called) + engine.gap + 4 * engine.request_gap  # a pass that holds prompts
    assert times.meeting_seconds([(prompt, 1, 1), (decode, 4, 2)], 5) == pytest.approx(expected, rel=1e-9)
    unsampled = times.meeting_seconds([(prompt, 0, 8)], 0)
    kernels = float(np.interp(512, times.sizes, own)) + float(np.interp(512, times.sizes, shared))
    kernels += sum(count * times.prompt_seconds(kind, mixing, prompt) for kind, count, mixing in times.kinds)
    assert unsampled == pytest.approx(max(1.25 * kernels, called) + engine.gap, rel=1e-9)


def test_experts_on_several_nodes_get_copies_and_not_all_tokens() -> None:
    """DeepSeek-V3 on DP-attention ranks: in a node they gather all tokens; on two nodes each rank has the copies that arrive, so
    twice the ranks with as many tokens each do not double a rank's work."""
    seconds, held = {}, {}
    for ranks in (8, 16):
        plan = ServePlan(dp=ranks, ep=ranks)
        times = StepTimes(server_of(load_model("deepseek-v3"), "h100-ib", ranks, "sglang", plan, weights="fp8_block"))
        block = times.graph.layer(times.kinds[-1][0], 4096)
        held[ranks] = (block.experts[0].tokens * block.experts[0].top_k, block.experts[0].copies)
        calls = {row.name: Comm(int(row.comm)) for row in block.rows if row.name in ("dispatch", "combine")}
        assert set(calls.values()) == ({Comm.ALL_TO_ALL} if ranks > 8 else {Comm.ALL_GATHER, Comm.REDUCE_SCATTER})
        one = Passing(4096, 4, 4 * 1024 * 1025 / 2, 0, 0.0)
        seconds[ranks] = times.pass_parts(one, 4)["experts"]
    assert held[8][0] == 8 * 4096 * 8 and held[16][0] == pytest.approx(held[16][1], abs=1)
    assert seconds[16] < 1.1 * seconds[8]


@pytest.mark.parametrize(
    "engine, release, hidden",
    [("vllm", "0.13.0", False), ("vllm", "v0.14.0", True), ("vllm", "0.14.0rc1", True), ("sglang", "0.3.6.post2", False)]
    + [("sglang", "0.4", True), ("trtllm", "1.0.0rc3", True)],
)  # fmt: skip
def test_older_releases_hide_no_host_work(engine: str, release: str, hidden: bool) -> None:
    """A pass that decodes 10 requests is longer by the work between passes and for each request."""
    model, plan = load_model("llama3.1-8b"), ServePlan()
    recent, dated = (server_of(model, "h100-ib", 1, engine, plan, release=name) for name in (None, release))
    one = Passing(0, 0, 0.0, 10, 4000.0)
    more = StepTimes(dated).seconds(one, 10) - StepTimes(recent).seconds(one, 10)
    assert more == pytest.approx(0.0 if hidden else UNHIDDEN - recent.engine.gap + 10 * REQUEST)
    assert dated.engine.ahead is hidden


def test_an_older_release_hides_host_work_where_it_is_told_to() -> None:
    """vLLM 0.11 with --async-scheduling; SGLang 0.5.9 with SGLANG_ENABLE_SPEC_V2, whose drafts nothing hides else."""
    drafts, plan = Speculation("mtp", 2, 2.2), ServePlan(tp=8)

    def limits(engine: str, release: str, **more: Any) -> ServeEngine:
        return server_of(load_model("deepseek-v3"), "b200-ib", 8, engine, plan, release=release, **more).engine

    for engine, release in (("vllm", "0.11.0"), ("sglang", "0.5.9")):
        assert not limits(engine, release, speculation=drafts).ahead
        told, plain = limits(engine, release, speculation=drafts, ahead=True), limits(engine, "1.0")
        assert (told.ahead, told.gap, told.request_gap) == (True, plain.gap, plain.request_gap)
    with pytest.raises(SpecError, match="either ahead or sync"):
        limits("vllm", "0.11.0", ahead=True, sync=True)


def test_older_releases_of_vllm_leave_captured_graphs_out_of_the_cache_s_share() -> None:
    """Llama 3.1 8B on an RTX 3090 with passes of 20,000 and 29,000 tokens: 31,232 and 23,648 tokens of cache at start-up in the
    release of 2024-11 (vllm-project/vllm issue 10517). None of it is fitted."""
    for tokens, printed in ((20000, 31232), (29000, 23648)):
        old, new = (
            server_of(load_model("llama3.1-8b"), "rtx-3090", 1, "vllm", ServePlan(), step_tokens=tokens, release=name)
            for name in ("0.6.3", "0.21.0")
        )
        found = room_of(old, StepTimes(old))
        assert found.lane_tokens == pytest.approx(printed, rel=0.03)
        assert found.context == pytest.approx(room_of(new, StepTimes(new)).context - GRAPHS)


def test_a_release_is_a_number() -> None:
    with pytest.raises(SpecError, match="release: got 'newest'"):
        server_of(load_model("llama3.1-8b"), "h100-ib", 1, "vllm", ServePlan(), release="newest")


def test_a_pass_lasts_as_long_as_its_tokens_take_the_api_server() -> None:
    """100 requests at 1 ms each; 10 take less than their kernels."""
    times = StepTimes(with_engine(small(), sent=1e-3))
    assert times.seconds(Passing(0, 0, 0.0, 100, 1e4), 100) == pytest.approx(0.1)
    few = Passing(0, 0, 0.0, 2, 200.0)
    assert times.seconds(few, 2) == StepTimes(with_engine(small(), sent=0.0)).seconds(few, 2)


def test_the_front_end_takes_one_request_at_a_time() -> None:
    """Three at once and one later: the scheduler sees the third when two others are through."""
    each = HANDLE + 500 * TOKENISE
    load = ServeLoad(np.full(4, 500), np.full(4, 2), np.array([0.0, 0.0, 0.0, 1.0]))
    seen = [moment for moment, _ in sorted(LaneClock(load).coming)]
    assert seen == pytest.approx([FRONT + 500 * TOKENISE + wait for wait in (0.0, each, 2 * each, 1.0)])


def test_captured_calls_over_nics_wait_for_the_host() -> None:
    """Tensor parallelism over two nodes: two all-reduces of each layer, that of the embedding and the gathered logits; none without
    graphs, in a larger pass, or inside a node."""
    model = load_model("llama3.1-70b")
    assert server_of(model, "h100-ib", 16, "trtllm", ServePlan(tp=16)).engine.host_task == 0.0
    wide = server_of(model, "h100-ib", 16, "vllm", ServePlan(tp=16))
    times, eager = StepTimes(wide), StepTimes(with_engine(wide, graph_tokens=0))
    calls = 2 * model.layers + 2
    for tokens, waits in ((1, calls), (512, calls), (4096, 0)):
        place = int(np.searchsorted(times.sizes, tokens))
        there = int(np.searchsorted(eager.sizes, tokens))
        assert times.table[place] - eager.table[there] == pytest.approx(HOST_TASK * waits, abs=1e-9)
    inside = server_of(model, "h100-ib", 8, "vllm", ServePlan(tp=8))
    assert StepTimes(inside).table[0] == pytest.approx(StepTimes(with_engine(inside, graph_tokens=0)).table[0])


@pytest.mark.parametrize("decodes, captured", [(1, True), (3, False), (4, True), (5, False)])
def test_a_batch_between_captured_ones_has_no_graph_unless_it_is_padded(decodes: int, captured: bool) -> None:
    model = load_model("qwen3-30b-a3b")
    alone, padded = (StepTimes(server_of(model, "b200-ib", 1, "trtllm", ServePlan(), graphs=stated)) for stated in ("1,2,4", "4+"))
    one = Passing(0, 0, 0.0, decodes, 100.0 * decodes)
    assert alone.is_captured(one) is captured and padded.is_captured(one) is (decodes <= 4)
    assert alone.pad_tokens(3) == 3.0 and padded.pad_tokens(3) == 4.0
    if not captured:
        assert alone.seconds(one, decodes) >= CALL * alone.calls
    assert not alone.is_captured(Passing(1, 1, 1.0, 0, 0.0))


def test_a_prompt_of_an_engine_that_captures_decodes_alone_waits_for_the_host() -> None:
    """A pass of 100 prompt tokens has a graph in vLLM unless FULL_DECODE_ONLY; one that decodes has it either way."""
    model = load_model("qwen3-4b")
    usual, alone = (StepTimes(server_of(model, "b200-ib", 1, "vllm", ServePlan(), graphs=stated)) for stated in (None, "decodes"))
    prompt, decode = Passing(100, 1, 5050.0, 0, 0.0), Passing(0, 0, 0.0, 8, 800.0)
    assert usual.is_captured(prompt) and not alone.is_captured(prompt)
    assert alone.seconds(prompt, 1) == pytest.approx(CALL * alone.calls + alone.server.engine.gap)
    assert alone.seconds(decode, 8) == usual.seconds(decode, 8)


@pytest.mark.parametrize("stated", ["", "4,", "0", "1,two", "+", "512 +x", "-4"])
def test_graphs_are_numbers_of_requests(stated: str) -> None:
    with pytest.raises(SpecError, match="graphs"):
        server_of(load_model("qwen3-4b"), "b200-ib", 1, "trtllm", ServePlan(), graphs=stated)


@pytest.mark.parametrize("whole, passes", [(False, [300, 1 + 300 + 192, 2 + 208]), (True, [300, 1 + 300, 2 + 400])])
def test_a_prompt_waits_where_none_is_cut(whole: bool, passes: list[int]) -> None:
    """Prompts of 300, 300 and 400, the first of which is alone, in passes of 500 tokens and blocks of 32."""
    server = server_of(load_model("qwen3-4b"), "b200-ib", 1, "trtllm", ServePlan(), step_tokens=500, whole_prompts=whole, sync=True)
    load = ServeLoad(np.array([300, 300, 400]), np.array([9, 9, 9]), np.zeros(0), 3)
    log = run_lane(StepTimes(server), load, 10**5, record=True).log
    assert [one.tokens // one.passes for one in log[:3]] == passes
    longer = ServeLoad(np.array([700]), np.array([2]), np.zeros(0), 1)  # than any pass: it is cut all the same
    assert [one.tokens for one in run_lane(StepTimes(server), longer, 10**5, record=True).log] == [480, 220, 1]


def test_an_engine_without_rules_for_whole_prompts_says_so() -> None:
    with pytest.raises(SpecError, match="SGLang without chunks"):
        server_of(load_model("qwen3-4b"), "b200-ib", 1, "sglang", ServePlan(), whole_prompts=True)


def test_what_nothing_hides_is_each_engine_s_own() -> None:
    gaps = {name: server_of(load_model("qwen3-4b"), "b200-ib", 1, name, ServePlan(), sync=True).engine.gap for name in ENGINES}
    assert gaps == {"vllm": 4.6e-3, "sglang": 4.6e-3, "trtllm": 0.58e-3}


def test_random_words_take_longer_to_tokenise() -> None:
    """A load that says so sends its prompts to the scheduler later, on each lane."""
    load = ServeLoad(np.full(4, 500), np.full(4, 2), np.arange(4.0))
    slow = replace(load, tokenise=2 * TOKENISE)
    came = [[moment for moment, _ in sorted(LaneClock(one.part(1, 2)).coming)] for one in (load, slow)]
    assert came[1] == pytest.approx([moment + 500 * TOKENISE for moment in came[0]])
    times = StepTimes(small())
    alone, later = (run_lane(times, one, 10**5) for one in (load, slow))
    assert later.first - alone.first == pytest.approx(np.full(4, 500 * TOKENISE), rel=1e-6)


@pytest.mark.parametrize(
    ("engine", "requests", "tokens", "largest"),
    [
        ("sglang", 200, 800, 512 * 4),
        ("trtllm", 200, 256 * 4, 2048 * 4),  # the next of every 64 above 128
        ("vllm", 98, 400, 512),  # every 16 above 256
    ],
)
def test_graphs_with_drafts_count_what_the_engine_counts(engine: str, requests: int, tokens: int, largest: int) -> None:
    """Three drafts: 4 tokens a request. vLLM captures up to 512 tokens, the others as many requests as without."""
    drafts = Speculation("mtp", 3, 2.4)
    times = StepTimes(server_of(load_model("deepseek-v3"), "b200-ib", 8, engine, ServePlan(tp=8), speculation=drafts))
    assert times.graph_limit == largest
    assert times.pad_tokens(4 * requests) == tokens
    assert times.is_captured(Passing(0, 0, 0.0, largest // 4, 1e5, 3 * largest // 4))
    assert not times.is_captured(Passing(0, 0, 0.0, largest // 4 + 1, 1e5, 3 * largest // 4 + 3))
    block = times.server.engine.block
    assert most_tokens(times, 100 * block + block - 1) == 100 * block - 2 * 3  # whole blocks, and drafts twice


@pytest.mark.parametrize(("machine", "share"), [("b200-ib", REREAD), ("h200-ib", 0.0)])
def test_drafts_of_latent_attention_read_the_cache_again_on_blackwell(machine: str, share: float) -> None:
    """A pass that verifies three drafts of 100 requests costs as one of 100 x (1 + 3 shares) that each read a cache of 80,000; a
    layer of grouped queries reads once. The kernel's published times of 8 to 256 requests with 4 tokens lie within 15 % on B200."""
    plan, drafts = ServePlan(tp=8), Speculation("mtp", 3, 2.5)
    times = StepTimes(server_of(load_model("deepseek-v3"), machine, 8, "sglang", plan, kv="fp8", speculation=drafts))
    mixing = times.kinds[-1][2]

    def seconds(requests: int, verified: int) -> float:
        return times.cached_seconds(mixing, Passing(0, 0, 0.0, requests, 80_000.0 * requests, verified))

    assert times.reread(mixing) == share
    if share:
        assert seconds(100, 300) == pytest.approx(seconds(274, 0), rel=0.01)
        for requests, microseconds in ((8, 181), (32, 655), (64, 1420), (128, 2623), (256, 4855)):
            assert seconds(requests, 3 * requests) == pytest.approx(1e-6 * microseconds, rel=0.15)
    plain = StepTimes(server_of(load_model("qwen3-32b"), machine, 8, "sglang", plan, speculation=Speculation("eagle", 3, 2.5)))
    assert plain.reread(plain.kinds[-1][2]) == 0.0


def test_the_core_prices_drafts_of_latent_attention_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load of drafting DeepSeek-V3 on B200, on the core and in Python."""
    drafts, load = Speculation("mtp", 3, 2.5), drawn_load(4000, 60, concurrency=24, requests=48)
    server = server_of(load_model("deepseek-v3"), "b200-ib", 8, "trtllm", ServePlan(tp=8), kv="fp8", speculation=drafts)
    fast = serve(server, load)
    monkeypatch.setattr("windtunnel.serving.simulate.run_on_core", lambda *asked: None)
    slow = serve(server, load)
    assert (fast.tpot.mean, fast.ttft.mean) == pytest.approx((slow.tpot.mean, slow.ttft.mean), rel=1e-9)


def test_states_of_accepted_drafts_are_copied_by_index_in_older_releases() -> None:
    """Qwen3.5 with tp 4: 16 heads of 128 x 128 numbers, and 4 inputs of 4,096 channels of half the width, at 14 ps each."""
    model, drafts = load_model("qwen3.5-397b-a17b"), Speculation("mtp", 3, 3.0)
    model = model.model_copy(update={"mtp_layers": 1})
    one = Passing(0, 0, 0.0, 10, 1e5, 30)

    def passes(release: str, speculation: Speculation | None = drafts) -> StepTimes:
        server = server_of(model, "b200-ib", 4, "sglang", ServePlan(tp=4), release=release, speculation=speculation)
        return StepTimes(server)

    numbers = 16 * 128 * 128 + 4 * (16 * 128 + 2 * 4 * 128) / 2
    layers = sum(kind.mixer == "linear_attention" for kind in model.kinds)
    late, early = passes("0.5.10"), passes("0.5.9")
    mixing = next(mixing for _, _, mixing in early.kinds if mixing.scan)
    assert early.cached_seconds(mixing, one) - late.cached_seconds(mixing, one) == pytest.approx(10 * numbers * 14e-12)
    assert layers * numbers * 14e-12 == pytest.approx(167e-6, rel=0.02)  # a request and pass
    assert passes("0.5.9", None).kept_seconds(mixing) == 0.0
