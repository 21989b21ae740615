"""The table "Beside our graphs" of docs/capture.md: what frameworks do, beside our graph of the same job.

    python benchmarks/capture_against.py            every framework that is installed
    python benchmarks/capture_against.py NAME...    some of `RUNS`

Needs torch's build for CPUs, `transformers`, `accelerate`, `deepspeed`, `megatron-core`, and `torchtitan` 0.2.2. Run as
`… --train NAME`, this file is the training script itself.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

WIDTH, FEED, LAYERS, HEADS, GROUPS, VOCABULARY, SEQUENCE, GPUS = 2048, 8192, 4, 32, 8, 128256, 4096, 16
MICRO_BATCHES = {"megatron": 4, "megatron-fp8": 2, "megatron-experts": 2, "torchtitan": 4}
"""Micro batches of a step, where there are several."""

LLAMA = {
    "model.layers": LAYERS, "model.hidden": WIDTH, "model.heads": HEADS, "model.kv_heads": GROUPS, "model.ffn": FEED,
    "model.tied_embeddings": False, "plan.seq": SEQUENCE, "plan.micro_batch": 1, "plan.recompute": "none", "cluster.gpus": GPUS,
}  # fmt: skip
TENSOR: dict[str, Any] = {
    "plan.tp": 2, "plan.sequence_parallel": True, "plan.sharding": "zero1", "runtime.framework": "megatron-core",
    "runtime.version": "0.16", "runtime.launch": "eager", "runtime.overlap_tp": False, "runtime.overlap_param_gather": False,
    "runtime.fused_cross_entropy": False,
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "megatron": TENSOR | {"plan.pp": 2, "plan.dp": 4, "plan.global_batch": 16},
    "megatron-fp8": TENSOR | {"plan.dp": 8, "plan.global_batch": 16, "runtime.precision": "fp8", "runtime.fp8_recipe": "current"},
    "megatron-experts": TENSOR | {"plan.dp": 8, "plan.ep": 8, "plan.global_batch": 16, "model.experts": 8, "model.top_k": 2},
    "fsdp2": {
        "plan.sharding": "fsdp", "plan.dp": 16, "plan.global_batch": 16, "runtime.framework": "huggingface",
        "runtime.reduce_dtype": "fp32", "runtime.launch": "eager",
    },
    "trainer": {
        "plan.sharding": "fsdp", "plan.dp": 16, "plan.global_batch": 16, "runtime.framework": "huggingface",
        "runtime.root_unit": "freed", "runtime.launch": "eager",
    },
    "torchtitan": {
        "plan.sharding": "fsdp", "plan.tp": 2, "plan.sequence_parallel": True, "plan.pp": 2, "plan.dp": 4, "plan.global_batch": 16,
        "runtime.framework": "torchtitan", "runtime.version": "2026.01", "runtime.reshard_after_forward": False,
        "runtime.launch": "eager", "runtime.fused_rmsnorm": True,
    },
    "deepspeed": {"plan.sharding": "zero3", "plan.dp": 16, "plan.global_batch": 16, "runtime.framework": "deepspeed"},
}  # fmt: skip
"""The job beside each script."""


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": WIDTH, "intermediate_size": FEED, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS, "vocab_size": VOCABULARY, "max_position_embeddings": SEQUENCE,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False, attn_implementation="sdpa", use_cache=False))


def train_fsdp2() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = llama().cuda()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros(1, SEQUENCE, dtype=torch.long, device="cuda")
    for _ in range(9):
        model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def train_trainer() -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    os.environ["FSDP_VERSION"] = "2"
    shards = {
        "version": 2,
        "fsdp_version": 2,
        "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
        "reshard_after_forward": True,
    }
    with TemporaryDirectory() as folder:
        asked = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=1, max_steps=9, bf16=True, fsdp="full_shard auto_wrap",
            fsdp_config=shards, save_strategy="no", report_to="none", logging_steps=100,
        )  # fmt: skip
        token = torch.zeros(SEQUENCE, dtype=torch.long)
        rows = {"input_ids": token, "attention_mask": torch.ones_like(token), "labels": token}
        Trainer(model=llama(), args=asked, train_dataset=[rows] * 999).train()


def train_deepspeed() -> None:
    import deepspeed
    import torch
    import torch._dynamo  # before zero.Init changes how tensors are made

    settings = {
        "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}, "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }  # fmt: skip
    with deepspeed.zero.Init(config_dict_or_path=settings):
        model = llama()
    engine, *_ = deepspeed.initialize(model=model, config=settings, model_parameters=model.parameters())
    tokens = torch.zeros(1, SEQUENCE, dtype=torch.long, device="cuda")
    for _ in range(9):
        engine.backward(engine(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens).loss)
        engine.step()


def write_text_of_titan(folder: str, ranks: int) -> Path:
    """A tokenizer of one word for torchtitan, and a text of it for each rank; the folder of the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    words = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(f"{folder}/tokenizer.json")
    Path(folder, "tokenizer_config.json").write_text(json.dumps(ends))
    texts = Path(folder, "texts")
    texts.mkdir()
    (texts / "texts.json").write_text(f"{json.dumps({'text': 'a ' * 20000})}\n" * ranks)
    return texts


