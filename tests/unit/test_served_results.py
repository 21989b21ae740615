"""What inference servers and their benchmarks print, read as measured figures, and set beside a prediction."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError
from windtunnel.formats.logs.served import read_served

BENCH = """============ Serving Benchmark Result ============
Successful requests:                     100
Maximum request concurrency:             32
Benchmark duration (s):                  48.75
Total input tokens:                      102400
Total generated tokens:                  51200
Request throughput (req/s):              2.05
Output token throughput (tok/s):         2,100.42
---------------Time to First Token----------------
Mean TTFT (ms):                          618.96
Median TTFT (ms):                        610.09
P99 TTFT (ms):                           1128.58
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          11.88
---------------Inter-token Latency----------------
Mean ITL (ms):                           11.90
==================================================
"""
BOX = """NVIDIA GenAI-Perf | LLM Metrics
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃                   Statistic ┃      avg ┃      min ┃      p99 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│    Time To First Token (ms) │ 1,385.48 │   538.11 │ 2,000.00 │
│    Inter Token Latency (ms) │    19.42 │    17.97 │    25.00 │
│ Output Token Throughput (per sec) │ 1,023.48 │ N/A │ N/A │
└─────────────────────────────┴──────────┴──────────┴──────────┘
"""
JSONL = (
    '{"backend": "sglang", "request_rate": Infinity, "max_concurrency": 4, "random_input_len": 4000, "random_output_len": 1000, '
    '"duration": 3124.0, "completed": 100, "output_throughput": 32.0, "mean_ttft_ms": 875.9, "median_ttft_ms": NaN, '
    '"mean_tpot_ms": 30.4}\n'
)
TRTLLM = """= PERFORMANCE OVERVIEW
Request Throughput (req/sec):                     248.4751
Total Output Throughput (tokens/sec):             6957.3030
Total Latency (ms):                               120736.4401
Average time-to-first-token [TTFT] (ms):          53.5
Per GPU Output Throughput (tps/gpu):              6957.3030
"""
START = """INFO 04-22 10:00:10 [kv_cache_utils.py:864] GPU KV cache size: 178,880 tokens
INFO 04-22 10:00:10 [kv_cache_utils.py:868] Maximum concurrency for 40,960 tokens per request: 4.37x
INFO 04-22 10:01:10 Engine 000: Avg prompt throughput: 1200.0 tokens/s, \
Avg generation throughput: 800.0 tokens/s, Running: 64 reqs, Waiting: 12 reqs, GPU KV cache usage: 97.3%, \
Prefix cache hit rate: 41.2%
INFO 04-22 10:01:20 Engine 000: Avg prompt throughput: 1000.0 tokens/s, \
Avg generation throughput: 900.0 tokens/s, Running: 62 reqs, Waiting: 10 reqs, GPU KV cache usage: 90.0%, \
Prefix cache hit rate: 42.0%
"""
SGLANG = (
    "[2025-12-09 10:00:00 TP0] max_total_num_tokens=145000, chunked_prefill_size=8192\n[2025-12-09 10:00:00 TP0] Decode batch. "
    "#running-req: 48, #token: 120345, token usage: 0.83, cuda graph: True, gen throughput (token/s): 1789.12, #queue-req: 3\n"
)
OLD = (
    "Loading model weights took 14.9888 GB\n# GPU blocks: 1952, # CPU blocks: 2048\n"
    "Maximum concurrency for 20000 tokens per request: 1.56x\n"
)

CASES: dict[str, tuple[str, dict[str, Any], dict[str, float]]] = {
    "vLLM's table": (
        BENCH,
        {
            "requests": 100, "concurrency": 32, "seconds": 48.75, "tokens_per_s": 2100.42, "tpot": {"mean": 0.01188},
            "itl": {"mean": 0.0119}, "ttft": {"mean": 0.61896, "p50": 0.61009, "p99": 1.12858},
        },
        {},
    ),
    "a box": (
        BOX,
        {
            "ttft": {"mean": 1.38548, "min": 0.53811, "p99": 2.0}, "tpot": {"mean": 0.01942, "min": 0.01797, "p99": 0.025},
            "tokens_per_s": 1023.48,
        },
        {},
    ),
    "JSON with Infinity": (
        JSONL,
        {
            "requests": 100, "concurrency": 4, "isl": 4000, "osl": 1000, "ttft": {"mean": 0.8759}, "tpot": {"mean": 0.0304},
            "tokens_per_s": 32.0, "seconds": 3124.0,
        },
        {},
    ),
    "trtllm-bench": (
        TRTLLM,
        {
            "requests_per_s": 248.4751, "tokens_per_s": 6957.303, "seconds": 120.7364401, "ttft": {"mean": 0.0535},
            "tokens_per_s_gpu": 6957.303,
        },
        {},
    ),
    "vLLM's engine": (
        START,
        {},
        {
            "cache_tokens": 178880, "concurrency_length": 40960, "concurrency_times": 4.37, "prompt_rate": 1100.0,
            "generation_rate": 850.0, "running": 63.0, "waiting": 11.0, "cache_used": 0.973, "prefix_hits": 0.42,
        },
    ),
    "SGLang's server": (
        SGLANG, {}, {"cache_tokens": 145000, "generation_rate": 1789.12, "running": 48, "waiting": 3, "cache_used": 0.83},
    ),
    "an older start": (
        OLD,
        {},
        {"cache_tokens": 31232, "concurrency_length": 20000, "concurrency_times": 1.56, "weights_bytes": 14.9888 * 2**30},
    ),
}  # fmt: skip
FURTHER = tomllib.loads(Path(__file__).with_name("served_texts.toml").read_text(encoding="utf-8"))
CASES |= {name: (said["text"], said["figures"], {}) for name, said in FURTHER.items()}


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_is_read(case: str, tmp_path: Path) -> None:
    text, figures, engine = CASES[case]
    path = tmp_path / ("result.jsonl" if text.startswith("{") else "server.log")
    path.write_text(text)
    found = read_served(path)
    assert {name: found.figures.get(name) for name in figures} == {name: pytest.approx(value) for name, value in figures.items()}
    assert found.engine == pytest.approx(engine)
    assert wt.read(path).format == "served"
    assert case not in FURTHER or found.source == FURTHER[case]["source"]


@pytest.mark.parametrize("prefix", ["(EngineCore pid=12) ", "2026-01-02 10:00:00 ", "[1;32m"])
def test_prefixes_and_colours_do_not_hide_the_cache(prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(f"{prefix}{line}\n" for line in START.splitlines()))
    assert read_served(path).engine["cache_tokens"] == 178880


@pytest.mark.parametrize("text", ["a line\n", "Mean TTFT (ms): abc\nServing Benchmark Result\n", "{\n"])
def test_a_text_without_figures_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(FileError):
        read_served(path)


def test_a_result_stands_beside_the_prediction(tmp_path: Path) -> None:
    """The load of the result is taken; each figure says how far off it is, and whether the stated error holds."""
    result = tmp_path / "bench.log"
    result.write_text(BENCH)
    answer = wt.serve_predict("llama3.1-8b", "h100-ib", tp=1, measured=result)
    assert answer.requests == 100
    rows = {row.figure: row for row in answer.measured_rows}
    assert rows["tpot.mean"].measured == pytest.approx(0.01188) and rows["tpot.mean"].predicted == answer.tpot.mean
    assert rows["tpot.mean"].off == pytest.approx(answer.tpot.mean / 0.01188 - 1.0)
    assert rows["tokens_per_s"].holds_error == (abs(2100.42 / answer.tokens_per_s - 1.0) <= answer.relative_errors()["throughput"])  # type: ignore[operator]
    assert {row["figure"] for row in answer.as_dict()["measured"]} == set(rows)
    stated = wt.serve_predict("llama3.1-8b", "h100-ib", tp=1, measured=result, requests=8, concurrency=2, isl=64, osl=8)
    assert stated.requests == 8


def test_the_cache_of_a_log_stands_beside_ours(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(START)
    answer = wt.serve_predict("llama3.1-8b", "h100-ib", tp=1, measured=log, isl=64, osl=8, requests=4, concurrency=2)
    (row,) = [row for row in answer.measured_rows if row.figure == "cache_tokens"]
    assert row.measured == 178880 and row.predicted == answer.room.lane_tokens and row.holds_error is None
