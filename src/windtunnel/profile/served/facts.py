"""What a server says of itself: its engine and release, its model, its limits, and whether others use it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.profile.served.client import ServerClient

ENGINES = ("vllm", "sglang")
"""Engines whose figures under /metrics are known; they begin with this name and a colon."""

FIGURE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[-+\d.eE]+|NaN|[-+]?Inf)\s*$", re.MULTILINE)
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')

RUNNING = ("num_requests_running", "num_running_reqs", "num_requests_waiting", "num_queue_reqs")
"""Figures of requests that a server has, of vLLM and SGLang."""


@dataclass(frozen=True)
class ServerFacts:
    """`model`: as requests name it; `root`: the path or the name on a hub that it was loaded from. `most_tokens`: of a request;
    `cache_tokens`: of all of them; `step_tokens`: of a pass; `running`: requests at once; 0: not said. `has_metrics`: whether it
    counts requests under /metrics."""

    url: str
    model: str
    root: str
    engine: str = ""
    release: str = ""
    most_tokens: int = 0
    cache_tokens: int = 0
    step_tokens: int = 0
    running: int = 0
    ahead: bool | None = None
    has_metrics: bool = False


def facts_of(client: ServerClient, model: str | None = None) -> ServerFacts:
    """What the server says of itself, and of `model`, or of its only one. Raises as `ServerClient`; UnknownName for a model that it
    does not have."""
    text = client.get("/v1/models")
    try:
        listed = {str(one["id"]): one for one in json.loads(text or "")["data"]}
    except (ValueError, KeyError, TypeError) as error:
        hint = "vLLM and SGLang list their models under /v1/models."
        raise SpecError("--server", client.url, "a server that speaks OpenAI's API", hint) from error
    if not listed:
        raise SpecError("--server", f"{client.url}: no model", "a server that has loaded its model")
    name = model if model is not None else next(iter(listed))
    if name not in listed:
        raise UnknownName("--model", name, tuple(listed))
    own, figures = listed[name], figures_of(client.get("/metrics") or "")
    engine = next((one for one in ENGINES if any(figure.startswith(f"{one}:") for figure, _, _ in figures)), "")
    engine = engine or next((one for one in ENGINES if one in str(own.get("owned_by", "")).lower()), "")
    said = {} if engine == "vllm" else _plain(client.get("/get_server_info")) or _plain(client.get("/server_info"))
    release = str(_plain(client.get("/version")).get("version") or said.get("version") or "")
    return ServerFacts(
        url=client.url, model=name, root=str(own.get("root") or said.get("model_path") or name), engine=engine, release=release,
        most_tokens=_whole(own.get("max_model_len") or said.get("context_length")),
        cache_tokens=_cache_of(figures) or _whole(said.get("max_total_num_tokens")),
        step_tokens=max(0, _whole(said.get("chunked_prefill_size"))), running=_whole(said.get("max_running_requests")),
        ahead=None if "disable_overlap_schedule" not in said else not said["disable_overlap_schedule"],
        has_metrics=bool(figures),
    )  # fmt: skip


def requests_of(client: ServerClient) -> int:
    """Requests that the server has now, as it counts them; 0 where it does not say."""
    figures = figures_of(client.get("/metrics") or "")
    return round(sum(value for name, _, value in figures if name.partition(":")[2] in RUNNING))


def figures_of(text: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of each line of Prometheus' text format; others are left out."""
    return [(row["name"], dict(LABEL.findall(row["labels"] or "")), float(row["value"])) for row in FIGURE.finditer(text)]


def _cache_of(figures: list[tuple[str, dict[str, str], float]]) -> int:
    """Tokens that the cache holds: vLLM says its blocks as labels, SGLang their tokens."""
    for name, labels, value in figures:
        if name == "vllm:cache_config_info":
            return _whole(labels.get("num_gpu_blocks")) * _whole(labels.get("block_size"))
        if name == "sglang:max_total_num_tokens":
            return _whole(value)
    return 0


def _whole(value: Any) -> int:
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def _plain(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
