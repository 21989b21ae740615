"""A script that comes in goes out with all of its flags: changed where the job was changed, and as a shell takes it."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windtunnel.cli import main
from windtunnel.exports.exporters import Written, export_job
from windtunnel.exports.megatron import by_name, change_flags, differences, in_shell
from windtunnel.formats.jobs.megatron.arguments import parse
from windtunnel.jobs.load import load_described_job

DENSE = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --swiglu --normalization RMSNorm"
DENSE += " --position-embedding-type rope --rotary-base 500000 --untie-embeddings-and-output-weights --disable-bias-linear"
EXPERTS = (
    "--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --kv-channels 128 --swiglu --qk-layernorm"
)
EXPERTS += " --group-query-attention --num-query-groups 4 --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768"
EXPERTS += " --moe-router-topk-scaling-factor 2.5 --moe-aux-loss-coeff 1e-3 --rotary-percent 0.5"
EXPERTS += " --rotary-base 1000000 --disable-bias-linear"
LATENT = "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128"
LATENT += " --multi-latent-attention --q-lora-rank 1536"
LATENT += (
    " --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --num-experts 256 --moe-router-topk 8 --swiglu"
)
LATENT += (
    " --moe-ffn-hidden-size 2048 --moe-layer-freq '([0]*3+[1]*58)' --moe-shared-expert-intermediate-size 2048 --mtp-num-layers 1"
)
HYBRID = "--num-layers 8 --hybrid-layer-pattern 'M-M*M-M-' --hidden-size 4096 --ffn-hidden-size 16384 --num-attention-heads 32"
HYBRID += " --mamba-num-heads 128 --mamba-head-dim 64 --mamba-num-groups 8 --mamba-state-dim 128 --squared-relu"

MODELS = {"dense": DENSE, "experts": EXPERTS, "latent": LATENT, "hybrid": HYBRID}
RUN = "--micro-batch-size 1 --global-batch-size 256 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 128000"
PLANS = {
    "alone": "",
    "tensor": "--tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer",
    "stages": "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 4 "
    "--num-layers-per-virtual-pipeline-stage 2",
    "old": "--model-parallel-size 4 --DDP-impl local --recompute-activations --sequence-parallel",
    "recompute": "--recompute-granularity selective --recompute-modules core_attn layernorm --use-distributed-optimizer",
    "full": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    "context": "--context-parallel-size 2 --cp-comm-type p2p --use-distributed-optimizer",
}
PRECISIONS = (
    "--bf16",
    "--fp16 --initial-loss-scale 4294967296",
    "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather",
)
REST = (
    "--lr 3.0e-4 --min-lr 3.0e-5 --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95",
    '--data-path 1.0 "/data set/train_text_document" --split 949,50,1 --seed 42',
    '--data-path $DATA_PATH --save "${CHECKPOINTS}/run 1" --load /ckpt --tensorboard-dir /tb',
    "--distributed-timeout-minutes 60 --log-interval 1 --attention-backend flash --an-unknown-flag with words",
    "--norm-epsilon 1e-6 --init-method-std 0.008 --tokenizer-model 'meta/a b' --no-mmap-bin-files",
)
LAYOUTS = (
    "torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py {flags}",
    "#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\nARGS=(\n    {flags}\n)\n"
    "torchrun --nproc-per-node 8 pretrain_gpt.py ${{ARGS[@]}}\n",
    "{flags}",
)


def _write(folder: Path, text: str) -> str:
    path = folder / "launch.sh"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _export(source: str, *sets: str) -> Written:
    loaded = load_described_job(source, ["cluster.gpus=64", *sets], "h100-ib")
    return export_job("megatron", loaded.job, {}, loaded.imported)


def _text(written: Written) -> str:
    return str(written.files["launch.sh"])


def _flags(text: str) -> dict[str, tuple[str, ...]]:
    return parse(text, "text").written


SCRIPTS = [
    (model, plan, PRECISIONS[number % 3], REST[number % 5], LAYOUTS[number % 3])
    for number, (model, plan) in enumerate((model, plan) for model in MODELS for plan in PLANS)
    if not (model == "hybrid" and plan in ("stages", "context")) and not (model == "latent" and plan == "stages")
]


@pytest.mark.parametrize(("model", "plan", "precision", "rest", "layout"), SCRIPTS)
def test_a_script_goes_out_as_it_came_in(model: str, plan: str, precision: str, rest: str, layout: str, tmp_path: Path) -> None:
    words = f"{MODELS[model]} {RUN} {PLANS[plan]} {precision} {rest}"
    if model in ("experts", "latent") and "sequence-parallel" not in words:
        words += " --sequence-parallel"
    source = _write(tmp_path, layout.format(flags=words))
    written = _export(source)
    assert written.changed == ()
    assert _flags(_text(written)) == _flags(Path(source).read_text(encoding="utf-8"))
    again = _write(tmp_path, _text(written))
    assert load_described_job(again, ["cluster.gpus=64"], "h100-ib").job.model_dump(exclude={"source"}) == load_described_job(
        _write(tmp_path, layout.format(flags=words)), ["cluster.gpus=64"], "h100-ib"
    ).job.model_dump(exclude={"source"})
    subprocess.run(["bash", "-n"], input=_text(written), text=True, check=True)


@pytest.mark.parametrize(
    ("plan", "sets", "lines"),
    [
        ("tensor", ["plan.tp=8"], ["- --tensor-model-parallel-size 4", "+ --tensor-model-parallel-size 8"]),
        (
            "alone",
            ["plan.recompute=full"],
            ["+ --recompute-granularity full", "+ --recompute-method uniform", "+ --recompute-num-layers 1"],
        ),
        ("stages", ["plan.vpp=8"], ["- --num-layers-per-virtual-pipeline-stage 2", "+ --num-virtual-stages-per-pipeline-rank 8"]),
        ("stages", ["plan.vpp=1"], ["- --num-layers-per-virtual-pipeline-stage 2"]),
        ("old", ["plan.recompute=none"], ["- --recompute-activations"]),
        ("tensor", ["plan.sharding=none"], ["- --use-distributed-optimizer"]),
        ("alone", ["runtime.precision=fp8", "runtime.fp8_recipe=blockwise"], ["+ --fp8-format hybrid", "+ --fp8-recipe blockwise"]),
    ],
)
def test_only_what_changed_is_changed(plan: str, sets: list[str], lines: list[str], tmp_path: Path) -> None:
    source = _write(tmp_path, f"torchrun pretrain_gpt.py {DENSE} {RUN} {PLANS[plan]} --bf16 {REST[0]}")
    written = _export(source, *sets)
    assert [line for line in written.changed if "p2p" not in line] == lines
    changed = load_described_job(source, ["cluster.gpus=64", *sets], "h100-ib").job
    back = load_described_job(_write(tmp_path, _text(written)), ["cluster.gpus=64"], "h100-ib").job
    assert back.plan.model_dump(exclude={"dp"}) == changed.plan.model_dump(exclude={"dp"})
    assert {"lr", "min-lr", "clip-grad", "rotary-base"} <= _flags(_text(written)).keys()


GLM = {"model_type": "glm4_moe", "hidden_size": 5120, "num_hidden_layers": 92, "num_attention_heads": 96, "num_key_value_heads": 8}
GLM |= {"head_dim": 128, "intermediate_size": 12288, "vocab_size": 151552, "n_routed_experts": 160, "num_experts_per_tok": 8}
GLM |= {"moe_intermediate_size": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3, "max_position_embeddings": 202752}
GLM |= {
    "rope_theta": 1000000,
    "partial_rotary_factor": 0.5,
    "routed_scaling_factor": 2.5,
    "rms_norm_eps": 1e-5,
    "norm_topk_prob": True,
}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (GLM, ["--rotary-base 1000000", "--rotary-percent 0.5", "--moe-router-topk-scaling-factor 2.5", "--norm-epsilon 1e-05"]),
        (GLM | {"norm_topk_prob": False}, ["--moe-router-pre-softmax"]),
        (GLM | {"rope_theta": None, "rope_parameters": {"rope_theta": 8e6, "rope_type": "default"}}, ["--rotary-base 8000000"]),
        (GLM | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ["--use-rope-scaling", "--rope-scaling-factor 8"]),
        (GLM | {"router_aux_loss_coef": 0.001}, ["--moe-aux-loss-coeff 0.001"]),
    ],
)
def test_numbers_of_a_configuration_go_out(config: dict[str, Any], said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    loaded = load_described_job(str(path), ["cluster.gpus=256"], "h200-ib")
    written = export_job("megatron", loaded.job, {}, loaded.imported)
    lines = [line.strip() for line in _text(written).splitlines()]
    assert set(said) <= set(lines) and "--moe-layer-freq '([0]*3+[1]*89)'" in lines
    subprocess.run(["bash", "-n"], input=_text(written), text=True, check=True)
    assert not any("rotary base" in line for line in written.left_out)
    back = load_described_job(_write(tmp_path, _text(written)), ["cluster.gpus=256"], "h200-ib").job
    ours, theirs = loaded.job.model.numerics, back.model.numerics  # type: ignore[union-attr]
    assert ours is not None and theirs is not None
    assert all(getattr(theirs, name) in (None, value) for name, value in ours)


def test_a_rotary_base_that_is_not_known_is_said() -> None:
    loaded = load_described_job("llama2-70b-64xh100")
    written = export_job(
        "megatron", loaded.job.model_copy(update={"model": loaded.job.model.model_copy(update={"numerics": None})}), {}
    )
    assert any("rotary base" in line for line in written.left_out)


def test_the_difference_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = _write(tmp_path, f"torchrun pretrain_gpt.py {DENSE} {RUN} --bf16")
    assert main(["export", "megatron", source, "--on", "h100-ib", "--set", "cluster.gpus=64", "--set", "plan.micro_batch=2"]) == 0
    out, said = capfd.readouterr()
    assert "changed against" in said and "+ --micro-batch-size 2" in said
    assert out.startswith("#!/bin/bash\nARGS=(\n")


@pytest.mark.parametrize(
    "word", ["a", "a b", "it's", '"quoted"', "([0]*3+[1]*58)", "E|t|L", "$HOME/a b", "`date`$X", "a\\$b", "", "*"]
)
def test_a_shell_gives_the_word_back(word: str) -> None:
    text = in_shell("flag", [word])
    if "$" not in word:
        assert shlex.split(text) == ["--flag", word]
    told = subprocess.run(["bash", "-c", f"printf '%s' {text.removeprefix('--flag ')}"], capture_output=True, text=True, check=True)
    assert "date" not in word or "`date`" in told.stdout  # nothing is run


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.sampled_from("xyz")), max_size=6),
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from("xyz")), max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from("xyz")), max_size=3),
)
def test_flags_that_do_not_change_stay(given_: dict, was: dict, now: dict) -> None:  # type: ignore[type-arg]
    changed = change_flags(given_, was, now)
    assert change_flags(given_, was, was) == given_
    for name in {*given_, *was, *now}:
        expected = given_.get(name) if was.get(name) == now.get(name) else now.get(name)
        assert changed.get(name) == expected
    assert (differences(given_, changed) == ()) == (given_ == changed)


def test_lines_of_flags_become_a_table() -> None:
    assert by_name(["--bf16", "--recompute-modules mlp moe"]) == {"bf16": (), "recompute-modules": ("mlp", "moe")}
