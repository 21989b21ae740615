"""Which passes of TensorRT-LLM a captured graph has, and whether prompts are cut, from its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.base.errors import SpecError

MOST = 128
"""The largest batch that it captures where nothing is stated (llmapi/llm_args.py, CudaGraphConfig)."""


def trtllm_passes_of(read: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Fields of a served job from `cuda_graph_config` and `enable_chunked_prefill`, and what they assume, in words.

    Where nothing is stated, batches of 1 to 32, 64 and 128 are captured, others are not padded to these
    (`_generate_cuda_graph_batch_sizes`), and no prompt is cut. SpecError for batches that are no numbers."""
    fields: dict[str, Any] = {} if read.get("chunked") else {"whole_prompts": True}
    if read.get("eager"):
        return fields, []
    sizes = read.get("graph_sizes") or []
    if not isinstance(sizes, Sequence) or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise SpecError("cuda_graph_config.batch_sizes", sizes, "numbers of requests, such as [1, 2, 4, 8]")
    most = max(sizes, default=read.get("graph_most") or MOST)
    if read.get("graph_padding"):
        return fields | {"graphs": f"{most}+"}, []
    usual = [*range(1, 33), *(2**power for power in range(6, most.bit_length())), most]
    graphs = ",".join(map(str, sorted({size for size in sizes or usual if size <= most})))
    return fields | {"graphs": graphs}, ["no graph for batches between the captured ones: enable_padding is not set"]
