"""What a server says of itself: its engine and release, its model, its limits, and whether others use it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.files import table_beside
from windtunnel.profile.served.client import ServerClient

ENGINES: dict[str, dict[str, Any]] = table_beside(__file__)
"""Engines whose words are known."""

FIGURE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[-+\d.eE]+|NaN|[-+]?Inf)\s*$", re.MULTILINE)
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


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
    engine = next((one for one, words in ENGINES.items() if any(name.startswith(words["figures"]) for name, _, _ in figures)), "")
    engine = engine or next((one for one in ENGINES if one in str(own.get("owned_by", "")).lower()), "")
    pages = ENGINES.get(engine, {}).get("pages", ())
    said = next((found for page in pages if (found := _json_table(client.get(page)))), {})
    release = str(_json_table(client.get("/version")).get("version") or said.get("version") or "")
    return ServerFacts(
        url=client.url, model=name, root=str(own.get("root") or said.get("model_path") or name), engine=engine, release=release,
        most_tokens=_whole_number(own.get("max_model_len") or said.get("context_length")),
        cache_tokens=_cache_of(engine, figures) or _whole_number(said.get("max_total_num_tokens")),
        step_tokens=max(0, _whole_number(said.get("chunked_prefill_size"))),
        running=_whole_number(said.get("max_running_requests")),
        ahead=None if "disable_overlap_schedule" not in said else not said["disable_overlap_schedule"],
        has_metrics=bool(figures),
    )  # fmt: skip


def requests_of(client: ServerClient) -> int:
    """Requests that the server has now, as it counts them; 0 where it does not say."""
    names = {words["figures"] + name for words in ENGINES.values() for name in words["requests"]}
    return round(sum(value for name, _, value in figures_of(client.get("/metrics") or "") if name in names))


def figures_of(text: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of each line of Prometheus' text format; others are left out."""
    return [(row["name"], dict(LABEL.findall(row["labels"] or "")), float(row["value"])) for row in FIGURE.finditer(text)]


def _cache_of(engine: str, figures: list[tuple[str, dict[str, str], float]]) -> int:
    """Tokens that the cache holds; 0 where the engine does not say."""
    cache = ENGINES[engine]["cache"] if engine else {}
    for name, labels, value in figures:
        if cache and name == ENGINES[engine]["figures"] + cache["name"]:
            return (
                math.prod(_whole_number(labels.get(label)) for label in cache["labels"])
                if cache["labels"]
                else _whole_number(value)
            )
    return 0


def _whole_number(value: Any) -> int:
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def _json_table(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
