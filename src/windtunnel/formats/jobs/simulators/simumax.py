"""SimuMax's model, strategy and system files (JSON).

Names and defaults: `simumax/core/config.py` (ModelConfig, StrategyConfig, SystemConfig).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.imported import NO_GPUS, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.several import Simulator, even_stages, plan_of, table_importer
from windtunnel.formats.jobs.simulators.machine import MachineRates, cluster_of, number
from windtunnel.spec import Cluster, Model, Plan, Runtime, load_model, load_runtime

_MODEL = {"layer_num", "head_num", "hidden_size"}
_STRATEGY = {"tp_size", "pp_size", "micro_batch_size"}
_SYSTEM = {"accelerator", "networks"}
_RECOMPUTE = {"full_block": "full", "selective_recompute": "selective", "attn_only": "selective", "sdp_only": "selective"}


def part(table: Mapping[str, Any]) -> str:
    """Which of SimuMax's files a table is."""
    keys = set(table)
    return "model" if keys >= _MODEL else "plan" if keys >= _STRATEGY else "system" if keys >= _SYSTEM else ""


def _model(keys: Keys, stated: Stated, assumed: list[str]) -> Model:
    hidden, layers, swiglu = keys.required_count("hidden_size"), keys.required_count("layer_num"), keys.flag("use_swiglu")
    experts, dense = keys.count("expert_num") or 1, min(layers, keys.whole_number("dense_layers") or 0)
    table: dict[str, Any] = {
        "name": keys.text("model_name") or f"simumax-{hidden}x{layers}",
        "layers": layers,
        "hidden": hidden,
        "heads": keys.required_count("head_num"),
        "kv_heads": keys.count("kv_head_num"),
        "head_dim": keys.count("head_size"),
        "ffn": keys.required_count("intermediate_size"),
        "vocab": stated.whole_number("model.vocab") or keys.required_count("vocab_size"),
        "max_seq": 2**20,
        "activation": "swiglu" if swiglu else "gelu",
        "norm": "rmsnorm",
        "position": "rope",
        "linear_bias": False,
        "tied_embeddings": False,
        "source": "SimuMax configuration",
    }
    keys.get("model_type")
    keys.get("attention_type")
    if experts > 1:
        table |= {
            "experts": experts,
            "top_k": keys.count("topk") or 1,
            "expert_ffn": keys.count("moe_ffn_hidden_size"),
            "shared_ffn": keys.whole_number("moe_shared_expert_intermediate_size") or 0,
            "layer_pattern": f"D{dense}E{layers - dense}" if 0 < dense < layers else None,
        }
    if keys.text("attention_type") == "mla":
        table |= {
            "kv_lora_rank": keys.count("kv_lora_rank"),
            "q_lora_rank": keys.count("q_lora_rank"),
            "qk_nope_dim": keys.count("qk_head_dim"),
            "qk_rope_dim": keys.count("qk_pos_emb_head_dim"),
            "v_dim": keys.count("v_head_dim"),
        }
    return load_model({key: value for key, value in table.items() if value is not None})


