"""Models published in 2026: names of the hub are known, and a config.json of each new type gives the catalogue's entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windtunnel.cli import main
from windtunnel.formats.jobs.hub_names import find_named
from windtunnel.formats.jobs.huggingface.config import from_config
from windtunnel.spec import load_model

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
V4_FLASH: dict[str, Any] = {
    "model_type": "deepseek_v4", "vocab_size": 129280, "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024,
    "o_lora_rank": 1024, "o_groups": 8, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6,
    "routed_scaling_factor": 1.5, "norm_topk_prob": True, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
    "hidden_act": "silu", "swiglu_limit": 10.0, "max_position_embeddings": 1048576, "rope_theta": 10000.0,
    "rope_scaling": {"type": "yarn", "factor": 16}, "compress_rope_theta": 160000.0, "sliding_window": 128, "num_hash_layers": 3,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0, 0, 0], "hc_eps": 1e-6, "hc_mult": 4, "hc_sinkhorn_iters": 20,
    "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512, "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-6,
    "attention_bias": False, "tie_word_embeddings": False, "expert_dtype": "fp4", "quantization_config": FP8,
}  # fmt: skip
V4_PRO = V4_FLASH | {
    "hidden_size": 7168, "moe_intermediate_size": 3072, "num_hidden_layers": 61, "num_attention_heads": 128, "q_lora_rank": 1536,
    "o_groups": 16, "n_routed_experts": 384, "index_topk": 1024, "routed_scaling_factor": 2.5,
    "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
}  # fmt: skip
KIMI_K3: dict[str, Any] = {
    "model_type": "kimi_k3",
    "text_config": {
        "model_type": "kimi_linear", "hidden_size": 7168, "num_hidden_layers": 93, "num_attention_heads": 96,
        "num_key_value_heads": 96, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "mla_use_nope": True, "mla_use_output_gate": True, "intermediate_size": 33792, "hidden_act": "situ",
        "first_k_dense_replace": 1, "num_experts": 896, "num_experts_per_token": 16, "moe_intermediate_size": 3072,
        "num_shared_experts": 2, "routed_expert_hidden_size": 3584, "moe_router_activation_func": "sigmoid", "num_expert_group": 1,
        "topk_group": 1, "routed_scaling_factor": 1.0, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "vocab_size": 163840, "attn_res_block_size": 12,
        "linear_attn_config": {"num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4,
                               "full_attn_layers": [*range(4, 93, 4), 93]},
    },
}  # fmt: skip
GLM_FLASH: dict[str, Any] = {
    "model_type": "glm5_next",
    "text_config": {
        "model_type": "glm5_next_text", "vocab_size": 154880, "hidden_size": 4096, "intermediate_size": 12288,
        "moe_intermediate_size": 2048, "num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 64,
        "n_shared_experts": 1, "n_routed_experts": 288, "num_experts_per_tok": 8, "routed_scaling_factor": 2.5, "kv_lora_rank": 512,
        "q_lora_rank": 1536, "qk_head_dim": 256, "qk_rope_head_dim": 0, "v_head_dim": 256, "qk_nope_head_dim": 256, "n_group": 1,
        "topk_group": 1, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32, "index_kpool": 4, "hc_mult": 4,
        "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
        "num_nextn_predict_layers": 1, "first_k_dense_replace": 3, "norm_topk_prob": True,
        "layer_types": (["linear_attention"] * 3 + ["deepseek_sparse_attention"]) * 11 + ["linear_attention"],
        "linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4},
    },
}  # fmt: skip
MINIMAX_M3: dict[str, Any] = {
    "model_type": "minimax_m3_vl",
    "text_config": {
        "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288, "shared_intermediate_size": 3072,
        "num_hidden_layers": 60, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200064,
        "max_position_embeddings": 1048576, "rms_norm_eps": 1e-6, "rope_theta": 5000000, "rotary_dim": 64,
        "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": True, "num_local_experts": 128,
        "num_experts_per_tok": 4, "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": True,
        "routed_scaling_factor": 2.0, "moe_layer_freq": [0] * 3 + [1] * 57, "tie_word_embeddings": False, "num_mtp_modules": 1,
        "sparse_attention_config": {"sparse_index_dim": 128, "sparse_num_index_heads": 4, "sparse_topk_blocks": 16,
                                    "sparse_block_size": 128, "sparse_attention_freq": [0] * 3 + [1] * 57},
    },
}  # fmt: skip
MIMO: dict[str, Any] = {
    "model_type": "mimo_v2_flash", "vocab_size": 152576, "hidden_size": 4096, "intermediate_size": 16384,
    "moe_intermediate_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192,
    "v_head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
    "max_position_embeddings": 262144, "layernorm_epsilon": 1e-5, "rope_theta": 5000000.0, "partial_rotary_factor": 0.334,
    "sliding_window": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0, "tie_word_embeddings": False,
    "moe_layer_freq": [0] + [1] * 47, "hybrid_layer_pattern": [int(i % 6 != 0 and i != 47) for i in range(48)],
    "attention_bias": False, "hidden_act": "silu", "quantization_config": FP8,
}  # fmt: skip
GLM_5: dict[str, Any] = {
    "model_type": "glm_moe_dsa", "vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288,
    "moe_intermediate_size": 2048, "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64,
    "n_shared_experts": 1, "n_routed_experts": 256,
    "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
    "v_head_dim": 256, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "first_k_dense_replace": 3, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32, "hidden_act": "silu",
    "max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "tie_word_embeddings": False,
    "num_nextn_predict_layers": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
}  # fmt: skip
ULTRA: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 2, "head_dim": 128,
    "intermediate_size": 5120, "moe_intermediate_size": 5120, "moe_shared_expert_intermediate_size": 10240, "n_routed_experts": 512,
    "num_experts_per_tok": 22, "n_shared_experts": 1, "moe_latent_size": 2048, "n_group": 1, "topk_group": 1,
    "mamba_num_heads": 256, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "chunk_size": 128,
    "vocab_size": 131072, "max_position_embeddings": 262144, "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
    "mlp_hidden_act": "relu2",
    "layers_block_type": [{"M": "mamba", "E": "moe", "*": "attention"}[letter] for letter in
                          load_model("nemotron-3-ultra-550b-a55b").layer_pattern or ""],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("deepseek-v4-pro", V4_PRO),
        ("deepseek-v4-flash", V4_FLASH),
        ("kimi-k3", KIMI_K3),
        ("glm-5.3-flash", GLM_FLASH),
        ("minimax-m3", MINIMAX_M3),
        ("mimo-v2-flash", MIMO),
        ("glm-5-744b-a40b", GLM_5),
        ("nemotron-3-ultra-550b-a55b", ULTRA),
    ],
)
def test_a_config_gives_the_entry_of_the_catalogue(name: str, config: dict[str, Any]) -> None:
    read, entry = from_config(config).model, load_model(name)
    apart = {"name", "source", "numerics", "checkpoint", "qkv_bias", "layer_pattern", "window_pattern", "mixer_pattern"}
    apart |= {"kv_heads"} if entry.latent else set()
    assert read.model_dump(exclude=apart) == entry.model_dump(exclude=apart)
    assert read.kinds == entry.kinds


@pytest.mark.parametrize("config", [V4_PRO, V4_FLASH])
def test_experts_of_four_bits_are_read_beside_eight(config: dict[str, Any]) -> None:
    read = from_config(config).model.checkpoint
    assert read is not None and (read.weights, read.attention, read.dense) == ("mxfp4", "fp8_block", "fp8_block")


@pytest.mark.parametrize("change", [{"compress_ratios": None}, {"compress_ratios": [4]}, {"compress_ratios": [4, 8] * 30}])
def test_ratios_that_no_layer_can_have_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="compress_ratios"):
        from_config(V4_FLASH | change)


PUBLISHED_IN_2026 = (
    "deepseek-ai/DeepSeek-V4-Pro",
    "deepseek-ai/DeepSeek-V4-Flash",
    "deepseek-ai/DeepSeek-V4-Flash-Base",
    "zai-org/GLM-5",
    "zai-org/GLM-5.1",
    "zai-org/GLM-5.2",
    "zai-org/GLM-5.2-FP8",
    "zai-org/GLM-5.3",
    "zai-org/GLM-5.3-BF16",
    "zai-org/GLM-5.3-Flash",
    "zai-org/GLM-5.3-Flash-BF16",
    "moonshotai/Kimi-K2.5",
    "moonshotai/Kimi-K2.6",
    "moonshotai/Kimi-K2.7-Code",
    "moonshotai/Kimi-K3",
    "MiniMaxAI/MiniMax-M2.5",
    "MiniMaxAI/MiniMax-M2.7",
    "MiniMaxAI/MiniMax-M3",
    "MiniMaxAI/MiniMax-M3-MXFP8",
    "nvidia/MiniMax-M3-NVFP4",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16",
    "XiaomiMiMo/MiMo-V2-Flash",
    "Qwen/Qwen3.5-397B-A17B",
    "Qwen/Qwen3.6-27B",
    "Qwen/Qwen3.6-27B-FP8",
    "Qwen/Qwen3.6-35B-A3B",
    "unsloth/Qwen3.6-35B-A3B-GGUF",
    "google/gemma-4-31B-it",
    "google/gemma-4-26B-A4B-it",
    "openai/gpt-oss-safeguard-120b",
    "openai/gpt-oss-safeguard-20b",
)


@pytest.mark.parametrize("name", PUBLISHED_IN_2026)
def test_names_of_2026_are_known(name: str) -> None:
    found = find_named(name)
    assert found is not None and found.whole


def test_formats_that_the_hub_holds() -> None:
    held = {
        name: found.model.checkpoint.weights if (found := find_named(name)) and found.model.checkpoint else "bf16"
        for name in PUBLISHED_IN_2026
    }
    assert held["deepseek-ai/DeepSeek-V4-Pro"] == "mxfp4" and held["moonshotai/Kimi-K2.5"] == "int4"
    assert held["zai-org/GLM-5.3"] == "fp8_block" and held["zai-org/GLM-5.3-BF16"] == "bf16" and held["zai-org/GLM-5.2"] == "bf16"
    assert held["zai-org/GLM-5.3-Flash"] == "fp8_block" and held["zai-org/GLM-5.3-Flash-BF16"] == "bf16"
    assert held["nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4"] == "nvfp4" and held["moonshotai/Kimi-K3"] == "mxfp4"
    assert held["MiniMaxAI/MiniMax-M3-MXFP8"] == "fp8_block" and held["MiniMaxAI/MiniMax-M3"] == "bf16"


def test_shared_indexers_are_said() -> None:
    said = from_config(GLM_5 | {"indexer_types": ["full"] * 3 + ["shared"] * 75}).assumed
    assert any("shares the keys" in note for note in said) and not any("shares" in note for note in from_config(GLM_5).assumed)


def test_an_unknown_model_of_a_megatron_swift_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen9.1-33B --tensor_model_parallel_size 4 --max_length 8192"
    script = tmp_path / "train.sh"
    script.write_text(line)
    assert main(["predict", str(script), "--on", "h100-ib"]) == 2
    said = capsys.readouterr().err
    assert "Qwen/Qwen9.1-33B" in said and "hf download Qwen/Qwen9.1-33B config.json" in said and "num-layers" not in said