def train_torchtitan() -> None:
    """torchtitan's own Llama 3 and trainer as of 0.2.2, the last whose pipelines run with PyTorch 2.13."""
    from torchtitan.config import JobConfig
    from torchtitan.models.llama3 import TransformerModelArgs, llama3_args
    from torchtitan.tools.logging import init_logger
    from torchtitan.train import Trainer

    init_logger()
    llama3_args["small"] = TransformerModelArgs(
        dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, n_kv_heads=GROUPS, vocab_size=VOCABULARY, ffn_dim_multiplier=1.5,
        multiple_of=1024,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        config = JobConfig()
        config.model.name, config.model.flavor, config.model.hf_assets_path = "llama3", "small", folder
        config.job.dump_folder, config.training.dataset = folder, "c4_test"
        config.training.dataset_path = str(write_text_of_titan(folder, int(os.environ["WORLD_SIZE"])))
        config.training.seq_len, config.training.local_batch_size, config.training.steps = SEQUENCE, MICRO_BATCHES["torchtitan"], 9
        config.parallelism.tensor_parallel_degree = config.parallelism.pipeline_parallel_degree = 2
        config.activation_checkpoint.mode = "none"
        Trainer(config).train()


def train_megatron(kind: str) -> None:
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer import TransformerConfig

    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    experts, stages = kind == "megatron-experts", 2 if kind == "megatron" else 1
    parallel_state.initialize_model_parallel(
        2, stages, expert_model_parallel_size=8 if experts else 1, expert_tensor_parallel_size=1
    )
    model_parallel_cuda_manual_seed(1)
    more: dict[str, Any] = {}
    if experts:
        more = {
            "num_moe_experts": 8, "moe_router_topk": 2, "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1,
            "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "moe_ffn_hidden_size": FEED,
        }  # fmt: skip
    if kind == "megatron-fp8":
        more = {"fp8": "hybrid", "fp8_recipe": "tensorwise"}
    settings = TransformerConfig(
        num_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS, num_query_groups=GROUPS, ffn_hidden_size=FEED,
        normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
        hidden_dropout=0.0, attention_dropout=0.0, bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=2, pipeline_model_parallel_size=stages, sequence_parallel=True,
        gradient_accumulation_fusion=True, bias_activation_fusion=True, apply_rope_fusion=True, **more,
    )  # fmt: skip
    layer = get_gpt_layer_with_transformer_engine_spec(num_experts=8 if experts else None, moe_grouped_gemm=experts)
    buckets = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=True, use_distributed_optimizer=True, check_for_nan_in_grad=False,
        overlap_param_gather=False,
    )  # fmt: skip
    take_megatron_steps(settings, layer, buckets, MICRO_BATCHES[kind])


def take_megatron_steps(settings: Any, layer: Any, buckets: Any, micro_batches: int) -> None:
    """Nine steps of Megatron-Core's GPT with these layers, in the parallel state as it is."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func

    ends = {"pre_process": parallel_state.is_pipeline_first_stage(), "post_process": parallel_state.is_pipeline_last_stage()}
    model = GPTModel(
        settings, layer, VOCABULARY, SEQUENCE, share_embeddings_and_output_weights=False, position_embedding_type="rope", **ends
    )
    model = model.bfloat16().cuda()
    chunk = DistributedDataParallel(settings, buckets, model)
    settings.grad_scale_func, settings.finalize_model_grads_func, settings.no_sync_func = None, finalize_model_grads, chunk.no_sync
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True, clip_grad=1.0), [chunk]
    )
    tokens = torch.zeros(1, SEQUENCE, dtype=torch.long, device="cuda")
    places = torch.arange(SEQUENCE, device="cuda").unsqueeze(0)

    def forward(_: Any, part: Any) -> tuple[Any, Any]:
        return part(tokens, places, None, labels=tokens), lambda losses: (losses.float().mean(), {"loss": losses.detach().mean()})

    for _ in range(9):
        chunk.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=forward, data_iterator=iter(()), model=[chunk], num_microbatches=micro_batches,
            seq_length=SEQUENCE, micro_batch_size=1, decoder_seq_length=SEQUENCE, forward_only=False,
        )  # fmt: skip
        optimizer.step()


def beside(name: str) -> None:
    """Prints what the framework does beside our graph."""
    import windtunnel as wt
    from windtunnel.api.against import against
    from windtunnel.spec import load_job

    sets = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in (LLAMA | RUNS[name]).items()]
    job = load_job("llama3-8b-8xh100", sets)
    with TemporaryDirectory() as folder:
        command = ["torchrun", "--nproc-per-node", "8", __file__, "--train", name]
        found = against(
            wt.capture(command, "h100-ib", GPUS, ranks=[0] if name == "deepspeed" else [], out=Path(folder) / "captured"), job
        )
        parts = ((found.calls, 2**20, "MiB"), (found.products, 1e12, "TFLOP"), (found.memory, 2**20, "MiB"))
        for row, size, unit in ((row, size, unit) for rows, size, unit in parts for row in rows):
            there, ours = f"{row.count:4} {row.size / size:10.3f}", f"{row.our_count:4} {row.our_size / size:10.3f}"
            print(f"{name:17} rank {row.rank:2}  {row.what:42} {there}  {ours} {unit:5} {row.differs:+8.2%}")


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        kind = sys.argv[2]
        own = {"fsdp2": train_fsdp2, "trainer": train_trainer, "deepspeed": train_deepspeed, "torchtitan": train_torchtitan}
        own.get(kind, lambda: train_megatron(kind))()
        return
    for name in sys.argv[1:] or RUNS:
        beside(name)


if __name__ == "__main__":
    main()
