"""Hugging Face `vision_config` beside a `text_config`: the encoder in front of the decoder, of the types that are known.

Keys and what is in code and in no key as in transformers (`configuration_<type>.py`, `modeling_<type>.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.huggingface.mixtures import LARGEST

_NAMES = {
    "layers": ("num_hidden_layers", "depth"),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads", "num_heads"),
    "ffn": ("intermediate_size",),
    "image": ("image_size",),
    "patch": ("patch_size",),
}

VISION: dict[str, dict[str, Any]] = {
    "llava": {"class_token": True, "pre_norm": True, "post_norm": False},
    "gemma3": {"merge_by": "pool", "projector_bias": False, "patch_bias": True},
    "llama4": {"merge": 2, "projector_bias": False, "class_token": True, "pre_norm": True},
    "qwen2_5_vl": {"frames": 2, "activation": "swiglu", "norm": "rmsnorm", "position": "rope", "image": 1008},
}
"""Outer `model_type` -> what its code fixes."""


def vision_of(config: Mapping[str, Any], hidden: int, assumed: list[str]) -> dict[str, Any] | None:
    """Fields of `model.vision` from the whole config.json, whose decoder is `hidden` wide; None for a type that is not known.

    Raises SpecError for a missing or wrong key.
    """
    kind, inner = config.get("model_type"), config.get("vision_config")
    if not isinstance(kind, str) or kind not in VISION or not isinstance(inner, Mapping):
        return None
    table = dict(VISION[kind])
    for field, names in _NAMES.items():
        value = next((inner[name] for name in names if inner.get(name) is not None), table.get(field))
        table[field] = _positive(f"vision_config.{names[0]}", value)
    side = table["image"] // table["patch"]
    if kind == "llava":
        layer = config.get("vision_feature_layer", -2)
        left_out = -1 - layer if isinstance(layer, int) and not isinstance(layer, bool) and layer < 0 else 0
        if left_out >= table["layers"]:
            raise SpecError(
                "vision_feature_layer", layer, f"one of the encoder's {table['layers']} layers, counted from -1, the last"
            )
        table |= {"layers": table["layers"] - left_out, "projector": (hidden,)}
        assumed.append(f"the encoder's last {left_out} layer(s) do not run (vision_feature_layer)")
    elif kind == "gemma3":
        tokens = _positive("mm_tokens_per_image", config.get("mm_tokens_per_image", 256))
        table["merge"] = max(1, round(side / tokens**0.5))
    elif kind == "llama4":
        table["projector"] = (_positive("vision_config.projector_input_dim", inner.get("projector_input_dim", 4096)),) * 2
    else:
        merge = _positive("vision_config.spatial_merge_size", inner.get("spatial_merge_size", 2))
        window = _positive("vision_config.window_size", inner.get("window_size", 112)) // table["patch"]
        full = inner.get("fullatt_block_indexes") or []
        table |= {"merge": merge, "projector": (table["hidden"] * merge**2,), "window": window**2}
        table["global_every"] = max(1, table["layers"] // len(full)) if isinstance(full, list) and full else 1
        assumed.append("images of 1008 pixels a side: the type takes any size")
    assumed.append("one image in each sequence, whose tokens are part of plan.seq; the encoder is trained (model.vision.frozen)")
    return table


def _positive(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise SpecError(key, Nothing() if value is None else value, f"a whole number from 1 to {LARGEST}")
    return value
