"""How each Hugging Face `model_type` spells its dimensions, and what its architecture fixes: `families.toml`, read once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """One `model_type`.

    `keys` maps our field to the source's spellings, first one present wins; `fixed` are fields that the architecture decides;
    `defaults` stand for keys that are left out; `gated` says that the MLP has a gate projection; `notes` are told to the user as
    assumptions. `period` says that every so many layers see all tokens where there is a window; `window_off` that the window is
    off unless `use_sliding_window` is true; `rewrite` names the function of `rewrites.py` that turns keys of a type's own make into
    the common ones; `hybrid` says that layers differ in kind, which `hybrids.py` reads.
    """

    fixed: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gated: bool = True
    notes: tuple[str, ...] = ()
    period: int | None = None
    window_off: bool = False
    rewrite: str | None = None
    hybrid: bool = False


def _read_family(table: Mapping[str, Any], spellings: Mapping[str, Mapping[str, list[str]]]) -> Family:
    """A type's table; `spelled` names spellings that it shares with others, and its own `keys` win over them."""
    given = dict(table)
    keys: dict[str, list[str]] = {}
    for name in given.pop("spelled", ()):
        keys |= spellings[name]
    keys |= given.pop("keys", {})
    notes = tuple(given.pop("notes", ()))
    return Family(keys={name: tuple(words) for name, words in keys.items()}, notes=notes, **given)


_TABLE = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))

ACTIVATIONS: dict[str, str] = _TABLE["activations"]
"""Activation of a config.json -> ours."""

COMMON_KEYS: dict[str, tuple[str, ...]] = {name: tuple(words) for name, words in _TABLE["common"].items()}
"""Our field -> spellings that any type may use."""

FAMILIES: dict[str, Family] = {
    name: _read_family(_TABLE["types"][table.get("same_as", name)], _TABLE["spellings"]) for name, table in _TABLE["types"].items()
}
"""`model_type` -> its family."""

UNKNOWN = _read_family(_TABLE["unknown"], _TABLE["spellings"])
"""What a type that is not known is taken for: a decoder as Llama's, or a mixture as DeepSeek's where it has keys of experts."""

UNKNOWN_WITH_LAYERNORM = _read_family(_TABLE["unknown_with_layernorm"], _TABLE["spellings"])
"""The same where the file has a constant of LayerNorm and none of RMS norm: a decoder as GPT-2 or GPT-NeoX."""

NOT_DECODERS: dict[str, str] = {name: why for why, names in _TABLE["not_decoders"].items() for name in names}
"""Types that are known and not modelled, with what they have that is missing here."""

OF_CONFIG: dict[str, Any] = _TABLE["config"]
"""What a config.json has beside the spellings of a type."""

EXPERT_KEYS: list[str] = OF_CONFIG["expert_keys"]
"""Keys of experts, latent attention and scans, which a dense type does not have."""
