"""llm-analysis's model, dtype and GPU files (JSON); degrees and batches are flags of its command line there.

Names: `llm_analysis/config.py` (ModelConfig, GPUConfig, DtypeConfig). Its MLP has two matrices of `ffn_embed_dim`, three where
`mlp_gated_linear_units` is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.several import Simulator, table_importer
from windtunnel.formats.jobs.simulators.machine import MachineRates, cluster_of, number
from windtunnel.spec import Cluster, Model, Plan, Runtime, load_model

_MODEL = {"num_layers", "n_head", "hidden_dim"}
_GPU = {"mem_per_GPU_in_GB", "hbm_bandwidth_in_GB_per_sec"}


def part(table: Mapping[str, Any]) -> str:
    """Which of llm-analysis's files a table is."""
    keys = set(table)
    return "model" if keys >= _MODEL else "system" if keys >= _GPU else ""


def _model(keys: Keys, stated: Stated, assumed: list[str]) -> Model:
    sizes = {name: keys.count(name) for name in ("num_layers", "n_head", "hidden_dim", "vocab_size")}
    if lacking := [name for name, value in sizes.items() if value is None]:
        raise SpecError(lacking[0], Nothing(), "a whole number of 1 or more")
    hidden, gated = sizes["hidden_dim"] or 1, keys.flag("mlp_gated_linear_units")
    experts = keys.count("moe_num_experts") or 1
    llama = "llama" in (keys.text("model_type") or "") or gated
    assumed.append("embedding and output share their weights, as llm-analysis counts them")
    table: dict[str, Any] = {
        "name": keys.text("name") or "llm-analysis-model",
        "layers": sizes["num_layers"],
        "hidden": hidden,
        "heads": sizes["n_head"],
        "kv_heads": keys.count("num_key_value_heads"),
        "ffn": keys.count("ffn_embed_dim") or 4 * hidden * (keys.count("expansion_ratio") or 4) // 4,
        "vocab": stated.whole_number("model.vocab") or sizes["vocab_size"],
        "max_seq": keys.count("max_seq_len") or 2048,
        "activation": "swiglu" if gated else "gelu",
        "norm": "rmsnorm" if llama else "layernorm",
        "position": "rope" if llama else "learned",
        "linear_bias": not llama,
        "source": "llm-analysis configuration",
    }
    if experts > 1:
        table |= {"experts": experts, "top_k": keys.count("moe_top_k") or 1}
    return load_model({key: value for key, value in table.items() if value is not None})


def _plan(keys: Keys, model: Model, gpus: int | None, stated: Stated, assumed: list[str]) -> tuple[Plan, Runtime]:
    raise SpecError("FILE", "a plan", "the model and GPU files of llm-analysis, which has no file of degrees")


def _system(keys: Keys, gpus: int, assumed: list[str]) -> Cluster:
    node = 8  # its bandwidth between nodes is that of a node
    rates = MachineRates(
        keys.text("name") or "llm-analysis-gpu",
        number(keys.table, "peak_fp16_TFLOPS") * 1e12,
        number(keys.table, "mem_per_GPU_in_GB") * 2**30,
        number(keys.table, "hbm_bandwidth_in_GB_per_sec") * 1e9,
        node,
        number(keys.table, "intra_node_bandwidth_in_GB_per_sec") * 1e9,
        number(keys.table, "inter_node_bandwidth_in_GB_per_sec") * 1e9 / node,
    )
    return cluster_of(rates, gpus, assumed)


READER = Simulator("llm-analysis", part, _model, _plan, _system, lambda keys: None)
recognises_table, import_table = table_importer(READER)
