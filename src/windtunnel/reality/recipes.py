"""What NVIDIA's public performance recipes set for mixtures, by container, GPU generation and precision: tables leave it blank.

Megatron-Bridge `scripts/performance/configs` (NeMo `recommended_model_configs` before it), read 2026-11. The rules read the job's
shape, never its name: what a recipe sets for one model and not for another is put down to what tells the two apart.
"""

from __future__ import annotations

from typing import Any

from windtunnel.spec import Cluster, Model

Version = tuple[int, int]
PARTIAL = ("attn", "moe_router", "moe_preprocess")
"""Scope of Transformer Engine's graphs around dropless experts."""

HYBRID = ("attn", "mamba", "moe_router", "moe_preprocess")
"""The same in hybrids (nemotron_3_workload_base_configs.py)."""

OVERLAPPED = (26, 6)
"""Container (26.06) since which MXFP8 recipes run one graph an iteration, experts without a host wait in fused kernels, and
overlapped calls."""


def recomputed(model: Model, cluster: Cluster) -> tuple[str, ...]:
    """Modules that the recipes of hybrids recompute; empty where they leave it to memory.

    nemotron_3_workload_base_configs.py: moe, layernorm and core_attn (moe_act is part of moe) on H100 and with narrow experts.
    """
    hybrid = model.experts is not None and any(kind.mixer == "mamba" for kind in model.kinds)
    if not hybrid or not (cluster.node.gpu.architecture == "hopper" or model.moe_latent):
        return ()
    return ("core_attn", "layernorm", "moe")


def mixture_recipe(version: Version, precision: str, model: Model, cluster: Cluster, ep: int, vpp: int,
                   drops: bool) -> dict[str, Any]:
    """Fields of the runtime for a NeMo or Megatron-Bridge recipe with experts; `drops`: a token-drop recipe, padded to the mean."""
    fields: dict[str, Any] = {}
    if drops:  # static shapes: Blackwell's recipes of 25.09 say cuda_graphs, Hopper's do not
        fields = {"moe_capacity": 1.0, "moe_pad_to_capacity": True, "moe_dispatch": "alltoall"}
        return fields | ({"launch": "cuda_graph"} if cluster.node.gpu.architecture == "blackwell" else {})
    hybrid = any(kind.mixer == "mamba" for kind in model.kinds)
    if cluster.node.gpu.architecture == "blackwell":
        fields["moe_dispatch"] = "hybridep" if version >= (25, 11) else "deepep"
        if hybrid:  # graphs of modules throughout; with narrow experts (Nemotron 3 Super) of the mixers alone
            return fields | {"graph_scope": HYBRID[:2] if model.moe_latent else HYBRID}
        if version >= OVERLAPPED and precision in ("mxfp8", "nvfp4"):
            return fields | {"launch": "cuda_graph", "moe_host_wait": False, "moe_fused_mlp": True, "moe_a2a_overlap": ep > 1}
        if version >= (25, 11) and not model.linear_bias:  # biased experts (GPT-OSS) run eager
            fields["graph_scope"] = PARTIAL
        return fields
    across = ep > cluster.node.domain
    overlap = across and vpp > 1
    flexible = model.router_groups > 1 or version >= (26, 4) and not overlap
    fields["moe_dispatch"] = ("hybridep" if version >= (26, 2) else "deepep") if flexible else "alltoall"
    if hybrid:
        fields["graph_scope"] = ("mamba",) if precision == "fp8" else HYBRID[:2]
    fields["moe_a2a_overlap"] = overlap and (model.router_groups == 1 or version < (26, 2))
    if fields["moe_a2a_overlap"]:
        fields["overlap_tp"] = False
    return fields
