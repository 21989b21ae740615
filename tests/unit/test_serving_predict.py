"""A served model: sums of its parts, traces, and what cannot be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError, PlanError, SpecError
from windtunnel.cli import main
from windtunnel.compute.engines.seconds import Caches, Prompts, decode_seconds, engine_device, prefill_seconds
from windtunnel.serving import ServePlan, Server, read_trace, serve, server_of
from windtunnel.serving.engine import GAP
from windtunnel.serving.lengths import Mixing, Passing, cache_bytes, passing_of
from windtunnel.serving.load import drawn_load
from windtunnel.serving.simulate import FRONT, TOKENISE
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model


def small(engine: str = "vllm", gpus: int = 1, plan: ServePlan | None = None, **more: object) -> Server:
    return server_of(load_model("llama3.1-8b"), "h100-ib", gpus, engine, plan or ServePlan(), **more)  # type: ignore[arg-type]


def test_an_infinite_rate_sends_all_requests_at_once() -> None:
    found = drawn_load(512, 64, rate=float("inf"), requests=9)
    assert (len(found), found.concurrency, len(found.arrival)) == (9, 9, 0)
    with pytest.raises(SpecError, match="--requests 1000"):
        drawn_load(512, 64, rate=float("inf"))


def test_a_token_of_llama_8b_takes_128_kib_of_the_cache() -> None:
    """Keys and values of 8 heads of 128 in 32 layers, two bytes each: 2 x 8 x 128 x 32 x 2."""
    assert cache_bytes(small()) == (131072.0, 0.0)
    assert cache_bytes(small(kv="fp8")) == (65536.0, 0.0)
    assert cache_bytes(small(gpus=8, plan=ServePlan(tp=8))) == (16384.0, 0.0)


def test_latent_attention_caches_its_latent_on_every_rank() -> None:
    """DeepSeek-V3: 512 + 64 numbers in 61 layers, whatever tp is."""
    server = server_of(load_model("deepseek-v3"), "b200-ib", 8, "vllm", ServePlan(tp=8), weights="fp8")
    assert cache_bytes(server)[0] == 576 * 61 * 2


@pytest.mark.parametrize(
    ("model", "plan", "token", "state"),
    [
        # 16 of 32 layers of 4,096 bytes a token
        ("llama3.1-8b", ServePlan(pp=2), 16 * 4096.0, 0.0),
        # keys and values of 4 heads of 256 in 13 layers; 13 others keep 4,096 tokens of 4,096 bytes; half of each on a stage
        ("gemma2-2b", ServePlan(), 13 * 4096.0, 13 * 4096.0 * 4096.0),
        ("gemma2-2b", ServePlan(pp=2), 13 * 2048.0, 13 * 2048.0 * 4096.0),
        # 16 of 32 heads of 128 x 128 in fp32 in 36 layers, and 4 columns of 16 heads of values and 2 x 8 heads of keys in bf16; one
        # of two key-value heads of 256 in 12 layers
        (
            "qwen3-next-80b-a3b",
            ServePlan(tp=2),
            12 * 2 * 256 * 2.0,
            36 * (4.0 * 16 * 128 * 128 + 2.0 * 4 * (16 * 128 + 2 * 8 * 128)),
        ),
        # 64 of 128 heads of 64 with 128 states in 24 layers, and 4 columns of them and of 2 x 4 groups of states; 4 of 8 heads of
        # 128 in 4 layers
        ("nemotron-h-8b", ServePlan(tp=2), 4 * 2 * 4 * 128 * 2.0, 24 * (4.0 * 4096 * 128 + 2.0 * 4 * (4096 + 2 * 4 * 128))),
    ],
)
def test_bytes_of_the_cache_by_hand(model: str, plan: ServePlan, token: float, state: float) -> None:
    """Of a token, and of what a request has however long it is, on the fullest GPU."""
    server = server_of(load_model(model), "h100-ib", plan.gpus, "vllm", plan)
    assert cache_bytes(server) == (pytest.approx(token), pytest.approx(state))


def test_a_window_bounds_what_is_seen() -> None:
    """Four prompt tokens see 10 each at most; two requests read 10 of their cached tokens each."""
    local, everything = Mixing(window=10), Mixing()
    assert (local.seen_pairs(30.0, 4), local.seen_pairs(100.0, 4), everything.seen_pairs(100.0, 4)) == (30.0, 40.0, 100.0)
    assert (local.read_tokens(15.0, 2), local.read_tokens(100.0, 2), everything.read_tokens(100.0, 2)) == (15.0, 20.0, 100.0)


def test_a_pass_counts_pairs_and_cached_tokens() -> None:
    """A chunk of 4 behind 6 tokens: 4 x 6 before it and 1 + 2 + 3 + 4 of its own; a prompt of 3: 6. Two requests decode with 20
    and 31 tokens cached and their last one, and the second verifies two drafts."""
    counts, computed = np.array([4, 3, 1, 3]), np.array([6, 0, 20, 31])
    one = passing_of(counts, computed, np.array([True, True, False, False]))
    assert one == Passing(7, 2, 24.0 + 10.0 + 6.0, 2, 53.0, 2) and one.tokens == 11


@pytest.mark.parametrize(
    ("stages", "layers", "ends"),
    [(1, 26, 256000 * 2304 + 2304), (2, 13, 256000 * 2304)],  # the larger end: the embedding, or the last norm
)
def test_weights_of_a_stage_by_hand(stages: int, layers: int, ends: int) -> None:
    """Gemma 2 2B: 8 query and 4 key-value heads of 256, a gated MLP of 9,216 and four norms; the head is the embedding."""
    one = 2304 * 256 * (8 + 2 * 4 + 8) + 3 * 2304 * 9216 + 4 * 2304
    server = server_of(load_model("gemma2-2b"), "h100-ib", stages, "vllm", ServePlan(pp=stages))
    assert StepTimes(server).weights() == pytest.approx(2.0 * (layers * one + ends))


def test_weights_are_the_models_parameters() -> None:
    """8.03 billion parameters in bf16; in FP8 the layers' products take a byte each."""
    assert StepTimes(small()).weights() == pytest.approx(16.06e9, rel=1e-3)
    assert 8.0e9 < StepTimes(small(weights="fp8")).weights() < 10.2e9


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_one_user_takes_the_sum_of_its_passes(engine: str) -> None:
    """One request at a time: its way to the scheduler, the prompt's pass, then one for each further token, with one more cached."""
    server = small(engine)
    times = StepTimes(server)
    answer = serve(server, drawn_load(300, 9, concurrency=1, requests=3), times=times)
    prompt = times.seconds(Passing(300, 1, 300 * 301 / 2, 0, 0.0), 1)
    decode = [times.seconds(Passing(0, 0, 0.0, 1, 300.0 + n), 1) for n in range(1, 9)]
    front = FRONT + 300 * TOKENISE
    assert answer.ttft.mean == pytest.approx(front + prompt, rel=1e-9)
    assert answer.tpot.mean == pytest.approx(sum(decode) / 8, rel=1e-6)
    assert answer.seconds == pytest.approx(3 * (front + prompt + sum(decode)), rel=1e-6)


