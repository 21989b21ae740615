"""Attention over prompts and over the cache: of heads, latent, of encoders, and as modules with their projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.formats.machines.kernels.measured.cells import (
    FORMATS,
    RECIPES,
    Cells,
    Converted,
    Words,
    formats_of,
    kernel_columns,
    module_columns,
    visible_pairs,
)
from windtunnel.records.work import ELEMENT

LIBRARIES = ("fa2", "fa3", "fa4")
"""Words of kernels' names that say the library of `records`."""

ROPE, LATENT, NOPE, VALUE = 64, 512, 128, 128
"""Sizes of DeepSeek-V3's latent attention, of which the tables are: a cached token has a latent and a rotary key."""


def convert_prefill(cells: Cells) -> list[Converted]:
    """Causal attention over whole prompts. Rows that write a cache of another format are left out."""
    known, ignored = cells.known_rows("attn_dtype", FORMATS, "attention in")
    same = np.asarray(known.words("attn_dtype") == known.words("kv_cache_dtype"), np.bool_)
    if not same.all():
        ignored = (*ignored, f"{cells.where}: {int((~same).sum()):,} rows that compute in one format and write a cache of another")
    part = known.take(same)
    rows, keys = part.read_whole("isl"), part.read_whole("isl") + part.read_whole("step")
    dtype = formats_of(part.words("attn_dtype"))
    sequences = part.read_whole("batch_size")
    columns = _attention(part, "prefill", dtype, sequences, rows, keys, part.read_whole("head_dim"))
    return [Converted(columns, len(part), ignored)]


def convert_decode(cells: Cells) -> list[Converted]:
    """One new token of each sequence over its cache; the format is the cache's."""
    known, ignored = cells.known_rows("kv_cache_dtype", FORMATS, "caches in")
    keys = known.read_whole("isl") + known.read_whole("step")
    dtype = formats_of(known.words("kv_cache_dtype"))
    one = np.ones(len(known), np.int64)
    columns = _attention(known, "decode", dtype, known.read_whole("batch_size"), one, keys, known.read_whole("head_dim"))
    return [Converted(columns, len(known), ignored)]


def convert_encoder(cells: Cells) -> list[Converted]:
    """Attention without a mask."""
    known, ignored = cells.known_rows("attn_dtype", FORMATS, "attention in")
    length = known.read_whole("isl")
    dtype = formats_of(known.words("attn_dtype"))
    columns = _attention(
        known,
        "encoder",
        dtype,
        known.read_whole("batch_size"),
        length,
        length,
        known.read_whole("head_dim"),
        causal=False,
        groups=False,
    )
    return [Converted(columns, len(known), ignored)]


def convert_latent_prefill(cells: Cells) -> list[Converted]:
    """Latent attention over prompts, whose keys and values are expanded into heads."""
    known, ignored = cells.known_rows("kv_cache_dtype", {"bfloat16": "bf16"}, "latent prefill with a cache in")
    length = known.read_whole("isl")
    dtype = np.full(len(known), "bf16", np.object_)
    columns = _attention(
        known, "latent_prefill", dtype, known.read_whole("batch_size"), length, length + known.read_whole("step"),
        np.full(len(known), NOPE + ROPE, np.int64), value=VALUE, groups=False,
    )  # fmt: skip
    return [Converted(columns, len(known), ignored)]


def convert_latent_decode(cells: Cells) -> list[Converted]:
    """One new token a sequence over a cache of latents, which all heads share."""
    known, ignored = cells.known_rows("kv_cache_dtype", FORMATS, "caches in")
    dtype = formats_of(known.words("kv_cache_dtype"))
    sequences, heads = known.read_whole("batch_size"), known.read_whole("num_heads")
    keys = (known.read_whole("isl") + known.read_whole("step")).astype(float)
    width = np.array([ELEMENT[name] for name in dtype])
    wide = LATENT + ROPE + LATENT
    moved = sequences * keys * (LATENT + ROPE) * width + 2.0 * sequences * heads * wide
    size = len(known)
    columns = kernel_columns(
        known, "attention", _name_kernels("latent_decode", sequences), dtype=dtype, library=_library(known),
        batch=sequences * heads,
        m=np.ones(size, np.int64), n=keys.astype(np.int64), k=np.full(size, LATENT + ROPE, np.int64),
        v=np.full(size, LATENT, np.int64),
        heads_per_kv=heads, causal=np.ones(size, np.bool_), flops=2.0 * sequences * heads * keys * wide, bytes=moved,
    )  # fmt: skip
    return [Converted(columns, size, ignored)]


