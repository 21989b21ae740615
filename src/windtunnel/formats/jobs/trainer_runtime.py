"""The runtime of a Trainer's configuration: precision and states, attention, loss, optimizer.

transformers `loss/loss_utils.py` (fp32 logits), `modeling_utils.py` (sdpa where the model has it, else eager), `training_args.py`;
Liger-Kernel `transformers/monkey_patch.py` and axolotl `integrations/{liger,cut_cross_entropy}`; TRL `sft_trainer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.formats.jobs.deepspeed.configuration import sharding_fields
from windtunnel.formats.jobs.deepspeed.named_files import precision_of
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.trainer_keys import is_on, optimizer_of
from windtunnel.formats.jobs.trainer_tools import SWIFT, TRL, Tool
from windtunnel.spec import Model, Plan, Runtime, load_runtime

_LIGER = ("use_liger_kernel", "use_liger", "enable_liger_kernel")
_LIGER_PARTS = {
    "fused_rmsnorm": ("liger_rms_norm",),
    "fused_rope": ("liger_rope",),
    "fused_activation": ("liger_glu_activation", "liger_swiglu"),
}
_CUT = "cut_cross_entropy"
_EXPERTS = {"moe_permute_fusion": False, "moe_grouped_gemm": "each", "moe_host_wait": True, "moe_router_dtype": "bf16"}
"""transformers 4 runs experts one after the other, for those that got a token (models/qwen3_moe, mixtral, gpt_oss)."""


def runtime_of(keys: Keys, tool: Tool, model: Model, plan: Plan, file: Mapping[str, Any] | None, assumed: list[str]) -> Runtime:
    """`file`: the DeepSpeed configuration, where there is one."""
    precision = _precision(keys, tool, file or {})
    fields: dict[str, Any] = {"precision": precision, **optimizer_of(keys, assumed)}
    fields |= _attention(keys, model, assumed)
    fields |= _liger(keys)
    fields |= _loss(keys, tool, assumed)
    if model.experts:
        fields |= _EXPERTS
        if (model.attention_sinks or model.clamped_activation) and not is_on(keys, "use_kernels"):
            fields["moe_weights_by_index"] = True
            assumed.append(
                "experts index one tensor of all their weights, as GPT-OSS does in transformers 4: copies and full-size gradients "
                "(--set runtime.moe_weights_by_index=false for kernels of megablocks, use_kernels: true)"
            )
    compiled = is_on(keys, "torch_compile") or str(keys.get("dynamo_config.dynamo_backend") or "no").lower() not in ("no", "none")
    deepspeed = plan.sharding.startswith("zero") and (keys.get("deepspeed") or keys.get("deepspeed_config"))
    if deepspeed:
        half = precision if precision in ("bf16", "fp16") else "fp32"
        if file is not None:
            fields |= sharding_fields(Keys(file), half, half, model.hidden)
        return load_runtime("deepspeed", **fields)
    fields["launch"] = "compile" if compiled else "eager"
    if plan.shards_parameters and False in (
        keys.get("fsdp_config.fsdp_reshard_after_forward"),
        keys.get("fsdp_config.reshard_after_forward"),
    ):
        fields["reshard_after_forward"] = False
    if plan.shards_parameters and _second_fsdp(keys):  # FSDP2 copies to and from its buffers, FSDP1 has views of a flat one
        fields["sharding_copies"] = True
    fields |= _states(keys, tool, plan, precision, assumed)
    if model.lora is not None and tool.loads == "fp32" and not _dtype(keys):
        fields |= {"weight_dtype": "fp32", "master_weights": False}
        assumed.append(f"frozen weights in fp32, as {tool.name} loads them without dtype: bfloat16")
    return load_runtime(tool.entry, **fields)


def _precision(keys: Keys, tool: Tool, file: Mapping[str, Any]) -> str:
    mixed = keys.text("mixed_precision") or ""
    flags, dtype = {name: keys.get(name) for name in ("bf16", "fp16", "tf32")}, _dtype(keys)
    if mixed in ("bf16", "fp16", "fp8"):
        return mixed
    if half := precision_of(file):
        return half
    on = ("auto", True, "true", "True", "full")
    if flags["bf16"] in on:
        return "bf16"
    if flags["fp16"] in on:
        return "fp16"
    newer = tool.loads == "fp32" and tool.checkpoints  # TRL since 0.22
    if (tool is SWIFT or newer) and flags["bf16"] is None:  # both turn it on unless fp16 is
        return "bf16" if newer or dtype not in ("float16", "float32") else {"float16": "fp16"}.get(dtype, "fp32")
    return "tf32" if flags["tf32"] is True else "fp32"


def _dtype(keys: Keys) -> str:
    """The dtype in which the model is loaded, where it is stated; "auto" is that of its files, 16 bits."""
    named = keys.get("torch_dtype") or keys.get("dtype") or ""
    return "bfloat16" if named == "auto" else str(named)


def _second_fsdp(keys: Keys) -> bool:
    """Whether the configuration is of FSDP2: it says so, or has reshard_after_forward as a switch."""
    stated = [keys.get(path) for path in ("fsdp_version", "fsdp_config.fsdp_version")]
    switches = [keys.get(f"fsdp_config.{name}") for name in ("reshard_after_forward", "fsdp_reshard_after_forward")]
    return any(str(value) == "2" for value in stated) or any(isinstance(value, bool) for value in switches)


def _states(keys: Keys, tool: Tool, plan: Plan, precision: str, assumed: list[str]) -> dict[str, Any]:
    """Trained weights: fp32 with autocast (or FSDP's fp32 shards), or the 16 bits in which they are loaded."""
    if precision not in ("bf16", "fp16"):
        return {"master_weights": False, "gradient_dtype": "fp32", "exp_avg_dtype": "fp32", "exp_avg_sq_dtype": "fp32"}
    accelerate_casts = plan.shards_parameters and tool.entry != "axolotl"  # accelerate's FSDP casts what is trained to fp32
    half = is_on(keys, "pure_bf16") or tool.half or _dtype(keys) in ("bfloat16", "float16", "bf16", "fp16")
    if not half or accelerate_casts:
        fields: dict[str, Any] = {"master_weights": True, "gradient_dtype": "fp32"}
        moments = "fp32"
    else:
        fields, moments = {"master_weights": False, "weight_dtype": precision, "gradient_dtype": precision}, precision
        assumed.append(f"trained weights, gradients and moments in {precision}, as {tool.name} loads them, without fp32 copies")
    for name in ("exp_avg_dtype", "exp_avg_sq_dtype"):
        fields[name] = moments
    eight = "8bit" in str(keys.get("optim") or keys.get("optimizer") or "").lower()
    return fields | ({"exp_avg_dtype": "int8", "exp_avg_sq_dtype": "int8"} if eight else {})


def _attention(keys: Keys, model: Model, assumed: list[str]) -> dict[str, Any]:
    """Kernels of `attn_implementation` and its other spellings; transformers' own choice is sdpa where the model has it."""
    named = next(
        (
            str(value).lower()
            for path in ("attn_implementation", "attn_impl", "flash_attn")
            if (value := keys.get(path)) not in (None, "", "auto", True, False)
        ),
        "",
    )
    switches = {
        "flash_attention": "flash_attention_2",
        "sdp_attention": "sdpa",
        "eager_attention": "eager",
        "use_flash_attn": "fa2",
    }
    for path, meaning in switches.items():
        named = meaning if is_on(keys, path) and not named else named
    if not named and model.attention_sinks:
        assumed.append("eager attention: transformers has no sdpa for attention with sinks (attn_implementation)")
        named = "eager"
    if named in ("eager", "disabled"):
        return {"attention": "unfused"}
    fields: dict[str, Any] = {"attention": "flash"}
    if "flash_attention_4" in named or "flash-attn4" in named:
        assumed.append("the fastest attention that the catalogue has for the GPU, in place of FlashAttention 4")
        return fields | {"attention_library": "cudnn"}
    if any(word in named for word in ("flash_attention_3", "flash-attn3", "fa3", "flash_attn_3")):
        return fields | {"attention_library": "fa3"}
    if named.startswith(("flash", "fa2")) or "flash-attn" in named:
        return fields | {"attention_library": "fa2"}
    return fields


def _liger(keys: Keys) -> dict[str, Any]:
    """Liger-Kernel's norms, RoPE and activation, all at once or one by one."""
    everything = any([is_on(keys, name) for name in _LIGER])
    return {field: True for field, paths in _LIGER_PARTS.items() if any([is_on(keys, path) for path in paths]) or everything}


def _loss(keys: Keys, tool: Tool, assumed: list[str]) -> dict[str, Any]:
    """How much of the logits is in memory, and in which format."""
    plugins = keys.get("plugins")
    listed = [str(one) for one in plugins] if isinstance(plugins, list) else []
    cut = is_on(keys, _CUT) or any("CutCrossEntropy" in one for one in listed) and keys.get(_CUT) is not False
    liger = any([is_on(keys, name) for name in (*_LIGER, "liger_fused_linear_cross_entropy")])
    materialised = is_on(keys, "upcast_lmhead_output")  # LLaMA-Factory: the whole tensor in fp32
    slices = any([is_on(keys, name) for name in ("chunked_cross_entropy", "flash_attn_cross_entropy", "liger_cross_entropy")])
    kind = str(keys.get("loss_type") or ("nll" if tool is not TRL or liger else "chunked_nll"))
    if cut:
        return {"cross_entropy": "linear"}
    if liger and not materialised:
        return {"cross_entropy": "chunked"}
    if kind == "chunked_nll":
        if "loss_type" not in keys.table:
            assumed.append(
                "loss_type chunked_nll, TRL's default since June 2026: no logits in memory "
                "(--set runtime.cross_entropy=vocab_parallel)"
            )
        return {"cross_entropy": "linear"}
    if slices:  # kernels that read 16-bit logits
        return {"cross_entropy": "vocab_parallel", "fused_cross_entropy": True, "fp32_logits": False}
    return {"cross_entropy": "vocab_parallel", "fused_cross_entropy": False, "fp32_logits": True}