def test_a_pass_is_the_sum_of_its_blocks() -> None:
    """A decoding pass: 32 layers' rows and attention, embedding, head, and the gap before the next one."""
    times = StepTimes(small())
    kind = times.graph.kinds[0][0]
    rows = [times.graph.layer(kind, 4), times.graph.embedding(4), times.graph.head(4)]
    layer, embedding, head = times.price_blocks(rows)
    decode = times.curves.decode["bf16"]
    sizes = (4, 1000, 8, 256, 128, 2 * 4 * 32 * 256, 2 * 4 * 32 * 1000 * 256)
    calls = Caches(*(np.array([float(size)]) for size in sizes))
    attention = float(decode_seconds(decode, engine_device(times.gpu), 2.0, calls, cold=True)[0])
    expected = 32 * (layer + attention) + embedding + head + GAP
    assert times.seconds(Passing(0, 0, 0.0, 4, 4000.0), 4) == pytest.approx(expected, rel=1e-3)


def test_attention_over_prompts_by_hand() -> None:
    """32 query and 8 key-value heads of 128. Two chunks of 100 tokens that see 250.5 each, their own half among them: 300 keys.
    In a pass, times are of whole octaves' quarters of length and eighths of depth, and of the pairs that there are."""
    times = StepTimes(small())
    _, _, mixing = times.kinds[0]
    sizes = (2 * 32, 100, 300, 128, 2 * 2 * 32 * 100 * 250.5 * 256, 2 * 2 * (100 * 32 * 256 + 300 * 8 * 256), 0, 8 / 32)
    of = Prompts(*(np.array([float(size)]) for size in sizes))
    alone = float(prefill_seconds(times.curves.prefill["bf16"], engine_device(times.gpu), "bf16", of)[0])
    assert times._attend(mixing, 2, 100, 250.5) == pytest.approx(alone, rel=1e-9)
    kind = times.kinds[0][0]
    assert times.prompt_seconds(kind, mixing, Passing(512, 2, 512 * 256.0, 0, 0.0)) == pytest.approx(
        times._attend(mixing, 2, 256, 256.0)
    )
    near = times.prompt_seconds(kind, mixing, Passing(512, 2, 512 * 257.0, 0, 0.0))
    assert near == pytest.approx(times._attend(mixing, 2, 256, 256.0) * 257 / 256)