def convert_latent_module(cells: Cells) -> list[Converted]:
    """Latent attention with its projections, as one module."""
    formats = {"bfloat16": "bf16", **{word: word for word in RECIPES}}
    known, ignored = cells.known_rows("gemm_type", formats, "modules in")
    words = known.words("gemm_type")
    keys = known.read_whole("isl") + known.read_whole("step")
    shape: dict[str, Any] = {
        "attention": "latent",
        "cache": formats_of(known.words("kv_cache_dtype")),
        "heads": known.read_whole("num_heads"),
        "keys": keys,
        "model": np.array([word.rsplit("/", 1)[-1] for word in known.words("model")], np.object_),
        "recipe": np.array([RECIPES.get(word, "") for word in words], np.object_),
        "sequences": known.read_whole("batch_size"),
    }
    where = "context" if "context" in known.words("op_name")[0] else "decode"
    shape["tokens"] = np.ones(len(known), np.int64) if where == "decode" else known.read_whole("isl")
    columns = module_columns(known, "attention", f"latent_{where}", shape, dtype=formats_of(words))
    return [Converted(columns, len(known), ignored)]


def _attention(
    cells: Cells,
    name: str,
    dtype: Words,
    sequences: Int64s,
    queries: Int64s,
    keys: Int64s,
    head: Int64s,
    *,
    value: int = 0,
    causal: bool = True,
    groups: bool = True,
) -> dict[str, Any]:
    """The columns of attention of heads."""
    size = len(cells)
    heads = cells.read_whole("num_heads")
    shared = np.maximum(heads // np.maximum(cells.read_whole("num_key_value_heads"), 1), 1) if groups else np.ones(size, np.int64)
    window = cells.read_optional("window_size")
    wide = head + (value or head)
    seen = visible_pairs(queries.astype(float), keys.astype(float), causal, window.astype(float))
    read = np.where(window > 0, np.minimum(keys, window + queries), keys).astype(float)
    width = np.array([ELEMENT[one] for one in dtype])
    batch = sequences * heads
    moved = _bytes(batch, queries, read, shared, wide, width)
    more: dict[str, Any] = {"v": np.full(size, value, np.int64)} if value else {}
    windows = np.array([int(one) or None for one in window], np.object_) if window.any() else None
    if windows is not None:
        more["window"] = windows
    return kernel_columns(
        cells, "attention", _name_kernels(name, sequences), dtype=dtype, library=_library(cells),
        batch=batch, m=queries, n=keys, k=head,
        heads_per_kv=shared,
        causal=np.full(size, causal, np.bool_), flops=2.0 * batch * wide * seen, bytes=moved, **more,
    )  # fmt: skip


def _name_kernels(name: str, sequences: Int64s) -> Words:
    """The kernel's name with its sequences: the schema has sequences x heads, and kernels treat the two apart."""
    return np.array([f"{name} of {count}" for count in sequences.tolist()], np.object_)


def _bytes(batch: Int64s, queries: Int64s, read: Floats, shared: Int64s, wide: Int64s, width: Floats) -> Floats:
    """Queries and results in 16 bits, keys and values in the cache's width, each once."""
    return np.asarray(2.0 * batch * queries * wide + batch / shared * read * wide * width, np.float64)


def _library(cells: Cells) -> Words:
    """The library that a kernel's name says, else null."""
    return np.array([next((one for one in LIBRARIES if one in name), None) for name in cells.words("kernel_source")], np.object_)
