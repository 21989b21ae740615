"""Are Megatron-LM's flags read as Megatron reads them, and is nothing silent?"""

from __future__ import annotations

import pytest

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.formats import from_arguments, import_job
from windtunnel.formats.jobs.imported import Stated
from windtunnel.spec import load_job

SMALL = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --micro-batch-size 4 --vocab-size 50257 --bf16"
)

SCRIPT = r"""#!/bin/bash
# GPT-3 175B
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=16
MODEL_ARGS=(
    --num-layers 96   # decoder layers
    --hidden-size 12288 --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
)
TRAINING="--micro-batch-size 1 --global-batch-size ${GBS:-1536} --lr 6.0e-5 --bf16 --attention-dropout 0 --hidden-dropout 0.0"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes ${NNODES} pretrain_gpt.py \
    ${MODEL_ARGS[@]} $TRAINING \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size=8 \
    --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel \
    --vocab-file 'gpt2 vocab.json' --merge-file merges.txt --use-distributed-optimizer --recompute-activations \
    --some-new-flag 3 4
"""


def test_launch_script() -> None:
    made = import_job(SCRIPT)
    assert made.plan is not None and made.runtime is not None and made.format == "megatron"
    plan = made.plan
    assert (plan.tp, plan.pp, plan.vpp, plan.dp) == (8, 8, 6, 2)
    assert (plan.micro_batch, plan.global_batch, plan.seq, plan.recompute, plan.sharding) == (1, 1536, 2048, "selective", "zero1")
    assert plan.sequence_parallel
    assert made.model.vocab == 50257 and made.model.ffn == 49152 and not made.model.dropout
    assert made.runtime.precision == "bf16" and made.runtime.overlap_p2p and not made.runtime.overlap_grad_reduce
    assert "--some-new-flag 3 4" in made.ignored and "--lr 6.0e-5" in made.ignored
    assert any("50257" in line for line in made.assumed)


def test_llama_flags() -> None:
    made = from_arguments(
        SMALL + " --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
        "--untie-embeddings-and-output-weights --group-query-attention --num-query-groups 4 "
        "--ffn-hidden-size 2816 --kv-channels 128 --qk-layernorm --global-batch-size 64"
    )
    model = made.model
    assert (model.activation, model.norm, model.position, model.groups) == ("swiglu", "rmsnorm", "rope", 4)
    assert not model.tied_embeddings and not model.linear_bias and model.qk_norm and model.dim_per_head == 128


def test_swiglu_width_as_megatron_derives_it() -> None:
    assert from_arguments(SMALL + " --swiglu --global-batch-size 4").model.ffn == 2688  # int(4 * 1024 * 2 / 3) // 64 * 64


def test_old_names() -> None:
    old = from_arguments(
        "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --batch-size 4 --fp16 "
        "--vocab-size 50257 --model-parallel-size 2 --checkpoint-activations --global-batch-size 16"
    )
    assert old.plan is not None and old.runtime is not None
    assert (old.plan.tp, old.plan.micro_batch, old.plan.recompute) == (2, 4, "full")
    assert old.runtime.framework == "megatron-lm" and old.runtime.gradient_dtype == "fp16"
    assert not old.ignored


def test_underscores_and_equals_signs() -> None:
    made = from_arguments(SMALL.replace("--micro-batch-size 4", "--micro_batch_size=2") + " --global_batch_size=8")
    assert made.plan is not None and made.plan.micro_batch == 2 and made.plan.global_batch == 8


@pytest.mark.parametrize("flag", ["num-layers", "hidden-size", "num-attention-heads"])
def test_missing_flag_is_named(flag: str) -> None:
    words = SMALL.split()
    index = words.index(f"--{flag}")
    with pytest.raises(SpecError, match=f"--{flag}"):
        from_arguments(" ".join(words[:index] + words[index + 2 :]))


@pytest.mark.parametrize(("flag", "assumed"), [("micro-batch-size", "micro batch 1"), ("vocab-size", "a guess")])
def test_a_missing_flag_that_can_be_assumed_is_told(flag: str, assumed: str) -> None:
    words = SMALL.split()
    index = words.index(f"--{flag}")
    imported = from_arguments(" ".join(words[:index] + words[index + 2 :]) + " --global-batch-size 8")
    assert any(assumed in line for line in imported.assumed)


@pytest.mark.parametrize("more", ["--expert-model-parallel-size 4", "--hybrid-attention-ratio 0.1"])
def test_what_is_not_modelled_is_refused(more: str) -> None:
    with pytest.raises(SpecError, match=more.split()[0]):
        from_arguments(f"{SMALL} --global-batch-size 4 {more}")


@pytest.mark.parametrize(
    "more",
    [
        "--num-layers many",
        "--num-layers -1",
        "--num-layers 0",
        "--num-layers",
        "--num-layers 1e3",
        "--num-layers $L",
        "--normalization BatchNorm",
        "--position-embedding-type sine",
        "--recompute-granularity some",
        "--zero-stage 4",
        "--pipeline-model-parallel-layout t|x",
        "--pipeline-model-parallel-layout t*3",
        "--window-size none",
        "--hidden-dropout much",
        "--pipeline-model-parallel-layout (t)*9999|",
        "--num-layers 99999999999999999999",
        "--data-parallel-sharding-strategy all",
    ],
)
def test_wrong_values_name_their_flag(more: str) -> None:
    with pytest.raises(SpecError, match=more.split()[0]):
        from_arguments(f"{SMALL} --global-batch-size 4 {more}")


