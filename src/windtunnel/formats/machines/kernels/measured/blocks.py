"""Experts, dense layers of a module, and recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.formats.machines.kernels.measured.cells import (
    FORMATS,
    MILLI,
    RECIPES,
    Cells,
    Converted,
    formats_of,
    kernel_columns,
    module_columns,
)

UNGATED = ("nongated",)
"""Words of kernels' names whose experts have no gate."""


def convert_experts(cells: Cells) -> list[Converted]:
    """Fused experts of one rank: permutation, both products, activation, un-permutation; without all-to-all. `tokens` are those
    that all ranks of `ep` have together."""
    known, ignored = cells.known_rows("moe_dtype", FORMATS, "experts in")
    words = known.words("moe_dtype")
    shape: dict[str, Any] = {
        "distribution": known.words("distribution"),
        "ep": known.read_whole("moe_ep_size"),
        "expert_ffn": known.read_whole("inter_size"),
        "experts": known.read_whole("num_experts"),
        "gated": np.array([int(not any(word in name for word in UNGATED)) for name in known.words("kernel_source")], np.int64),
        "hidden": known.read_whole("hidden_size"),
        "recipe": np.array([RECIPES.get(word, "") for word in words], np.object_),
        "tokens": known.read_whole("num_tokens"),
        "top_k": known.read_whole("topk"),
        "tp": known.read_whole("moe_tp_size"),
    }
    if "num_slots" in known.table.column_names:
        shape["slots"] = known.read_whole("num_slots")
        shape["own_tokens"] = known.read_whole("rank0_num_tokens")
    name = str(known.words("op_name")[0]) if len(known) else "moe"
    return [Converted(module_columns(known, "moe", name, shape, dtype=formats_of(words)), len(known), ignored)]


def convert_dense(cells: Cells) -> list[Converted]:
    """The dense feed-forward layer of a model with experts."""
    import pyarrow as pa

    known, ignored = cells.known_rows("quant_type", FORMATS, "layers in")
    took = pa.array(known.positive("avg_ms", MILLI) / MILLI)
    timed = Cells(known.table.append_column("latency", took), known.where)
    words = timed.words("quant_type")
    shape = {
        "ffn": timed.read_whole("intermediate_size"),
        "hidden": timed.read_whole("hidden_size"),
        "recipe": formats_of(words, RECIPES),
        "tokens": timed.read_whole("num_token"),
    }
    return [Converted(module_columns(timed, "mlp", "mlp", shape, dtype=formats_of(words)), len(timed), ignored)]


def convert_scan(cells: Cells) -> list[Converted]:
    """Recurrences: batch = sequences x value heads, m tokens of a sequence, n and k sizes of a value and a key; convolutions
    before them: batch = sequences, m tokens, n channels, k their width."""
    names, phase = cells.words("kernel_source"), cells.words("phase")
    sequences = cells.read_whole("batch_size")
    length = np.where(phase == "generation", 1, cells.read_whole("seq_len"))
    short = np.array(["conv1d" in name for name in names], np.bool_)
    if "head_k_dim" in cells.table.column_names:
        keys, values = cells.read_whole("num_k_heads"), cells.read_whole("num_v_heads")
        key, value = cells.read_whole("head_k_dim"), cells.read_whole("head_v_dim")
        channels = 2 * keys * key + values * value
    else:
        values, value = cells.read_whole("nheads"), cells.read_whole("head_dim")
        keys, key = cells.read_whole("n_groups"), cells.read_whole("d_state")
        channels = values * value + 2 * keys * key
    full = np.array([f"{name} {when}" for name, when in zip(names, phase, strict=True)], np.object_)
    shared = np.maximum(values // np.maximum(keys, 1), 1)
    columns = kernel_columns(
        cells, "scan", full, dtype=np.full(len(cells), "bf16", np.object_),
        batch=np.where(short, sequences, sequences * values), m=length, n=np.where(short, channels, value),
        k=np.where(short, cells.read_whole("d_conv"), key), heads_per_kv=np.where(short, 1, shared),
        model=np.array([name.rsplit("/", 1)[-1] for name in cells.words("model_name")], np.object_),
    )  # fmt: skip
    return [Converted(columns, len(cells))]
