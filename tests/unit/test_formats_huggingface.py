"""Are Hugging Face configurations read as they are meant, and is nothing silent?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import FileError, SpecError, UnknownName, WindtunnelError
from windtunnel.formats import from_config, import_job
from windtunnel.formats.jobs.huggingface.config import FAMILIES
from windtunnel.formats.jobs.imported import Stated
from windtunnel.workload import parameter_count

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def test_llama_8b() -> None:
    made = from_config(LLAMA)
    model = made.model
    assert (model.layers, model.hidden, model.heads, model.groups, model.ffn, model.vocab) == (32, 4096, 32, 8, 14336, 128256)
    assert (model.activation, model.norm, model.position) == ("swiglu", "rmsnorm", "rope")
    assert not model.tied_embeddings and not model.linear_bias and not model.attention_bias and not model.dropout
    assert made.ignored == ("architectures", "torch_dtype")
    assert model.numerics is not None and model.numerics.rope_base == LLAMA["rope_theta"]
    assert made.assumed == ()
    assert made.job is None


def test_every_key_is_built_or_ignored() -> None:
    made = from_config(LLAMA | {"invented_key": 1})
    assert "invented_key" in made.ignored


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (
            {
                "model_type": "gpt2",
                "n_embd": 1600,
                "n_layer": 48,
                "n_head": 25,
                "n_positions": 1024,
                "vocab_size": 50257,
                "n_inner": None,
                "activation_function": "gelu_new",
                "resid_pdrop": 0.1,
            },
            {
                "ffn": 6400,
                "activation": "gelu",
                "position": "learned",
                "tied_embeddings": True,
                "linear_bias": True,
                "dropout": True,
            },
        ),
        (
            {
                "model_type": "bloom",
                "hidden_size": 14336,
                "n_layer": 70,
                "n_head": 112,
                "vocab_size": 250880,
                "hidden_dropout": 0.0,
            },
            {"ffn": 57344, "position": "alibi", "embedding_norm": True, "dropout": False},
        ),
        (
            {
                "model_type": "mpt",
                "d_model": 4096,
                "n_layers": 32,
                "n_heads": 32,
                "expansion_ratio": 4,
                "max_seq_len": 2048,
                "vocab_size": 50432,
                "no_bias": True,
                "attn_config": {"alibi": True, "attn_impl": "torch"},
            },
            {"ffn": 16384, "position": "alibi", "linear_bias": False},
        ),
        (
            {
                "model_type": "qwen2",
                "hidden_size": 3584,
                "intermediate_size": 18944,
                "num_hidden_layers": 28,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "vocab_size": 152064,
                "sliding_window": 131072,
                "use_sliding_window": False,
            },
            {"window": None, "attention_bias": True, "linear_bias": False},
        ),
        (
            {
                "model_type": "qwen3",
                "hidden_size": 5120,
                "intermediate_size": 25600,
                "num_hidden_layers": 64,
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
                "vocab_size": 151936,
                "head_dim": 128,
            },
            {"dim_per_head": 128, "q_heads_dim": 8192, "qk_norm": True},
        ),
        (
            {
                "model_type": "mistral",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 32000,
                "sliding_window": 4096,
            },
            {"window": 4096},
        ),
        (
            {
                "model_type": "gpt_neox",
                "hidden_size": 6144,
                "intermediate_size": 24576,
                "num_hidden_layers": 44,
                "num_attention_heads": 64,
                "vocab_size": 50432,
                "hidden_act": "gelu_fast",
            },
            {"parallel_block": True, "position": "rope", "gated": False},
        ),
        (
            {
                "model_type": "nemotron",
                "hidden_size": 18432,
                "intermediate_size": 73728,
                "num_hidden_layers": 96,
                "num_attention_heads": 96,
                "num_key_value_heads": 8,
                "vocab_size": 256000,
            },
            {"activation": "squared_relu", "norm": "layernorm"},
        ),
        (
            {
                "model_type": "gemma",
                "hidden_size": 3072,
                "intermediate_size": 24576,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "head_dim": 256,
                "vocab_size": 256000,
                "hidden_act": "gelu",
            },
            {"activation": "geglu", "tied_embeddings": True, "q_heads_dim": 4096},
        ),
        (
            {
                "model_type": "opt",
                "hidden_size": 12288,
                "ffn_dim": 49152,
                "num_hidden_layers": 96,
                "num_attention_heads": 96,
                "vocab_size": 50272,
                "dropout": 0.1,
            },
            {"activation": "relu", "ffn": 49152, "tied_embeddings": True, "dropout": True},
        ),
    ],
)
def test_spellings_of_each_type(config: dict[str, Any], fields: dict[str, Any]) -> None:
    model = from_config(config).model
    assert {name: getattr(model, name) for name in fields} == fields


def test_language_model_of_a_multimodal_one() -> None:
    made = from_config({"model_type": "idefics3", "text_config": LLAMA, "vision_config": {"hidden_size": 1}})
    assert made.model.layers == 32
    assert "vision_config" in made.ignored and "text_config.torch_dtype" in made.ignored
    assert any("text_config" in line for line in made.assumed)


@pytest.mark.parametrize(
    "config",
    [
        LLAMA | {"model_type": "zamba2"},
        LLAMA | {"model_type": "bert"},
        LLAMA | {"num_local_experts": 8},
        LLAMA | {"kv_lora_rank": 512},
        LLAMA | {"model_type": "new", "mamba_d_state": 16},
    ],
)
def test_what_is_not_modelled_is_refused_clearly(config: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="model_type"):
        from_config(config)


def test_an_unknown_type_is_read_as_llama_and_says_so() -> None:
    imported = from_config(LLAMA | {"model_type": "lama"})
    assert imported.model.layers == 32
    assert imported.model.model_copy(update={"name": "llama", "source": ""}) == from_config(LLAMA).model.model_copy(
        update={"name": "llama", "source": ""}
    )
    assert "did you mean llama?" in imported.assumed[0]
    with pytest.raises(UnknownName, match="Did you mean 'llama'"):
        from_config({"model_type": "lama"})


def test_a_repacked_checkpoint_is_read_by_its_class() -> None:
    """A type of its own, the class of an unusual one: SGLang's copies of DeepSeek-V4 in FP8."""
    given = {"model_type": "qwen3_next", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 32000}
    known, repacked = (
        from_config(given),
        from_config({**given, "model_type": "next_ref", "architectures": ["Qwen3NextForCausalLM"]}),
    )
    assert repacked.model.mixer_pattern == known.model.mixer_pattern and repacked.model.experts == known.model.experts
    assert "taken for qwen3_next, by its architecture" in repacked.assumed[0]