@pytest.mark.parametrize(
    ("flags", "stages", "vpp"),
    [
        (
            "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
            "--num-layers 30",
            (7, 8, 8, 7),
            1,
        ),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3"
            " --decoder-last-pipeline-num-layers 5 --num-layers 24",
            (3, 8, 8, 5),
            1,
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*5|t*7|(t*6|)*1t*6L --num-layers 24",
            (5, 7, 6, 6),
            2,
        ),
        (
            "--pipeline-model-parallel-size 16 --pipeline-model-parallel-layout Et*3|(tt|)*29,m|L --num-layers 61"
            " --mtp-num-layers 1",
            (3, *[2] * 29, 0, 0),
            2,
        ),
    ],
)
def test_uneven_pipelines(flags: str, stages: tuple[int, ...], vpp: int) -> None:
    made = from_arguments(f"{SMALL} --global-batch-size 64 {flags}")
    assert made.plan is not None
    assert made.plan.stages == stages and made.plan.vpp == vpp
    assert any("predict further tokens" in line for line in made.assumed) == ("m|" in flags)


@pytest.mark.parametrize("layout", ["t|EtL", "EtL|t", "EEt|tL", "Et|tLL"])
def test_embedding_and_loss_sit_at_the_ends(layout: str) -> None:
    with pytest.raises(SpecError, match="once, in the (first|last) part"):
        from_arguments(
            f"{SMALL} --global-batch-size 64 --pipeline-model-parallel-size 2 --num-layers 2 "
            f"--pipeline-model-parallel-layout {layout}"
        )


def test_precision_and_reduction() -> None:
    made = from_arguments(SMALL + " --global-batch-size 4 --fp8-format hybrid --fp8-recipe mxfp8 --grad-reduce-in-bf16").runtime
    assert made is not None and (made.precision, made.weight_dtype, made.reduce_dtype) == ("mxfp8", "bf16", "bf16")


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("--fp8-hybrid", ("fp8", "delayed", False, "dp", (0, 0))),
        ("--fp8-format hybrid --tp-only-amax-red --fp8-param-gather", ("fp8", "delayed", True, "tp", (0, 0))),
        ("--fp8-format e4m3 --fp8-recipe tensorwise --first-last-layers-bf16", ("fp8", "current", False, "none", (1, 1))),
        ("--fp8-format e4m3 --fp8-recipe blockwise", ("fp8", "blockwise", False, "none", (0, 0))),
        ("--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather", ("mxfp8", None, True, "none", (0, 0))),
        (
            "--fp4-format e2m1 --first-last-layers-bf16 --num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 2",
            ("nvfp4", None, False, "none", (0, 2)),
        ),
        ("--fp8-recipe blockwise", ("bf16", None, False, "none", (0, 0))),
    ],
)
def test_low_precision(flags: str, expected: tuple[object, ...]) -> None:
    made = from_arguments(f"{SMALL} --num-layers 2 --global-batch-size 4 {flags}").runtime
    assert made is not None
    assert (made.precision, made.fp8_recipe, made.fp8_param_gather, made.fp8_amax_reduce, made.bf16_layers) == expected


def test_a_recipe_that_megatron_lacks_is_refused() -> None:
    with pytest.raises(SpecError, match="delayed, tensorwise, blockwise, mxfp8"):
        from_arguments(f"{SMALL} --global-batch-size 4 --fp8-format hybrid --fp8-recipe rowwise")


def test_close_spelling_is_pointed_out() -> None:
    made = from_arguments(SMALL + " --global-batch-size 4 --sequence-paralel")
    assert any("--sequence-parallel" in line for line in made.ignored)


def test_job_on_a_machine() -> None:
    on = load_job("megascale-175b-12288")
    made = import_job(SCRIPT, on)
    assert made.job is not None
    assert made.job.cluster.gpus == 128 and made.job.dp == 2 and made.job.cluster.gpu == on.cluster.gpu


def test_unclosed_quote_and_no_flags() -> None:
    for text in ("--num-layers '24", "python train.py\n", "--", "-- --", "--num-layers=\n"):
        with pytest.raises(WindtunnelError):
            import_job(text)


@pytest.mark.parametrize("flag", ["--decoder-seq-length 4096", "--vision-model-type clip", "--language-model-type mistral_7b"])
def test_a_model_of_images_is_no_plain_decoder(flag: str) -> None:
    with pytest.raises(SpecError, match=flag.split()[0]):
        from_arguments(f"{SMALL} --global-batch-size 4 {flag}")


def test_a_strategy_counts_under_megatrons_fsdp_only() -> None:
    flags = f"{SMALL} --global-batch-size 4 --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params"
    assert from_arguments(flags).plan.sharding == "zero1"
    assert from_arguments(f"{flags} --use-megatron-fsdp").plan.sharding == "fsdp"


def test_gpus_that_only_the_machine_says_are_told() -> None:
    flags, on = f"{SMALL} --global-batch-size 32", load_job("llama3-8b-8xh100")
    assert any("8 GPUs, all of the machine" in told for told in from_arguments(flags, on=on).assumed)
    told = from_arguments(flags, on=on, stated=Stated.of({"cluster": {"gpus": 8}})).assumed
    assert not any("of the machine" in one for one in told)


def test_the_program_of_a_script_says_an_encoder_and_the_tokenizer() -> None:
    """`args_defaults` of Megatron-LM's programs: BERT's word pieces, 30,522, and GPT-2's 50,257."""
    flags = "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 --max-position-embeddings 64"
    flags += " --micro-batch-size 1 --global-batch-size 8"
    bert = from_arguments(f"torchrun examples/bert/pretrain_bert.py {flags}")
    assert (bert.model.causal, bert.model.vocab) == (False, 30522) and any("an encoder" in line for line in bert.assumed)
    gpt = from_arguments(f"torchrun pretrain_gpt.py {flags}")
    assert (gpt.model.causal, gpt.model.vocab) == (True, 50257)
    assert from_arguments(f"torchrun train.py {flags}").model.vocab == 131072
