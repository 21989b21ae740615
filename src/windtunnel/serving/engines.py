"""What an inference engine does with requests, as numbers: its limits, its blocks, what its kernels fuse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from windtunnel.base.errors import UnknownName
from windtunnel.spec import GPU

GAP = 0.25e-3
"""Seconds between passes in which the GPU has no kernel: what is left of the host's work where the engine schedules ahead, as all
three do by default; 200 to 300 us by vllm-project/vllm issue 10634, in which 5 to 6 ms without it were measured."""

CALL = 50e-6
"""Seconds in which a host calls an operator of a pass without a captured graph. Published: 34.4 ms for the 48 layers of
Qwen3-30B-A3B with tp 4 (vllm-project/vllm issue 45709), 82.6 ms for the 61 of DeepSeek-V3 (sgl-project/sglang pull request 12160),
16.6 ms for the 36 of Qwen3-4B (wejoncy/sfllm pull request 46), 21 ms for 28 of a dense model (vllm-project/vllm-omni issue 7960);
over the operators of a layer here these are 51, 52, 48 and 83 us."""

LARGE = 70 * 2**30
"""Bytes of GPU memory from which vLLM schedules larger batches."""


@dataclass(frozen=True)
class ServeEngine:
    """Limits of an engine's scheduler.

    `step_tokens`: most tokens of one forward pass; `prefill_chunk`: most prompt tokens of one pass of prefill (SGLang);
    `running`: most requests that run at once; `block`: tokens of a block of the cache; `memory`: share of GPU memory for weights,
    activations and cache, or of what weights leave (`memory_after_weights`); `graph_tokens`: largest batch that runs as a CUDA
    graph, padded to the next captured size; `fuses_quantising`: norms and activations write quantised outputs;
    `fuses_reduction`: a tensor-parallel all-reduce, the residual add and the norm after it are one kernel; `polls`: passes that
    decode between two looks at new requests (SGLang's --scheduler-recv-interval; a pass of prompts is followed by a look);
    `reserves_prompt`: a request starts only if all of its prompt has room, not its first chunk alone (vLLM's
    scheduler_reserve_full_isl); `keeps_blocks`: a preempted request may find its blocks again (vLLM's prefix caching, on by
    default); `gap`: seconds of host work between passes that nothing hides, `request_gap`: those of each decoding request;
    `layer_host`: seconds in
    which the host launches a layer's kernels, where no captured graph does. `ahead`: the next pass is chosen when the one before it
    begins, so a request that comes meanwhile waits for both; `call_host`: seconds in which the host calls a kernel of a pass that
    no graph covers: of more than `graph_tokens` tokens, and of prompts, unless the engine `captures_prompts`.
    """

    name: str
    step_tokens: int
    prefill_chunk: int
    running: int
    block: int
    memory: float
    memory_after_weights: bool
    graph_tokens: int
    fuses_quantising: bool
    fuses_reduction: bool
    conservativeness: float = 1.0
    polls: int = 1
    reserves_prompt: bool = False
    keeps_blocks: bool = False
    gap: float = GAP
    request_gap: float = 0.0
    layer_host: float = 0.0
    ahead: bool = True
    call_host: float = CALL
    captures_prompts: bool = False


ENGINES = ("vllm", "sglang", "trtllm")
"""Engines whose rules are known."""


def engine_of(name: str, gpu: GPU, tp: int = 1) -> ServeEngine:
    """The engine with its defaults on `gpu`. UnknownName for another name.

    vLLM V1 (vllm/engine/arg_utils.py, `get_batch_defaults`): GPUs of 70 GiB and more but A100 take 8,192 tokens and 1,024
    sequences in a server, others 2,048 and 256; blocks of 16; 0.9 of the memory. SGLang (server_args.py): chunks of 2,048, 4,096,
    8,192 or 16,384 tokens below 35, 60, 160 GB and above; page of 1 token; graphs to 256 sequences below tp 4, else 512.
    TensorRT-LLM (llmapi/llm_args.py): 8,192 tokens, 2,048 sequences, blocks of 32, 0.9 of what weights leave.
    """
    if name == "vllm":
        large = gpu.memory >= LARGE and not gpu.id.startswith("a100")
        tokens, running = (8192, 1024) if large else (2048, 256)
        return ServeEngine(
            name,
            tokens,
            0,
            running,
            16,
            0.9,
            False,
            512,
            True,
            False,
            reserves_prompt=True,
            keeps_blocks=True,
            captures_prompts=True,
        )
    if name == "sglang":
        gigabytes = gpu.memory / 1e9
        chunk = next((tokens for below, tokens in ((35, 2048), (60, 4096), (160, 8192)) if gigabytes < below), 16384)
        return ServeEngine(name, 16384, chunk, 2048, 1, 0.88, False, 256 if tp < 4 else 512, False, False)
    if name == "trtllm":
        return ServeEngine(name, 8192, 0, 2048, 32, 0.9, True, 2048, True, True)
    raise UnknownName("engine", name, ENGINES)


def captured_sizes(most: int) -> tuple[int, ...]:
    """Batch sizes of captured CUDA graphs up to `most`: 1, 2, 4, 8, then every 8 to 256 and every 16 above (vLLM's default)."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, max(most, 256) + 1, 16)]
    return tuple(size for size in sizes if size <= most)


def with_limits(
    engine: ServeEngine, step_tokens: int | None, running: int | None, memory: float | None, polls: int | None = None
) -> ServeEngine:
    """The engine with stated limits in place of its defaults."""
    changed = {"step_tokens": step_tokens, "running": running, "memory": memory, "polls": polls}
    stated = {key: value for key, value in changed.items() if value is not None}
    if step_tokens is not None and engine.prefill_chunk:
        stated["prefill_chunk"] = step_tokens
    return replace(engine, **stated)  # type: ignore[arg-type]