def test_a_model_that_fits_nowhere_says_what_would_do() -> None:
    """Half of 141 GB is 70.5, and what stays in 16 bits is more: fp8 does not fit, int4 does, and so do four GPUs."""
    model, load = load_model("llama3.1-70b"), drawn_load(8, 8, concurrency=1)
    with pytest.raises(PlanError, match=r"weights below 70 GB a GPU .* these are 141 GB. Write --tp 4 --gpus 4 or --weights int4"):
        serve(server_of(model, "h100-ib", 1, "vllm", ServePlan()), load)
    with pytest.raises(PlanError, match="weights below 70 GB"):
        serve(server_of(model, "h100-ib", 1, "vllm", ServePlan(), weights="fp8"), load)
    assert serve(server_of(model, "h100-ib", 1, "vllm", ServePlan(), weights="int4"), load).requests == 10
    assert serve(server_of(model, "h100-ib", 4, "vllm", ServePlan(tp=4)), load).requests == 10
    with pytest.raises(PlanError, match=r"Write --tp 64 --gpus 64\.$"):
        serve(server_of(load_model("llama3.1-405b"), "rtx-4090", 8, "vllm", ServePlan(tp=8)), load)


def test_what_is_said_to_fit_fits_in_every_engine() -> None:
    """TensorRT-LLM's cache has a share of what weights leave, so that weights may have all of it; the others' cache and weights
    have a share together. 1 TB of weights on two GPUs of 80 GB."""
    for engine, most in (("vllm", 74), ("sglang", 75), ("trtllm", 82)):
        asked: dict[str, Any] = {"engine": engine, "isl": 64, "osl": 2, "requests": 2, "concurrency": 1}
        with pytest.raises(PlanError, match=rf"weights below {most} GB a GPU .* these are 515 GB. Write --tp 16 --gpus 16"):
            wt.serve_predict("kimi-k2", "a100-ib", 2, tp=2, **asked)
        assert wt.serve_predict("kimi-k2", "a100-ib", 16, tp=16, **asked).tokens_per_s > 0.0


def test_limits_that_nothing_meets_name_the_nearest() -> None:
    server = small()
    answer = serve(server, drawn_load(1000, 50, concurrency=8), ttft=1e-4, tpot=1e-4)
    assert answer.limits is not None
    assert answer.limits.kept == 0.0
    assert "--ttft" in answer.limits.nearest
    assert "--tpot" in answer.limits.nearest


