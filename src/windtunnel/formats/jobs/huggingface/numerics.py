"""Keys of a config.json that change a network's numbers and no second. A value of another kind than usual is left unread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = {
    "rope_base": ("rope_theta", "rotary_emb_base", "rope_base"),
    "rope_fraction": ("partial_rotary_factor", "rotary_pct", "rope_pct"),
    "norm_eps": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "norm_eps"),
    "init_std": ("initializer_range", "init_std"),
    "router_scale": ("routed_scaling_factor", "moe_router_topk_scaling_factor"),
    "aux_loss": ("router_aux_loss_coef", "aux_loss_alpha"),
    "z_loss": ("router_z_loss_coef",),
}
"""Spellings of a number, by the field of `Numerics`."""
_ROPE = ("rope_parameters", "rope_scaling", "attn_config")
"""Tables of the rotary embedding: today's, that of releases before 5.0, which holds the scaling alone, and DBRX's."""
_SCALINGS = ("linear", "dynamic", "yarn", "llama3", "longrope", "mrope")


def read_numerics(config: Mapping[str, Any], used: set[str]) -> dict[str, Any]:
    """The fields of `Numerics` that `config` states; the keys that were understood join `used`."""
    found: dict[str, Any] = {}
    for field, keys in _KEYS.items():
        for key in keys:
            least = 0.0 if field in ("aux_loss", "z_loss") else 1e-30
            if _is_number(config.get(key)) and least <= config[key] <= (1.0 if field == "rope_fraction" else 1e30):
                found.setdefault(field, float(config[key]))
                used.add(key)
    if isinstance(config.get("norm_topk_prob"), bool):
        found["router_normalised"] = config["norm_topk_prob"]
        used.add("norm_topk_prob")
    for name in _ROPE:
        if isinstance(table := config.get(name), Mapping) and not any(isinstance(value, Mapping) for value in table.values()):
            _read_rope(table, found)
            used.add(name)
        elif name in config and config[name] is None:
            used.add(name)
    return found


def _read_rope(table: Mapping[str, Any], found: dict[str, Any]) -> None:
    if _is_number(table.get("rope_theta")) and 1e-30 <= table["rope_theta"] <= 1e30:
        found.setdefault("rope_base", float(table["rope_theta"]))
    if _is_number(table.get("partial_rotary_factor")) and 0.0 < table["partial_rotary_factor"] <= 1.0:
        found.setdefault("rope_fraction", float(table["partial_rotary_factor"]))
    kind = table.get("rope_type") or table.get("type")
    if kind in _SCALINGS:
        found["rope_scaling"] = kind
        if _is_number(table.get("factor")) and 1e-30 <= table["factor"] <= 1e30:
            found["rope_scaling_factor"] = float(table["factor"])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