def test_limits_without_end_are_numbers(tmp_path: Path) -> None:
    """transformers writes Mamba's `time_step_limit` as [0.0, Infinity]; NaN stays refused."""
    text = json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf")]})
    (tmp_path / "config.json").write_text(text)
    assert import_job(tmp_path / "config.json").model.layers == 32
    (tmp_path / "config.json").write_text(text.replace("Infinity", "NaN"))
    with pytest.raises(FileError, match="NaN"):
        import_job(tmp_path / "config.json")


def test_an_unknown_type_with_layer_norm_is_read_as_gpt() -> None:
    """BioGPT's sizes; transformers' class has 346,763,264 parameters, with an offset of two in its positions."""
    sizes = {
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "vocab_size": 42384,
    }
    imported = from_config({"model_type": "new", **sizes, "max_position_embeddings": 1024, "layer_norm_eps": 1e-12})
    assert parameter_count(imported.model) == pytest.approx(346_763_264, rel=1e-4)
    assert "GPT-2's (LayerNorm" in imported.assumed[0]
    assert from_config({"model_type": "new", **sizes, "layer_norm_eps": 1e-5, "rotary_pct": 0.25}).model.position == "rope"


def test_names_of_transformers_5() -> None:
    """linear_attention is Mamba in Nemotron-H and Granite, which counts its layers no more; Kimi Linear's keys are flat."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 131072, "num_key_value_heads": 8, "head_dim": 128}
    listed = ["linear_attention", "moe", "full_attention", "mlp"]
    more = {"mamba_num_heads": 128, "moe_intermediate_size": 512, "n_routed_experts": 8, "num_experts_per_tok": 2}
    assert from_config({"model_type": "nemotron_h", **sizes, **more, "layers_block_type": listed}).model.layer_pattern == "ME*-"
    granite = {"num_hidden_layers": 2, "layer_types": listed[:3:2], "mamba_n_heads": 128, "shared_intermediate_size": 1024}
    assert from_config({"model_type": "granitemoehybrid", **sizes, **granite}).model.mixer_pattern == "MA"
    kimi = {"num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"], "num_experts": 8}
    kimi |= {"mlp_layer_types": ["dense"] + ["sparse"] * 3, "num_experts_per_token": 2, "moe_intermediate_size": 512}
    kimi |= {"linear_num_heads": 32, "linear_head_dim": 128, "kv_lora_rank": 512}
    model = from_config({"model_type": "kimi_linear", **sizes, **kimi}).model
    assert (model.mixer_pattern, model.layer_pattern, model.linear_heads, model.conv_width) == ("L3A", "DE3", 32, 4)


def test_an_unknown_mixture_is_read_by_its_keys() -> None:
    more = {"model_type": "new", "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}
    imported = from_config(LLAMA | more | {"n_shared_experts": 2, "first_k_dense_replace": 1})
    model = imported.model
    assert (model.experts, model.top_k, model.expert_width, model.shared_ffn, model.layer_pattern) == (64, 6, 1408, 2816, "DE31")
    assert "mixture of experts" in imported.assumed[0]


def test_what_is_missing_can_be_stated() -> None:
    short = {key: value for key, value in LLAMA.items() if key not in ("num_attention_heads", "vocab_size")}
    with pytest.raises(SpecError, match=r"--set model.heads=N --set model.vocab=N\. Keys understood: .*hidden_size"):
        from_config(short | {"model_type": "new"})
    stated = Stated({"model.heads": 32, "model.vocab": 128256})
    assert from_config(short, stated=stated).model.heads == 32


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": -1}, "num_attention_heads"),
        ({"vocab_size": 1.5}, "vocab_size"),
        ({"hidden_act": "tanh"}, "hidden_act"),
        ({"hidden_act": ["silu"]}, "hidden_act"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"num_hidden_layers": 10**12}, "layers"),
    ],
)
def test_wrong_values_name_their_key(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        from_config(LLAMA | change)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_no_type_accepts_an_empty_configuration(name: str) -> None:
    with pytest.raises(SpecError):
        from_config({"model_type": name})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    cases = {
        "empty.json": b"",
        "blank.json": b"  \n",
        "cut.json": json.dumps(LLAMA).encode()[:100],
        "binary.json": bytes(range(256)),
        "zeros.json": b"{\0}",
        "list.json": b"[1, 2]",
        "nan.json": b'{"model_type": NaN}',
        "twice.json": b'{"a": 1, "a": 2}',
        "deep.json": b'{"a":' * 5000 + b"1" + b"}" * 5000,
        "large.json": b" " * (5 * 2**20),
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileError):
            import_job(tmp_path / name)
    with pytest.raises(FileError):
        import_job(tmp_path)
    with pytest.raises(FileError):
        import_job(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "text", ["", "   ", "{}", "{", "hello world", "\n", "[]", "{]", '{"model_type": 7}', '{"model_type": null}']
)
def test_text_that_is_nothing(text: str) -> None:
    with pytest.raises(WindtunnelError):
        import_job(text)
