"""The load that a benchmark's client sends: `vllm bench serve`, `sglang.bench_serving`, genai-perf, aiperf, LLMPerf, EvalScope,
GuideLLM.

`clients.toml` has their flags, and what each draws where no flag says it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.scripts.missing_arguments import unset_names
from windtunnel.formats.jobs.scripts.said import Said, said_of_flags


class ClientLoad(NamedTuple):
    """`fields` of `serving.options.ServeOptions`, and what no flag said, in words."""

    fields: dict[str, Any]
    assumed: tuple[str, ...]


@cache
def _client_table() -> dict[str, Any]:
    return table_beside(__file__)


def client_load(words: Sequence[str]) -> ClientLoad | None:
    """What a client's flags say of its load; None for another command."""
    for client in _client_table()["client"].values():
        known = client["words"]
        for place in range(len(words) - len(known) + 1):
            if all(re.fullmatch(pattern, word) for pattern, word in zip(known, words[place:], strict=False)):
                said = said_of_flags(words[place + len(known) :])
                return _load_of(client, _said_of_profile(said) if client.get("profiles") else said)
    return None


def _said_of_profile(said: Said) -> Said:
    """GuideLLM's flags as others say them: the parts of --data, and a --rate that is users where its profile says so."""
    texts = {**said.texts, **dict(re.findall(r"(\w+)[\"']?\s*[=:]\s*(\d+)", said.text("data") or ""))}
    profile, rate = said.text("rate_type", "profile"), texts.pop("rate", "")
    texts |= {"synchronous": {"concurrency": "1"}, "concurrent": {"concurrency": rate}}.get(profile or "", {})
    return Said({**texts, "rate": rate} if profile in ("constant", "poisson") else texts)


def _load_of(client: Mapping[str, Any], said: Said) -> ClientLoad:
    fields, assumed = _lengths(client, said)
    flags = _client_table()["flags"]
    requests, rate = said.count(*flags["requests"]), said.number("request_rate", "rate")
    users, several = _most_users(said, flags["users"])
    if several:
        assumed.append(f"of {several} users the most")
    if requests is None and "requests" in client and not several:
        requests = client["requests"]
        assumed.append(f"{requests:,} requests, as the client sends")
    if requests is not None:
        fields["requests"] = requests
    if rate is not None and math.isfinite(rate) and rate > 0.0:
        fields["rate"] = rate
        burst = said.number("burstiness")
        if burst is not None and burst > 0.0:
            fields["burstiness"] = burst
    elif (at_once := users or client.get("users") or requests) is not None:
        fields["concurrency"] = at_once
    asked = {*(name for listed in flags.values() for name in listed), "request_rate", "rate", "random_range_ratio"}
    unset = dict.fromkeys(name for flag in asked for name in unset_names(said.text(flag) or ""))
    if unset:
        assumed.append(f"nothing of {', '.join(sorted(unset))}, which its client names and nothing sets")
    return ClientLoad(fields, tuple(assumed))


def _most_users(said: Said, names: Sequence[str]) -> tuple[int | None, str]:
    """The users that a flag says, and its text where it says several numbers, one run each."""
    numbers = [int(word) for word in re.split(r"[\s,]+", said.text(*names) or "") if word.isdecimal() and int(word) > 0]
    return max(numbers, default=None), ", ".join(map(str, numbers)) if len(numbers) > 1 else ""


def _lengths(client: Mapping[str, Any], said: Said) -> tuple[dict[str, Any], list[str]]:
    """Lengths of prompt and output, and what was assumed of them."""
    table, fields, assumed = _client_table(), dict[str, Any](), list[str]()
    flags, ratio = table["flags"], said.number("random_range_ratio")
    stated = {key: said.count(*flags[key]) for key in ("isl", "osl")}
    path = said.text("dataset_path") or ""
    dataset = said.text("dataset_name", "dataset") or ("random" if any(stated.values()) else client.get("dataset", ""))
    named = table["dataset"].get("sharegpt" if "sharegpt" in path.lower() and dataset != "random" else dataset.lower())
    if named is not None and not any(stated.values()):
        output = said.count("sharegpt_output_len", "custom_output_len", "hf_output_len")
        assumed.append(f"lengths of {dataset or path}: prompts {named['isl']}, outputs {output or named['osl']} tokens")
        return {"isl": named["isl"], "osl": str(output or named["osl"])}, assumed
    for key, default in zip(("isl", "osl"), client.get("deviations", (None, None)), strict=True):
        length = stated[key]
        if length is None and (dataset.startswith("random") or "deviations" in client) and key in client:
            length = client[key]
            assumed.append(f"{key} {length}, as the client draws")
        if length is None:
            continue
        deviation = said.number(*flags[f"{key}_deviation"])
        fields[key] = _length_text(client, length, ratio, default if deviation is None else deviation)
        if ratio is None and client.get("ratio") == 0.0 and fields[key] != str(length):
            assumed.append(f"{key} {fields[key]}: without --random-range-ratio this client draws any length up to the stated one")
    return fields, assumed


def _length_text(client: Mapping[str, Any], length: int, ratio: float | None, deviation: float | None) -> str:
    """A length as `base.lengths` writes it."""
    if deviation is not None and deviation > 0.0:
        return f"{length}~{deviation / length:.3g}"
    if "spread" not in client:
        return str(length)
    share = client["ratio"] if ratio is None else ratio
    around = client["spread"] == "around"
    low, high = (length * (1.0 - share), length * (1.0 + share)) if around else (length * share, float(length))
    first, last = max(1, math.floor(low) if around else int(low)), math.ceil(high)
    return f"{first}-{last}" if 0.0 <= share < 1.0 and first < last else str(length)
