"""The load that a benchmark's client sends: `vllm bench serve`, `sglang.bench_serving`, genai-perf and aiperf."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from windtunnel.formats.jobs.scripts.said import Said, said_of_flags

_CLIENT = re.compile(r"(.*\bbenchmark_serving(\.py)?|sglang\.bench_serving|bench_serving(\.py)?|genai-perf|aiperf)$")


def client_load(words: Sequence[str]) -> dict[str, Any] | None:
    """Fields of `serving.options.ServeOptions` that a client's flags say; None for another command."""
    place = next((n for n, word in enumerate(words) if _CLIENT.fullmatch(word)), None)
    for n in range(len(words) - 2):
        if list(words[n : n + 3]) == ["vllm", "bench", "serve"]:
            place = n
    if place is None:
        return None
    return load_of(said_of_flags(words[place:]))


def load_of(said: Said) -> dict[str, Any]:
    """The load of flags or of a result's table."""
    found: dict[str, Any] = {}
    isl = said.count("random_input_len", "input_len", "synthetic_input_tokens_mean", "isl", "random_input", "sonnet_input_len")
    osl = said.count("random_output_len", "output_len", "output_tokens_mean", "osl", "random_output", "sonnet_output_len")
    spread = said.number("random_range_ratio")
    for key, length in (("isl", isl), ("osl", osl)):
        if length is not None:
            found[key] = f"{max(1, round(length * spread))}-{length}" if spread and 0.0 < spread < 1.0 else str(length)
    requests = said.count("num_prompts", "num_prompt", "request_count")
    users = said.count("max_concurrency", "concurrency")
    rate = said.number("request_rate")
    if requests is not None:
        found["requests"] = requests
    if rate is not None and math.isfinite(rate) and rate > 0.0:
        found["rate"] = rate
        burst = said.number("burstiness")
        if burst is not None and burst > 0.0:
            found["burstiness"] = burst
    elif users is not None or requests is not None:
        found["concurrency"] = users or requests
    return found
