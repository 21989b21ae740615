"""What a server's flags say of drafted tokens; how many are right stands in none of them.

Which passes of vLLM and TensorRT-LLM a captured graph has, and whether prompts are cut, from their options.

Words by which servers quantise a checkpoint themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windtunnel.base.errors import SpecError

_COUNTS = ("num_speculative_tokens", "num_nextn_predict_layers", "max_draft_len")
_HEADS = ("eagle", "medusa", "mlp_speculator", "dflash", "dspark")
"""Words of heads over a model's hidden states, each priced as a dense layer."""
_LOOKS = ("ngram", "suffix", "lookahead")
"""Words of drafts that the text so far gives."""


class Drafts(NamedTuple):
    """`speculate`: as --speculate has it, "" without drafts; what is assumed of it, and what is not modelled, in words."""

    speculate: str
    assumed: list[str]
    ignored: list[str]


def _table_of(stated: Any, option: str) -> Any:
    """What `option` states, read if it is text. SpecError for no JSON."""
    if not isinstance(stated, str):
        return stated
    try:
        return json.loads(stated)
    except ValueError:
        raise SpecError(option, stated[:60], "a JSON object") from None


def drafts_of(read: Mapping[str, Any]) -> Drafts:
    """What a table says (`speculative`, of vLLM and TensorRT-LLM), or SGLang's flags (`algorithm`). SpecError for no JSON."""
    table = _table_of(read.get("speculative"), "--speculative-config")
    said, assumed, ignored = isinstance(table, Mapping), list[str](), list[str]()
    if isinstance(table, Mapping):
        method = str(table.get("method") or table.get("decoding_type") or ("draft" if table.get("model") else "")).lower()
        drafts = next((int(count) for name in _COUNTS if (count := table.get(name))), None)
        small = table.get("model") or table.get("speculative_model_dir")
    else:
        small, tokens = read.get("draft_model"), read.get("draft_tokens")
        named = "" if small is None else "ngram" if "ngram" in str(small) else "draft"  # vLLM's flags before 0.9 name no method
        method = str(read.get("algorithm") or named).lower()
        drafts = read.get("steps") or (max(1, tokens - 1) if tokens else None)
    if method in ("", "none"):
        return Drafts("", assumed, ignored)
    own = method == "eagle" and small is None and not said  # SGLang's word for a model's own further layer too
    if "mtp" in method or "nextn" in method or own:
        word, usual = "mtp", 1 if said else 3
    elif any(head in method for head in _HEADS):
        word, usual = "eagle", 5
    elif any(look in method for look in _LOOKS):
        word, usual = "ngram", 11
    else:
        word, usual = f"draft={small}", 5
    if drafts is None:
        drafts = usual
        assumed.append(f"{drafts} drafts a pass, as {method} is given no number")
    if int(read.get("branches") or 1) > 1:
        ignored.append(f"not modelled: a tree of {read.get('draft_tokens', 'several')} drafts, priced as a chain of {drafts}")
    assumed.append("tokens of a pass as published for such drafts (accepted= in --speculate states them)")
    return Drafts(f"{word},drafts={drafts}", assumed, ignored)


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


def vllm_passes_of(read: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Fields of a served job from `compilation_config` and the largest captured pass, and what is not modelled, in words: its
    cudagraph_mode says whether passes are captured, and those over prompts among them (vllm/config/compilation.py, CUDAGraphMode).
    A number alone is a level of optimisation. SpecError for no JSON."""
    table = _table_of(read.get("compiled"), "--compilation-config")
    inside = table.get("max_cudagraph_capture_size") if isinstance(table, Mapping) else None
    most = read.get("graph_most") or (inside if isinstance(inside, int) and inside > 0 else None)
    largest: dict[str, Any] = {"graphs": f"{most}+"} if most else {}
    if not isinstance(table, Mapping):
        return largest, [] if table is None else ["not modelled: --compilation-config"]
    mode = str(table.get("cudagraph_mode", "")).upper()
    said: dict[str, dict[str, Any]] = {"NONE": {"eager": True}, "FULL_DECODE_ONLY": {"graphs": "decodes"}}
    fields = said.get(mode, {})
    taken = {"cudagraph_mode", *(["max_cudagraph_capture_size"] if most == inside else [])}
    others = sorted(str(key) for key in table if key not in taken)
    return largest | fields, [f"not modelled: --compilation-config {', '.join(others)}"] if others else []


def weights_of(quantization: str) -> str | None:
    """The number format that a server's own quantising makes of a 16-bit checkpoint; None for a word that is not known."""
    return next((form for words, form in _QUANTISED if re.fullmatch(words, quantization)), None)


_QUANTISED = (
    (r"fp8|ptpc_fp8|w8a8_fp8|fbgemm_fp8|fp8_pb|modelopt(_fp8)?|fp8_per_(tensor|channel).*|eetq_fp8", "fp8"),
    (r"fp8_block.*|blockwise_fp8|deepseek_fp8|mxfp8|fp8_per_block", "fp8_block"),
    (r"modelopt_fp4|nvfp4.*|petit_nvfp4|w4a4.*", "nvfp4"),
    (r"mxfp4|quark|w4afp8_mx", "mxfp4"),
    (r"awq.*|gptq.*|moe_wna16|w4a16.*|w4afp8|int4.*|auto-round|hqq|w4a8.*|compressed-tensors|gguf|torchao", "int4"),
    (r"w8a8_int8|int8|smooth_?quant|w8a8.*", "w8a8"),
    (r"experts_int8|eetq|w8a16.*|tpu_int8", "int8"),
    (r"bitsandbytes|bitsandbytes-nf4|bnb.*", "nf4"),
)
"""Words of --quantization -> number format."""


def formats_of(read: Mapping[str, Any]) -> tuple[dict[str, str], str, list[str]]:
    """Fields of the cache's format, the name of the weights' quantisation ("" for none), which is settled when the checkpoint is
    known, and what was assumed."""
    kv, policy = str(read.get("kv", "auto")).lower(), read.get("policy")
    fields: dict[str, str] = {}
    assumed: list[str] = []
    if "fp8" in kv or policy == 8 or kv == "int8":
        fields["kv"] = "fp8"
        assumed += [] if "fp8" in kv else ["a cache of 8-bit integers as fp8"]
    elif "fp4" in kv or policy == 4 or "int4" in kv:
        fields["kv"] = "nvfp4"
        assumed += [] if "fp4" in kv else ["a cache of 4-bit integers as nvfp4"]
    quantization = str(read.get("quantization", "")).lower()
    return fields, "" if quantization in ("", "none", "hf") else quantization, assumed