def _plan(keys: Keys, model: Model, gpus: int | None, stated: Stated, assumed: list[str]) -> tuple[Plan, Runtime]:
    def degree(name: str, field: str) -> int:
        return stated.whole_number(f"plan.{field}") or keys.count(name) or 1

    tp, pp, cp, ep = degree("tp_size", "tp"), degree("pp_size", "pp"), degree("cp_size", "cp"), degree("ep_size", "ep")
    vpp, etp = degree("interleaving_size", "vpp"), degree("etp_size", "etp")
    sequence = keys.get("enable_sequence_parallel") is not False
    if gpus is None:
        raise SpecError("world_size", Nothing(), "a whole number of 1 or more", NO_GPUS)
    if gpus % (tp * pp * cp):
        raise SpecError("world_size", gpus, f"a multiple of tp_size x pp_size x cp_size = {tp * pp * cp}")
    dp = gpus // (tp * pp * cp)
    if ep > 1 and not model.experts:
        assumed.append(f"no expert parallelism: the model has no experts (ep_size {ep})")
        ep = 1
    micro = stated.whole_number("plan.micro_batch") or keys.required_count("micro_batch_size")
    zero = keys.whole_number("zero_state") or 0
    if zero not in (0, 1, 2, 3):
        raise SpecError("zero_state", zero, "0, 1, 2 or 3")
    plan = plan_of(
        {
            "tp": tp,
            "pp": pp,
            "cp": cp,
            "dp": dp,
            "vpp": vpp,
            "ep": ep,
            "etp": etp if model.experts else 1,
            "stages": even_stages(model.layers, pp * vpp, assumed),
            "micro_batch": micro,
            "global_batch": stated.whole_number("plan.global_batch") or micro * (keys.count("micro_batch_num") or 1) * dp,
            "seq": stated.whole_number("plan.seq") or keys.required_count("seq_len"),
            "sequence_parallel": tp > 1 and sequence,
            "sharding": f"zero{zero}" if zero else "none",
            **_recompute(keys, -(-model.layers // (pp * vpp)), assumed),
        }
    )
    dtype = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}.get(keys.text("dtype") or "bf16", "bf16")
    policy = keys.text("moe_dispatcher_policy") or "all2all"
    fields: dict[str, Any] = {
        "precision": "fp8" if keys.flag("fp8") else dtype,
        "weight_dtype": dtype,
        "attention": "unfused" if keys.flag("use_math_sdp") else "flash",
        "fused_norm": keys.get("use_fused_norm") is not False,
        "fused_activation": keys.get("use_fused_swiglu") is not False,
        "gradient_dtype": "fp32" if keys.get("use_fp32_accum_grad") is not False else dtype,
        "moe_dispatch": "alltoall" if "all2all" in policy else "allgather",
    }
    for name in ("enable_dropout", "use_flash_sdp", "mem_factor", "world_size"):
        keys.get(name)
    return plan, load_runtime("megatron-core", **fields)


def _recompute(keys: Keys, layers: int, assumed: list[str]) -> dict[str, Any]:
    """`recompute_layer_num` layers of a stage, in full or their attention."""
    name, count = keys.text("recompute_granularity"), keys.whole_number("recompute_layer_num")
    if not keys.flag("enable_recompute") or name is None:
        if keys.get("enable_recompute"):
            assumed.append("no recompute: enable_recompute without recompute_granularity recomputes nothing")
        return {"recompute": "none"}
    if name not in _RECOMPUTE:
        raise SpecError("recompute_granularity", name, ", ".join(_RECOMPUTE))
    fields: dict[str, Any] = {"recompute": _RECOMPUTE[name]}
    if fields["recompute"] == "full" and count is not None and 0 <= count < layers:
        fields["recompute_layers"] = count
    return fields


def _system(keys: Keys, gpus: int, assumed: list[str]) -> Cluster:
    for name in ("accelerator", "networks", "num_per_node", "sys_name"):
        keys.get(name)
    networks = keys.table.get("networks")
    if not isinstance(networks, Mapping):
        raise SpecError(
            "networks", Nothing() if networks is None else networks, "an object with intra_node and inter_node networks"
        )
    near = next((name for name in networks if str(name).startswith(("intra_node", "high_intra", "low_intra"))), "intra_node")
    far = "inter_node" if "inter_node" in networks else near
    op = "matmul" if isinstance(keys.get("accelerator.op.matmul"), Mapping) else "default"
    fp8 = keys.get("accelerator.op.fp8_matmul.tflops")
    assumed.append("efficiencies of SimuMax's tables are left out: kernels and collectives have their own models")
    rates = MachineRates(
        keys.text("sys_name") or "simumax-system",
        number(keys.table, f"accelerator.op.{op}.tflops") * 1e12,
        number(keys.table, "accelerator.mem_gbs") * 2**30,
        number(keys.table, "accelerator.bandwidth.default.gbps") * 1e9,
        int(number(keys.table, "num_per_node")),
        number(keys.table, f"networks.{near}.bandwidth.gbps") * 1e9,
        number(keys.table, f"networks.{far}.bandwidth.gbps") * 1e9,
        float(fp8) * 1e12 if isinstance(fp8, (int, float)) and not isinstance(fp8, bool) else None,
    )
    return cluster_of(rates, gpus, assumed)


READER = Simulator("simumax", part, _model, _plan, _system, lambda keys: keys.count("world_size"))
recognises_table, import_table = table_importer(READER)
