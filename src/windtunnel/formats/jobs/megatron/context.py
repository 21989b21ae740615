"""Megatron-LM's flags of context parallelism and of CUDA graphs."""

from __future__ import annotations

import re
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments

KINDS = ("p2p", "all_gather", "a2a", "a2a+p2p")
SCOPES = ("attn", "mamba", "mlp", "moe", "moe_router", "moe_preprocess")


def context_of(args: Arguments, cp: int) -> dict[str, Any]:
    """Fields of the plan: how ranks exchange keys and values; empty without context parallelism."""
    listed = [word.replace("allgather", "all_gather") for word in args.words_of("cp-comm-type") or ["p2p"]]
    kinds = list(dict.fromkeys(word for entry in listed for word in re.split(r"[,\s]+", entry) if word))
    sizes = args.words_of("hierarchical-context-parallel-sizes") or []
    for kind in kinds:
        if kind not in KINDS:
            raise SpecError("--cp-comm-type", kind, ", ".join(KINDS))
    if cp == 1:
        return {}
    if len(kinds) > 1:
        raise SpecError("--cp-comm-type", " ".join(listed), "one way for all layers", "Write the one that most layers have.")
    fields: dict[str, Any] = {"cp_kind": kinds[0]}
    if kinds[0] == "a2a+p2p":
        if len(sizes) != 2 or not all(size.isdecimal() and int(size[:9]) > 0 for size in sizes):
            raise SpecError(
                "--hierarchical-context-parallel-sizes",
                " ".join(sizes),
                f"two whole numbers whose product is --context-parallel-size = {cp}",
            )
        fields["cp_sizes"] = [int(size[:9]) for size in sizes]
    return fields


def graphs_of(args: Arguments) -> dict[str, Any]:
    """Launch mode: whole CUDA graphs, graphs of some modules, or none."""
    implementation = args.text("cuda-graph-impl")
    if implementation not in (None, "none", "local", "transformer_engine", "full_iteration"):
        raise SpecError("--cuda-graph-impl", implementation, "none, local, transformer_engine, full_iteration")
    old = args.switch("enable-cuda-graph") or args.switch("external-cuda-graph")
    scope = list(dict.fromkeys(word for entry in args.words_of("cuda-graph-scope") or [] for word in entry.split(",") if word))
    if not old and implementation in (None, "none"):
        return {}
    if unknown := [word for word in scope if word not in (*SCOPES, "full", "full_iteration")]:
        raise SpecError("--cuda-graph-scope", unknown[0], ", ".join((*SCOPES, "full_iteration")))
    if not scope or implementation == "full_iteration" or "full" in scope or "full_iteration" in scope:
        return {"launch": "cuda_graph"}
    return {"launch": "eager", "graph_scope": scope}
