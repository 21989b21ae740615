"""What a server's flags say of drafted tokens; how many are right stands in none of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from windtunnel.base.errors import SpecError

_COUNTS = ("num_speculative_tokens", "num_nextn_predict_layers", "max_draft_len")
_HEADS = ("eagle", "medusa", "mlp_speculator", "dflash", "dspark")
"""Words of heads over a model's hidden states, each priced as a dense layer."""
_LOOKS = ("ngram", "suffix", "lookahead")
"""Words of drafts that the text so far gives."""


class Drafts(NamedTuple):
    """`speculate`: as --speculate has it, "" without drafts; what is assumed of it, and what is not modelled, in words."""

    speculate: str
    assumed: list[str]
    ignored: list[str]


def drafts_of(read: Mapping[str, Any]) -> Drafts:
    """What a table says (`speculative`, of vLLM and TensorRT-LLM), or SGLang's flags (`algorithm`). SpecError for no JSON."""
    table = read.get("speculative")
    if isinstance(table, str):
        try:
            table = json.loads(table)
        except ValueError:
            raise SpecError("--speculative-config", table[:60], "a JSON object") from None
    said, assumed, ignored = isinstance(table, Mapping), list[str](), list[str]()
    if isinstance(table, Mapping):
        method = str(table.get("method") or table.get("decoding_type") or ("draft" if table.get("model") else "")).lower()
        drafts = next((int(count) for name in _COUNTS if (count := table.get(name))), None)
        small = table.get("model") or table.get("speculative_model_dir")
    else:
        small, tokens = read.get("draft_model"), read.get("draft_tokens")
        named = "" if small is None else "ngram" if "ngram" in str(small) else "draft"  # vLLM's flags before 0.9 name no method
        method = str(read.get("algorithm") or named).lower()
        drafts = read.get("steps") or (max(1, tokens - 1) if tokens else None)
    if method in ("", "none"):
        return Drafts("", assumed, ignored)
    own = method == "eagle" and small is None and not said  # SGLang's word for a model's own further layer too
    if "mtp" in method or "nextn" in method or own:
        word, usual = "mtp", 1 if said else 3
    elif any(head in method for head in _HEADS):
        word, usual = "eagle", 5
    elif any(look in method for look in _LOOKS):
        word, usual = "ngram", 11
    else:
        word, usual = f"draft={small}", 5
    if drafts is None:
        drafts = usual
        assumed.append(f"{drafts} drafts a pass, as {method} is given no number")
    if int(read.get("branches") or 1) > 1:
        ignored.append(f"not modelled: a tree of {read.get('draft_tokens', 'several')} drafts, priced as a chain of {drafts}")
    assumed.append("tokens of a pass as published for such drafts (accepted= in --speculate states them)")
    return Drafts(f"{word},drafts={drafts}", assumed, ignored)
