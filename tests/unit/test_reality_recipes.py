"""What recipes set for mixtures: by container, GPU generation, precision and shape, never by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from windtunnel.reality.jobs.software import context_of
from windtunnel.reality.rows import publications
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import load_cluster, load_model

PARTIAL = ["attn", "moe_router", "moe_preprocess"]
"""Scope of Transformer Engine's graphs around dropless experts."""


def recipe(version: tuple[int, int], cluster: str, model: str = "qwen3-30b-a3b", **columns: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {field.name: None for field in fields(TrainingRow)}
    row = TrainingRow(**blank | {"id": "T", "family": "f", "framework": "nemo"} | columns)
    context = context_of(row, (2000 + version[0], version[1]), load_model(model), load_cluster(cluster))
    fields_: dict[str, Any] = {}
    for fact in publications.facts_for(context | {"built_framework": "nemo", "built_version": f"{version[0]}.{version[1]:02d}"}):
        fields_ |= fact.runtime
    return fields_


def test_blackwell_by_container_and_precision() -> None:
    before, after = (recipe(version, "gb200-nvl72", precision="mxfp8", ep=8, pp=1) for version in ((26, 4), (26, 6)))
    assert before == {"moe_dispatch": "hybridep", "graph_scope": PARTIAL}
    assert after["launch"] == "cuda_graph" and after["moe_fused_mlp"] and after["moe_a2a_overlap"] and not after["moe_host_wait"]
    assert recipe((26, 6), "gb200-nvl72", precision="bf16", ep=8, pp=1) == before
    assert recipe((25, 9), "gb200-nvl72", precision="fp8", ep=8, pp=1) == {"moe_dispatch": "deepep"}
    assert "graph_scope" not in recipe((26, 4), "gb200-nvl72", "gpt-oss-120b", precision="bf16", ep=64, pp=1)


@pytest.mark.parametrize(
    ("columns", "pairs"),
    [({"pp": 1}, True), ({"pp": 4, "vpp": 4}, True), ({"pp": 4}, False), ({"pp": 1, "recompute": "full"}, False)],
)
def test_calls_overlap_only_where_the_schedule_allows_it(columns: dict[str, Any], pairs: bool) -> None:
    assert recipe((26, 8), "gb200-nvl72", precision="mxfp8", ep=8, **columns)["moe_a2a_overlap"] is pairs


def test_hopper_by_shape() -> None:
    wide = recipe((26, 2), "h100-ib", "qwen3-235b-a22b", precision="fp8", ep=32, pp=8, vpp=4)
    assert wide == {"moe_dispatch": "alltoall", "moe_a2a_overlap": True, "overlap_tp": False}
    assert recipe((26, 4), "h100-ib", precision="fp8", ep=16, pp=1) == {"moe_dispatch": "hybridep"}
    assert recipe((26, 2), "h100-ib", precision="fp8", ep=8, pp=2, vpp=12) == wide
    assert recipe((26, 2), "h100-ib", precision="fp8", ep=8, pp=2) == {"moe_dispatch": "alltoall"}
    grouped = recipe((25, 11), "h100-ib", "deepseek-v3", precision="fp8", ep=64, pp=8, vpp=4)
    assert grouped == {"moe_dispatch": "deepep", "moe_a2a_overlap": True, "overlap_tp": False}


def test_graphs_of_routers_on_hopper() -> None:
    """In bf16, inside a node, without latent attention; the recipes for benchmarks overlap calls too since July 2026."""
    columns = {"precision": "bf16", "ep": 8, "pp": 1}
    graphs = {"moe_dispatch": "hybridep", "graph_scope": ["moe_router", "moe_preprocess"]}
    assert recipe((26, 6), "h100-ib", **columns) == recipe((26, 7), "h100-ib", **columns) == graphs
    benchmark = recipe((26, 7), "h100-ib", notes="canonical performance recipe", **columns)
    assert benchmark == graphs | {"moe_a2a_overlap": True, "overlap_tp": False}
    assert "graph_scope" not in recipe((26, 6), "h100-ib", attention="mla", **columns)


def test_token_drop_is_padded_to_the_mean() -> None:
    columns = {"precision": "fp8", "ep": 8, "pp": 1, "notes": "tokendrop; x"}
    hopper, blackwell = (recipe((25, 9), name, **columns) for name in ("h100-ib", "gb200-nvl72"))
    assert hopper == {"moe_capacity": 1.0, "moe_pad_to_capacity": True, "moe_dispatch": "alltoall"}
    assert blackwell == hopper | {"launch": "cuda_graph"}


def test_hybrids_have_graphs_of_their_mixers() -> None:
    columns = {"precision": "mxfp8", "ep": 8, "pp": 1}
    assert recipe((26, 4), "gb200-nvl72", "nemotron-3-nano-30b-a3b", **columns)["graph_scope"][:2] == ["attn", "mamba"]
    assert len(recipe((26, 4), "gb200-nvl72", "nemotron-3-super-120b-a12b", **columns)["graph_scope"]) == 4
    assert recipe((26, 4), "h100-ib", "nemotron-3-nano-30b-a3b", precision="fp8", ep=8, pp=1)["graph_scope"] == ["mamba"]
