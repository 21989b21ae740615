"""What NVIDIA's public performance recipes set for mixtures, by container, GPU generation and precision: tables leave it blank.

Megatron-Bridge `scripts/performance/configs` (NeMo `recommended_model_configs` before it), read 2026-11. The rules read the job's
shape, never its name: what a recipe sets for one model and not for another is put down to what tells the two apart.
"""

from __future__ import annotations

from typing import Any

from windtunnel.reality.rows import TrainingRow
from windtunnel.spec import Cluster, Model

Version = tuple[int, int]
PARTIAL = ("attn", "moe_router", "moe_preprocess")
"""Scope of Transformer Engine's graphs around dropless experts."""

OVERLAPPED = (26, 6)
"""Container (26.06) since which MXFP8 recipes run one graph an iteration, experts without a host wait in fused kernels, and
overlapped calls."""


def mixture_recipe(row: TrainingRow, version: Version, model: Model, cluster: Cluster) -> dict[str, Any]:
    """Fields of the runtime for a row of a NeMo or Megatron-Bridge recipe with experts."""
    fields: dict[str, Any] = {}
    ep, vpp = row.ep or 1, row.vpp or 1
    pairs = ep > 1 and (vpp > 1 or (row.pp or 1) == 1) and row.recompute != "full"
    blackwell = cluster.node.gpu.architecture == "blackwell"
    if "tokendrop" in (row.notes or "").lower():  # padded to the mean: static shapes, so that 25.09's Blackwell recipes have graphs
        fields = {"moe_capacity": 1.0, "moe_pad_to_capacity": True, "moe_dispatch": "alltoall"}
        return fields | ({"launch": "cuda_graph"} if blackwell else {})
    if blackwell:
        fields["moe_dispatch"] = "hybridep" if version >= (25, 11) else "deepep"
        if version >= OVERLAPPED and row.precision == "mxfp8":
            return fields | {"launch": "cuda_graph", "moe_host_wait": False, "moe_fused_mlp": True, "moe_a2a_overlap": pairs}
        if version >= (25, 11) and not model.linear_bias:  # biased experts (GPT-OSS) run eager
            fields["graph_scope"] = PARTIAL
        return fields
    overlap = pairs and vpp > 1 and ep > cluster.node.domain and version >= (25, 11)
    flexible = model.router_groups > 1 or version >= (26, 4) and not overlap
    fields["moe_dispatch"] = ("hybridep" if version >= (26, 2) else "deepep") if flexible else "alltoall"
    if overlap and (model.router_groups == 1 or version < (26, 2)):
        fields |= {"moe_a2a_overlap": True, "overlap_tp": False}
    return fields
