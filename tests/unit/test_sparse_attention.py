"""Sparse and compressed attention and hyper-connections: rows, parameters and caches against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.spec import Job, Model, load_job, load_model
from windtunnel.workload import build
from windtunnel.workload.blocks.layer import layer
from windtunnel.workload.flops import model_flops, parameter_count
from windtunnel.workload.mixer import mixer_of

BASE: dict[str, Any] = {
    "name": "small", "layers": 2, "hidden": 1024, "heads": 8, "ffn": 2048, "vocab": 1000, "max_seq": 65536,
    "activation": "swiglu", "norm": "rmsnorm", "position": "rope", "tied_embeddings": True, "linear_bias": False,
}  # fmt: skip
LATENT = {"q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_dim": 64, "qk_rope_dim": 32, "v_dim": 64}
SPARSE = {"sparse_keys": 512, "index_heads": 4, "index_dim": 32}


def job_of(seq: int, **fields: Any) -> Job:
    table = {
        "name": "small", "model": {**BASE, **fields}, "cluster": {"base": "h100-ib", "gpus": 8},
        "plan": {"seq": seq, "micro_batch": 1, "global_batch": 8}, "runtime": {"framework": "megatron-core"},
    }  # fmt: skip
    return load_job(table)


def rows_of(job: Job) -> dict[str, Any]:
    return {op.name: op for unit in layer(job, job.model.kinds[0]) for op in (*unit.forward, *unit.backward)}


def test_keys_that_an_indexer_picks_take_part_in_attention() -> None:
    rows = rows_of(job_of(4096, **LATENT, **SPARSE))
    # A query sees min(position, 512) keys: 512 - 512 x 511 / 8192 in the mean. Heads multiply with the compressed vectors: keys of
    # 128 + 32, values of 128.
    seen = 512 - 512 * 511 / 8192
    assert rows["attention"].flops == pytest.approx(2 * 8 * 4096 * seen * (160 + 128))
    # The indexer scores all keys before a query, 4 heads of 32: 2,048.5 in the mean.
    assert rows["index scores"].flops == pytest.approx(2 * 4096 * 2048 * 4 * 32, rel=1e-3)
    assert (rows["index queries"].n, rows["index queries"].k) == (4 * 32, 256)
    assert (rows["index keys"].n, rows["index weights"].n) == (32, 4)
    assert rows["choice of keys"].bytes == pytest.approx(4 * 4096 * 2048.5)


def test_short_sequences_are_seen_whole() -> None:
    short, dense = (rows_of(job_of(512, **LATENT, **fields)) for fields in (SPARSE, {}))
    assert "index scores" not in short and "index keys" in short and "index keys" not in dense
    assert short["attention"] == dense["attention"]


def test_parameters_of_the_indexer() -> None:
    sparse, dense = (parameter_count(Model(**BASE, **LATENT, **fields)) for fields in (SPARSE, {}))
    assert sparse - dense == 2 * (256 * 4 * 32 + 1024 * 32 + 1024 * 4)


def test_flops_of_the_model() -> None:
    job = job_of(4096, **LATENT, **SPARSE)
    dense = job_of(512, **LATENT)
    # a token: matrices as in the dense model and those of the indexer, twice forward and four times backward
    tokens, indexer = 8 * 4096, 256 * 4 * 32 + 1024 * 32 + 1024 * 4
    plain = model_flops(dense) / (8 * 512) - 6 * 2 * 8 * (96 + 64) * 512
    score = 6 * 8 * (160 + 128) * 512 + 2 * 4 * 32 * (4096 + 2 * 512)
    assert model_flops(job) / tokens == pytest.approx(plain + 6 * 2 * indexer + 2 * score)


def test_only_layers_of_the_pattern_pick_keys() -> None:
    model = Model(**BASE, kv_heads=2, window_pattern="GL", **SPARSE)
    assert [kind.local for kind in model.kinds] == [False, True]
    far, near = (mixer_of(kind.mixer).mixing(model, 1, kind.local) for kind in model.kinds)
    assert (far.most, near.most, near.keeps_all) == (None, 512, True)
    # a cached key of the indexer: 32 numbers of 8 bits, with a quarter of a scale of 32 bits
    assert (far.index, near.index) == (0.0, 33.0)
    assert near.read_tokens(10_000.0, 4) == 2048 and far.read_tokens(10_000.0, 4) == 10_000


def test_a_window_still_keeps_its_tokens_alone() -> None:
    model = Model(**BASE, window=128)
    mixing = mixer_of(model.kinds[0].mixer).mixing(model, 1, True)
    assert not mixing.keeps_all and mixing.read_tokens(10_000.0, 4) == 512 and mixing.seen_pairs(10_000.0, 50) == 6400


COMPRESSED = {
    "kv_heads": 1, "head_dim": 128, "q_lora_rank": 256, "qk_rope_dim": 32, "mixer_pattern": "HC", "compress": 4,
    "compress_heavy": 128, "window": 128, "sparse_keys": 256, "index_heads": 4, "index_dim": 32, "o_groups": 2, "o_lora_rank": 64,
}  # fmt: skip


def test_compressed_attention() -> None:
    job = job_of(8192, **COMPRESSED)
    heavy, light = ({op.name: op for unit in layer(job, kind) for op in unit.forward} for kind in job.model.kinds)
    near = 128 - 128 * 127 / 16384
    # heavy: (8192 + 1) / 2 / 128 entries in the mean; light: of 2,048 entries 256 at most; both see the last 128 tokens as well
    assert heavy["attention"].flops == pytest.approx(2 * 8 * 8192 * (8193 / 2 / 128 + near) * 256)
    assert light["attention"].flops == pytest.approx(2 * 8 * 8192 * (256 - 256 * 255 / 4096 + near) * 256)
    assert "index scores" not in heavy and light["index scores"].flops == pytest.approx(2 * 8192 * 1024 * 4 * 32, rel=1e-3)
    assert (heavy["compressor"].n, light["compressor"].n) == (2 * 128, 4 * 128)
    assert light["attention out groups"].flops == 2 * 8192 * 8 * 128 * 64


def test_cache_of_compressed_attention() -> None:
    model = Model(**BASE, **COMPRESSED)
    heavy, light = (mixer_of(kind.mixer).mixing(model, 1, kind.local) for kind in model.kinds)
    # 100,000 tokens of 2 requests: 781.25 heavy entries, of 25,000 light ones 256 each; and 128 tokens each
    assert heavy.read_tokens(100_000.0, 2) == 781.25 + 256 and light.read_tokens(100_000.0, 2) == 512 + 256
    assert heavy.keeps_all and (heavy.cache, heavy.stride, light.stride) == (128.0, 128, 4)
    assert light.index == 33.0 / 4 and heavy.index == 0.0


def test_streams_are_mixed_around_each_sub_module() -> None:
    job = job_of(1024, residual_streams=4)
    units = layer(job, job.model.kinds[0])
    mixes = [unit for unit in units if unit.name == "stream mix"]
    # 24 numbers a token from 4 x 1024; kept: 4 streams in 16 bits
    assert len(mixes) == 2 and mixes[0].parameters == 24 * 4096 + 27 and mixes[0].saved == 4 * 1024 * 1024 * 2
    add = next(op for unit in units for op in unit.forward if op.name == "add1")
    assert add.bytes == 1024 * 1024 * 2 * 9  # reads four streams and an output, writes four streams
    assert parameter_count(job.model) - parameter_count(Model(**BASE)) == 2 * 2 * (24 * 4096 + 27)


@pytest.mark.parametrize("name", ["deepseek-v4-pro", "deepseek-v4-flash"])
def test_deepseek_v4_keeps_a_fortieth_of_its_tokens(name: str) -> None:
    """DeepSeek-V4's report: at a million tokens the cache is 2 % of that of grouped queries with 8 heads of 128 in 16 bits."""
    model = load_model(name)
    kept = sum(
        count * (m.cache * 2 / m.stride)
        for kind, count in model.kind_counts.items()
        for m in (mixer_of(kind.mixer).mixing(model, 1, False),)
    )
    assert 0.015 < kept / (model.layers * 2 * 8 * 128 * 2) < 0.04


def test_the_whole_graph_is_built() -> None:
    assert build(job_of(8192, **COMPRESSED, residual_streams=4)).ops.flops.min() >= 0.0


def test_compressed_attention_recomputes_its_up_projection() -> None:
    model = load_model("deepseek-v4-flash").model_dump(exclude_none=True) | {"layers": 2, "mixer_pattern": "CC", "mtp_layers": 0}
    fields = {name: value for name, value in model.items() if name not in ("layer_pattern", "dense_layers")}
    units = layer(job_of(4096, **fields), Model(**fields).kinds[0])
    named = {unit.name: unit for unit in units}
    again = [name for name, unit in named.items() if "mla_up_proj" in unit.parts]
    assert again == ["q norm", "q up", "kv norm", "rope"]
    tokens, heads, dim = 4096, 64, 512
    assert named["attention core"].gives["mla_up_proj"] == 2 * tokens * (heads + 1) * dim  # queries, and the one key of all heads
    assert named["q up"].gives["mla_up_proj"] == 2 * tokens * 1024  # its input