def test_lengths_beyond_the_context_are_cut_and_said() -> None:
    server = server_of(load_model("llama2-7b"), "h100-ib", 1, "vllm", ServePlan())
    answer = serve(server, drawn_load(4000, 200, concurrency=1, requests=2))
    assert answer.notes == ("2 of 2 requests were cut to the model's context of 4096 tokens",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tp": 3}, "tp: got 3"),
        ({"ep": 2}, "has no experts"),
        ({"weights": "int3"}, "bf16, fp8, fp8_block, nvfp4"),
        ({"engine": "tgi"}, "sglang"),
        ({"isl": "12-4"}, "LOW-HIGH"),
        ({"osl": "nothing"}, "MEAN~CV"),
        ({"rate": -1.0}, "requests a second"),
        ({"rate": 1.0, "concurrency": 2}, "one of both"),
        ({"ttft": -1.0}, "seconds"),
        ({"memory": 1.5}, "share of the GPU's memory"),
        ({"gpus": 3, "tp": 2}, "a divisor of 3 GPUs"),
    ],
)
def test_what_cannot_be_says_what_to_type(fields: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        wt.serve_predict("llama3.1-8b", "h100-ib", **{"gpus": 3 if fields.get("tp") == 3 else 2, "tp": 1, **fields})  # type: ignore[arg-type]


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"


def test_traces_of_three_sources_are_read(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv.gz"
    azure.write_bytes(gzip.compress(AZURE.encode()))
    load = read_trace(azure)
    assert (load.prompt.tolist(), load.output.tolist()) == ([374, 396], [44, 109])
    assert load.arrival == pytest.approx([0.0, 4.314579], abs=1e-6)
    moon = tmp_path / "mooncake.jsonl"
    rows = [{"timestamp": t, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]} for t in (0, 1500)]
    moon.write_text("\n".join(json.dumps(row) for row in rows))
    assert read_trace(moon, speed=2.0).arrival.tolist() == [0.0, 0.75]
    burst = tmp_path / "burst.csv"
    burst.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    )
    assert read_trace(burst, concurrency=1).concurrency == 1


def test_a_packed_trace_is_not_unpacked_beyond_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "azure.csv.gz").write_bytes(gzip.compress(AZURE.encode()))
    monkeypatch.setattr("windtunnel.serving.traces.MOST", len(AZURE.encode()))
    assert len(read_trace(tmp_path / "azure.csv.gz").prompt) == 2
    monkeypatch.setattr("windtunnel.serving.traces.MOST", len(AZURE.encode()) - 1)
    with pytest.raises(FileError, match="at most"):
        read_trace(tmp_path / "azure.csv.gz")


def test_traces_with_holes_are_read_around_them(tmp_path: Path) -> None:
    path = tmp_path / "holes.csv"
    path.write_text("timestamp,input_tokens,output_tokens\n9,5,5\n1,,7\n2,-3,7\nx,4,nan\n3,8,8\n")
    load = read_trace(path)
    assert load.prompt.tolist() == [8, 5]
    assert load.notes == ("3 of 5 rows have no lengths and were left out", "rows were sorted by time")


def test_a_trace_that_lacks_times_says_how_many(tmp_path: Path) -> None:
    """One of three rows with lengths has no time; the row without lengths does not count."""
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1.0,10,5\n,20,5\n,,5\n2.0,30,5\n")
    with pytest.raises(FileError, match="1 of 3 rows with lengths have none"):
        read_trace(path)
    assert len(read_trace(path, concurrency=2)) == 3


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "{\n", "timestamp,isl,osl\n1,,\n", "isl,osl\n4,4\n"])
def test_files_that_are_no_traces_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(FileError):
        read_trace(path)


def test_shared_prompts_are_computed_once(tmp_path: Path) -> None:
    """Three requests with the same two blocks of 512 tokens, one after the other: two of them find both."""
    path = tmp_path / "same.jsonl"
    rows = [{"timestamp": 0, "input_length": 1100, "output_length": 4, "hash_ids": [7, 8, n]} for n in (20, 21, 22)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    answer = serve(small(), read_trace(path, concurrency=1))
    assert answer.prefix_hits == pytest.approx(2 * 1024 / 3300)


def test_the_command_prints_what_the_function_returns(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--isl", "64", "--osl", "8", "--concurrency", "2"]
    assert main([*words, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == wt.as_dict(wt.serve_predict("llama3.1-8b", "h100-ib", tp=1, isl=64, osl=8, concurrency=2))
    assert main(words) == 0
    assert "output tokens/s a GPU" in capsys.readouterr().out


def test_more_copies_share_the_users() -> None:
    one = serve(small(), drawn_load(256, 64, concurrency=8))
    two = serve(small(gpus=2), drawn_load(256, 64, concurrency=8))
    assert two.tokens_per_s > one.tokens_per_s
    assert np.isclose(two.batch, one.batch / 2, rtol=0.1)


def test_prompts_beyond_the_context_are_refused() -> None:
    with pytest.raises(SpecError, match=r"prompts of 200,000 tokens.*context of 8,192.*--isl 4096"):
        wt.serve_predict("llama3-8b", "h100-ib", isl=200_000, concurrency=4)
