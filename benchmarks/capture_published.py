"""Published peaks of memory beside captured ones: a framework's own code in the shape of the row, on a cluster that isn't there.

    python benchmarks/capture_published.py            every row of `MEGATRON` and `TORCHTITAN`
    python benchmarks/capture_published.py T1143 …    some of them

Megatron-Core's rows are allocated bytes of SimuMax's release table on eight B200, the largest of all ranks
(docs/b200/b200_release_v1.2_summary.md of MooreThreads/SimuMax; `simu_tools/megatron_scripts` has the flags). torchtitan's are
reserved bytes of Llama 3 8B on H100 (benchmarks/llama3_h100_202412_torchtitan.md), under the allocator's settings of its
run_train.sh and, in brackets, under the default ones. Needs torch's build for CPUs, `megatron-core` and `torchtitan`. Run as
`… --train ID`, this file is the training script itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from capture_against import take_megatron_steps, write_text_of_titan

GIB = 2.0**30


class Llama(NamedTuple):
    """A run of Megatron-Core: layers, their sizes, tensor and pipeline parallelism over eight GPUs, GiB published."""

    layers: int
    hidden: int
    heads: int
    groups: int
    feed: int
    tensor: int
    stages: int
    published: float


LLAMA_70B, LLAMA_405B = (12, 8192, 64, 8, 28672), (4, 16384, 128, 16, 53248)
MEGATRON = {
    "T1142": Llama(*LLAMA_70B, 1, 2, 66.55), "T1143": Llama(*LLAMA_70B, 2, 1, 60.68), "T1144": Llama(*LLAMA_70B, 4, 1, 39.07),
    "T1145": Llama(*LLAMA_70B, 8, 1, 28.29), "T1166": Llama(*LLAMA_405B, 1, 2, 87.08), "T1167": Llama(*LLAMA_405B, 2, 1, 81.59),
    "T1168": Llama(*LLAMA_405B, 4, 1, 52.89), "T1169": Llama(*LLAMA_405B, 8, 1, 38.57),
}  # fmt: skip
MICRO_BATCHES = 4
TORCHTITAN = {"T0101": (8, 82.4), "T0104": (128, 67.0)}
"""GPUs, and GiB published: FSDP2, two rows of 8,192 tokens, selective checkpointing, eager."""


def train_megatron(run: Llama) -> None:
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer import TransformerConfig

    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    parallel_state.initialize_model_parallel(run.tensor, run.stages)
    model_parallel_cuda_manual_seed(1)
    settings = TransformerConfig(
        num_layers=run.layers, hidden_size=run.hidden, num_attention_heads=run.heads, num_query_groups=run.groups,
        ffn_hidden_size=run.feed, normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu,
        add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0, bf16=True, params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16, tensor_model_parallel_size=run.tensor, pipeline_model_parallel_size=run.stages,
        sequence_parallel=run.tensor > 1, gradient_accumulation_fusion=True, bias_activation_fusion=True, apply_rope_fusion=True,
        cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te",
    )  # fmt: skip
    layer = get_gpt_layer_with_transformer_engine_spec()
    buckets = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True, check_for_nan_in_grad=False)
    take_megatron_steps(settings, layer, buckets, MICRO_BATCHES)


def train_torchtitan() -> None:
    """torchtitan's own 8B and trainer, with a text of one word, without compiling, and with the loss over all logits that it had in
    December 2024."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.models.common.config_utils import decoder_vocab_size
    from torchtitan.models.llama3.config_registry import llama3_8b
    from torchtitan.tools.logging import init_logger

    init_logger()
    config = llama3_8b()
    with TemporaryDirectory() as folder:
        config.hf_assets_path = config.dump_folder = folder
        config.dataloader.dataset, config.dataloader.dataset_path = (
            "c4_test",
            str(write_text_of_titan(folder, int(os.environ["WORLD_SIZE"]))),
        )
        config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
        config.training.local_batch_size, config.training.steps, config.training.disable_cuda_graphs = 2, 9, True
        config.parallelism.spmd_backend = "partial_dtensor"
        config.profiler.enable_profiling = config.metrics.enable_tensorboard = False
        config.checkpoint.enable = config.validator.enable = False
        config.build().train()


def captured(name: str) -> tuple[float, float, str]:
    """GiB of the fullest rank that ran, GiB published, and what else is to be said."""
    import windtunnel as wt
    from windtunnel.api.capture import peak_of

    with TemporaryDirectory() as folder:
        command, out = ["torchrun", "--nproc-per-node", "8", __file__, "--train", name], Path(folder) / "captured"
        if name in MEGATRON:
            ranks = wt.capture(command, "b200-ib", 8, out=out).memory
            return max(rank.allocated for rank in ranks) / GIB, MEGATRON[name].published, ""
        gpus, published = TORCHTITAN[name]
        job = wt.capture(command, "h100-ib", gpus, ranks=[0], out=out)
        expandable = peak_of(job.ranks[0], job.workspace, "expandable_segments:True")
        return expandable.reserved / GIB, published, f"({job.memory[0].reserved / GIB:.2f})"


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        if sys.argv[2] in MEGATRON:
            train_megatron(MEGATRON[sys.argv[2]])
        else:
            train_torchtitan()
        return
    errors = []
    for name in sys.argv[1:] or (*MEGATRON, *TORCHTITAN):
        there, published, more = captured(name)
        errors.append(there / published - 1.0)
        print(f"{name}  published {published:7.2f} GiB  captured {there:7.2f} GiB  {errors[-1]:+.1%} {more}", flush=True)
    print(f"median {median(map(abs, errors)):.1%} of {len(errors)} rows")


if __name__ == "__main__":
    main()
