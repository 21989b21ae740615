"""Calculon's model, execution and system files (JSON).

Names and meanings: `calculon/llm/llm.py` and `calculon/system.py`. Its models have no embedding: the vocabulary is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.several import Simulator, even_stages, plan_of, table_importer
from windtunnel.formats.jobs.simulators.machine import MachineRates, cluster_of, number
from windtunnel.spec import Cluster, Model, Plan, Runtime, load_model, load_runtime

_VOCABULARY = 51200
_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8": "fp8"}
_RECOMPUTE = {"none": "none", "full": "full", "attn_only": "selective"}
_MODEL = {"hidden", "attn_heads", "num_blocks"}
_EXECUTION = {"tensor_par", "pipeline_par", "microbatch_size"}
_SYSTEM = {"matrix", "mem1", "networks"}


def part(table: Mapping[str, Any]) -> str:
    """Which of Calculon's files a table is."""
    keys = set(table)
    return "model" if keys >= _MODEL else "plan" if keys >= _EXECUTION else "system" if keys >= _SYSTEM else ""


def _model(keys: Keys, stated: Stated, assumed: list[str]) -> Model:
    hidden, layers = keys.required_count("hidden"), keys.required_count("num_blocks")
    vocab = stated.whole_number("model.vocab")
    if vocab is None:
        vocab = _VOCABULARY
        assumed.append(f"vocabulary {vocab}: Calculon's models have no embedding and no output layer")
    return load_model(
        {
            "name": keys.text("name") or f"calculon-{hidden}x{layers}",
            "layers": layers,
            "hidden": hidden,
            "heads": keys.required_count("attn_heads"),
            "head_dim": keys.count("attn_size") or max(1, hidden // keys.required_count("attn_heads")),
            "ffn": keys.count("feedforward") or 4 * hidden,
            "vocab": vocab,
            "max_seq": keys.count("seq_size") or 2048,
            "dropout": True,
            "source": "Calculon configuration",
        }
    )


def _plan(keys: Keys, model: Model, gpus: int | None, stated: Stated, assumed: list[str]) -> tuple[Plan, Runtime]:
    tp, pp = (
        stated.whole_number(f"plan.{ours}") or keys.required_count(name)
        for ours, name in (("tp", "tensor_par"), ("pp", "pipeline_par"))
    )
    dp, vpp = keys.count("data_par"), keys.count("pipeline_interleaving") or 1
    if gpus is not None and (dp is None or tp * pp * dp != gpus):
        dp = None
    recompute = keys.text("activation_recompute") or "none"
    comm, overlap = keys.text("tensor_par_comm_type") or "ar", keys.text("tensor_par_overlap") or "none"
    for name, value, known in (
        ("activation_recompute", recompute, tuple(_RECOMPUTE)),
        ("tensor_par_comm_type", comm, ("ar", "p2p_rs_ag", "rs_ag")),
        ("tensor_par_overlap", overlap, ("none", "ring", "pipe")),
    ):
        if value not in known:
            raise SpecError(name, value, ", ".join(known))
    if keys.text("attention_type") not in (None, "multihead"):
        raise SpecError("attention_type", keys.text("attention_type"), "multihead", "Or change model.kv_heads with --set.")
    if keys.get("training") is False:
        raise SpecError("training", False, "true: inference is not modelled")
    offload = {name: keys.flag(f"{name}_offload") for name in ("weight", "activations", "optimizer")}
    plan = plan_of(
        {
            "tp": tp,
            "pp": pp,
            "dp": dp,
            "vpp": vpp,
            "stages": even_stages(model.layers, pp * vpp, assumed),
            "micro_batch": stated.whole_number("plan.micro_batch") or keys.required_count("microbatch_size"),
            "global_batch": stated.whole_number("plan.global_batch") or keys.required_count("batch_size"),
            "seq": stated.whole_number("plan.seq") or model.max_seq,
            "sequence_parallel": comm == "rs_ag" and tp > 1,
            "sharding": "zero1" if keys.flag("optimizer_sharding") else "none",
            "recompute": _RECOMPUTE[recompute],
            "offload": {"optimizer": "host" if offload["optimizer"] else "none", "activations": 1 if offload["activations"] else 0},
        }
    )
    if offload["weight"]:
        assumed.append("weights stay on the device: weight_offload is not modelled for this plan")
    dtype = keys.text("datatype") or "float16"
    if dtype not in _DTYPES:
        raise SpecError("datatype", dtype, ", ".join(_DTYPES))
    half = "bf16" if dtype == "float8" else _DTYPES[dtype]
    for name in ("tensor", "pipeline", "data"):  # which of the system's networks an axis uses: our placement decides
        keys.get(f"{name}_par_net")
    runtime = load_runtime(
        "megatron-lm",
        precision=_DTYPES[dtype],
        weight_dtype=half,
        attention="unfused",
        fused_activation=keys.flag("fused_activation"),
        overlap_tp=overlap != "none" and tp > 1,
        overlap_grad_reduce=keys.flag("data_par_overlap"),
    )
    return plan, runtime


def _system(keys: Keys, gpus: int, assumed: list[str]) -> Cluster:
    for name in ("matrix", "vector", "mem1", "mem2", "networks", "processing_mode"):
        keys.get(name)
    networks = keys.table.get("networks")
    if not isinstance(networks, list) or not networks or not all(isinstance(one, Mapping) for one in networks):
        raise SpecError("networks", networks, "a list of networks, the fastest first")
    kinds = keys.table.get("matrix")
    kind = next((name for name in ("float16", "bfloat16") if isinstance(kinds, Mapping) and name in kinds), "float16")
    assumed.append("efficiencies of Calculon's tables are left out: kernels and collectives have their own models")
    far = networks[1] if len(networks) > 1 else networks[0]
    rates = MachineRates(
        "calculon-system",
        number(keys.table, f"matrix.{kind}.tflops") * 1e12,
        number(keys.table, "mem1.GiB") * 2**30,
        number(keys.table, "mem1.GBps") * 1e9,
        int(number(networks[0], "size")),
        number(networks[0], "bandwidth") * 1e9,
        number(far, "bandwidth") * 1e9,
    )
    return cluster_of(rates, gpus, assumed)


READER = Simulator("calculon", part, _model, _plan, _system, lambda keys: keys.count("num_procs"))
recognises_table, import_table = table_importer(READER)
