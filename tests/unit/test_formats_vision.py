"""Are configurations of multimodal models read as the catalogue has the same models?"""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import from_config
from windtunnel.spec import load_model

TEXT: dict[str, Any] = {"hidden_act": "silu", "num_attention_heads": 32, "rms_norm_eps": 1e-6}
CONFIGS: dict[str, dict[str, Any]] = {
    "llava-1.5-7b": {
        "model_type": "llava",
        "vision_feature_layer": -2,
        "image_token_index": 32000,
        "text_config": TEXT
        | {
            "model_type": "llama",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "vocab_size": 32064,
            "max_position_embeddings": 4096,
        },
        "vision_config": {
            "hidden_size": 1024,
            "image_size": 336,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "patch_size": 14,
        },
    },
    "gemma3-4b-vision": {
        "model_type": "gemma3",
        "mm_tokens_per_image": 256,
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
        },
        "vision_config": {
            "hidden_size": 1152,
            "image_size": 896,
            "intermediate_size": 4304,
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
            "patch_size": 14,
        },
    },
    "qwen2.5-vl-7b": TEXT
    | {
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 128000,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "sliding_window": 32768,
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
    },
    "llama4-scout-vision": {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            "hidden_size": 5120,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "vocab_size": 202048,
            "tie_word_embeddings": False,
        },
        "vision_config": {
            "hidden_size": 1408,
            "image_size": 336,
            "intermediate_size": 5632,
            "num_attention_heads": 16,
            "num_hidden_layers": 34,
            "patch_size": 14,
            "projector_input_dim": 4096,
        },
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_gives_the_encoder_of_the_catalogue(name: str) -> None:
    made, known = from_config(CONFIGS[name]), load_model(name)
    assert known.vision is not None
    assert made.model.vision == known.vision.model_copy(update={"frozen": False})
    assert (made.model.layers, made.model.hidden, made.model.ffn) == (known.layers, known.hidden, known.ffn)
    assert "vision" in made.built and any("plan.seq" in line for line in made.assumed)


@pytest.mark.parametrize(("key", "value"), [("image_size", None), ("num_hidden_layers", 0), ("patch_size", "14")])
def test_wrong_values_name_their_key(key: str, value: object) -> None:
    config = CONFIGS["llava-1.5-7b"]
    with pytest.raises(SpecError, match=f"vision_config.{key}"):
        from_config(config | {"vision_config": config["vision_config"] | {key: value}})
