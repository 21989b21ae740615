"""A served job as the line that starts its server: what `formats.jobs.servers.launch` reads."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import PlanError, UnknownName
from windtunnel.exports.exporters import Written
from windtunnel.serving.server import ServePlan, Server
from windtunnel.serving.speculation import Speculation
from windtunnel.spec import Model

OPTIONS = "extra_options.yaml"
"""The file of options that a line of TensorRT-LLM names."""

ONLINE = {
    "vllm": {"fp8": "fp8", "nf4": "bitsandbytes"},
    "sglang": {"fp8": "fp8", "w8a8": "w8a8_int8"},
    "trtllm": {},
}
"""Engine -> format -> the word of its --quantization that makes it from 16-bit weights."""


@dataclass
class _Line:
    """Words of a line, keys of its options' file, and what no flag says."""

    words: list[str]
    table: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any) -> None:
        """A flag with its value, where there is one."""
        if value is not None:
            self.words += [name, f"{value:g}" if isinstance(value, float) else str(value)]


def launch_script(
    server: Server, model: str, tool: str, *, prefill: tuple[ServePlan, int] | None = None, context: int | None = None
) -> Written:
    """The script that starts `server` with the weights of `model`, a name on a hub or a path.

    `tool`: vllm, sglang, trtllm or dynamo. `prefill`: the plan of copies that compute prompts, and their number. `context`: most
    tokens of a request. Raises UnknownName for another tool, and PlanError for a plan that the tool cannot run.
    """
    if tool not in TOOLS:
        raise UnknownName("FORMAT", tool, list(TOOLS))
    if prefill is not None and tool != "dynamo":
        raise PlanError("--prefill", "copies for prompts", "dynamo, which starts both sides", "Write export dynamo.")
    return TOOLS[tool](server, model, prefill, context)


def hub_name(name: str, model: Model) -> tuple[str, tuple[str, ...]]:
    """(name of the weights that a line gives, what was assumed): the one that a user typed, or the repository that the catalogue's
    entry is read from."""
    if "/" in name:
        return name, ()
    known = re.search(r"config\.json of ([\w.-]+/[\w.-]+)", model.source)
    found = known[1] if known is not None else model.name
    return found, (f"the weights of {found}",)


def _vllm(server: Server, model: str, plan: ServePlan, context: int | None, start: list[str]) -> _Line:
    line = _Line([*start, model] if start[-1] == "serve" else [*start, "--model", model])
    line.add("--tensor-parallel-size", plan.tp)
    for name, degree in (("--pipeline-parallel-size", plan.pp), ("--data-parallel-size", plan.dp)):
        line.add(name, degree if degree > 1 else None)
    if plan.ep > 1:
        if plan.ep != plan.expert_ranks:
            raise PlanError("ep", plan.ep, f"1 or tp x dp = {plan.expert_ranks}: vLLM divides experts over all ranks or none")
        line.words.append("--enable-expert-parallel")
    _add_formats(line, server, "vllm", "--quantization", "--kv-cache-dtype")
    limits = _changed_limits(server)
    line.add("--gpu-memory-utilization", limits.get("memory"))
    line.add("--max-num-seqs", limits.get("running"))
    line.add("--max-num-batched-tokens", limits.get("step_tokens"))
    line.add("--max-model-len", context)
    if not server.engine.graph_tokens:
        line.words.append("--enforce-eager")
    if not server.engine.ahead:
        line.words.append("--no-async-scheduling")
    drafted = server.speculation
    if drafted is not None:
        method = {"mtp": "mtp", "eagle": "eagle3", "draft": "draft_model", "ngram": "ngram"}[drafted.method]
        table: dict[str, Any] = {"method": method, "num_speculative_tokens": drafted.drafts}
        if drafted.model is not None:
            table["model"] = drafted.model.name
        line.add("--speculative-config", json.dumps(table))
        _say_drafts(line, drafted)
    return line


def _sglang(server: Server, model: str, plan: ServePlan, context: int | None, start: list[str]) -> _Line:
    line = _Line([*start, "--model-path", model])
    line.add("--tp-size", plan.tp * plan.dp)
    line.add("--pp-size", plan.pp if plan.pp > 1 else None)
    if plan.dp > 1:
        line.add("--dp-size", plan.dp)
        line.words.append("--enable-dp-attention")
    line.add("--ep-size", plan.ep if plan.ep > 1 else None)
    _add_formats(line, server, "sglang", "--quantization", "--kv-cache-dtype", "fp8_e4m3")
    limits = _changed_limits(server)
    line.add("--mem-fraction-static", limits.get("memory"))
    line.add("--max-running-requests", limits.get("running"))
    line.add("--chunked-prefill-size", limits.get("step_tokens"))
    line.add("--scheduler-recv-interval", limits.get("polls"))
    line.add("--context-length", context)
    if not server.engine.graph_tokens:
        line.words.append("--disable-cuda-graph")
    if not server.engine.ahead:
        line.words.append("--disable-overlap-schedule")
    drafted = server.speculation
    if drafted is not None:
        words = {"mtp": "NEXTN", "eagle": "EAGLE3", "draft": "STANDALONE", "ngram": "NGRAM"}
        line.add("--speculative-algorithm", words[drafted.method])
        if drafted.method != "ngram":
            line.add("--speculative-num-steps", drafted.drafts)
            line.add("--speculative-eagle-topk", 1)
        line.add("--speculative-num-draft-tokens", drafted.drafts + 1)
        line.add("--speculative-draft-model-path", drafted.model.name if drafted.model is not None else None)
        _say_drafts(line, drafted)
    return line


def _trtllm(server: Server, model: str, plan: ServePlan, context: int | None, start: list[str]) -> _Line:
    line = _Line([*start, model] if start[-1] == "trtllm-serve" else [*start, "--model-path", model])
    line.add("--tp_size", plan.tp * plan.dp)
    line.add("--pp_size", plan.pp if plan.pp > 1 else None)
    line.add("--ep_size", plan.ep if plan.ep > 1 else None)
    if plan.dp > 1:
        if plan.tp > 1:
            raise PlanError("tp", plan.tp, "1 with dp: TensorRT-LLM's attention DP has a rank for each group")
        line.table["enable_attention_dp"] = True
    limits = _changed_limits(server)
    if plan.dp > 1 and "polls" in limits:
        line.table["attention_dp_config"] = {"enable_balance": True, "timeout_iters": limits["polls"]}
    line.add("--max_batch_size", limits.get("running"))
    line.add("--max_num_tokens", limits.get("step_tokens"))
    line.add("--max_seq_len", context)
    line.add("--kv_cache_free_gpu_memory_fraction", limits.get("memory"))
    if server.kv != "bf16":
        line.table["kv_cache_config"] = {"dtype": server.kv}
    engine = server.engine
    if not engine.graph_tokens:
        line.table["cuda_graph_config"] = None
    elif engine.graphs:
        line.table["cuda_graph_config"] = {"batch_sizes": list(engine.graphs)}
    else:
        line.table["cuda_graph_config"] = {"enable_padding": True, "max_batch_size": engine.graph_tokens}
    if engine.cuts_prompts:
        line.table["enable_chunked_prefill"] = True
    if not server.engine.ahead:
        line.table["disable_overlap_scheduler"] = True
    _say_format(line, server)
    drafted = server.speculation
    if drafted is not None:
        kind = {"mtp": "MTP", "eagle": "Eagle", "draft": "DraftTarget", "ngram": "NGram"}[drafted.method]
        key = "num_nextn_predict_layers" if drafted.method == "mtp" else "max_draft_len"
        line.table["speculative_config"] = {"decoding_type": kind, key: drafted.drafts}
        if drafted.model is not None:
            line.table["speculative_config"]["speculative_model_dir"] = drafted.model.name
        _say_drafts(line, drafted)
    return line


def _add_formats(line: _Line, server: Server, engine: str, weights: str, kv: str, fp8: str = "fp8") -> None:
    """Flags of the weights' format, where the server makes it itself, and of the cache's."""
    word = ONLINE[engine].get(server.weights) if not server.checkpoint else None
    if word is not None:
        line.add(weights, word)
    else:
        _say_format(line, server)
    line.add(kv, {"bf16": None, "fp8": fp8}.get(server.kv, server.kv))


def _say_format(line: _Line, server: Server) -> None:
    if not server.checkpoint and server.weights != "bf16":
        line.left_out.append(f"weights {server.formats}: the server takes them from a checkpoint in that format")


def _say_drafts(line: _Line, drafted: Speculation) -> None:
    line.left_out.append(f"accepted={drafted.accepted:.4g}: how many drafts are right depends on the requests")


def _changed_limits(server: Server) -> dict[str, Any]:
    """Limits of the scheduler that are not the engine's own on this GPU."""
    from windtunnel.serving.engine import engine_of

    usual = engine_of(server.engine.name, server.job.cluster.gpu, server.plan.tp)
    names = ("memory", "running", "step_tokens", "polls")
    return {name: getattr(server.engine, name) for name in names if getattr(server.engine, name) != getattr(usual, name)}


_WRITERS = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}
_STARTS = {"vllm": ["vllm", "serve"], "sglang": ["python", "-m", "sglang.launch_server"], "trtllm": ["trtllm-serve"]}


def _write_one(tool: str) -> Callable[[Server, str, Any, int | None], Written]:
    def write(server: Server, model: str, prefill: Any, context: int | None) -> Written:
        line = _WRITERS[tool](server, model, server.plan, context, _STARTS[tool])
        return _write_script(f"launch_{tool}.sh", [(line, server.replicas)], "--extra_llm_api_options")

    return write


def _write_dynamo(server: Server, model: str, prefill: tuple[ServePlan, int] | None, context: int | None) -> Written:
    """A worker of each side, and the frontend."""
    engine = server.engine.name
    start = ["python", "-m", f"dynamo.{engine}"]
    lines = []
    if prefill is not None:
        front = _WRITERS[engine](server, model, prefill[0], context, start)
        front.words += ["--is-prefill-worker"] if engine == "vllm" else ["--disaggregation-mode", "prefill"]
        lines.append((front, prefill[1]))
    back = _WRITERS[engine](server, model, server.plan, context, start)
    if prefill is not None and engine != "vllm":
        back.words += ["--disaggregation-mode", "decode"]
    if prefill is not None and engine == "vllm":
        back.words += ["--is-decode-worker"]
    lines.append((back, server.replicas))
    return _write_script("launch_dynamo.sh", lines, "--extra-engine-args", ["python -m dynamo.frontend --http-port 8000 &"])


TOOLS: Mapping[str, Callable[[Server, str, Any, int | None], Written]] = {
    **{tool: _write_one(tool) for tool in _WRITERS},
    "dynamo": _write_dynamo,
}
"""What a served job is written for."""


def _write_script(name: str, lines: list[tuple[_Line, int]], flag: str, before: list[str] | None = None) -> Written:
    """The script of all lines; a copy that is started several times stands so often in it."""
    import yaml

    text = ["#!/bin/bash", *(before or [])]
    left_out: list[str] = []
    for number, (line, copies) in enumerate(lines):
        words = list(line.words)
        if line.table:
            file = OPTIONS if number == 0 else f"{number}_{OPTIONS}"
            text += [f"cat > {file} <<'EOF'", yaml.safe_dump(line.table, sort_keys=False).rstrip(), "EOF"]
            words += [flag, file]
        text += [shlex.join(words) + (" &" if copies > 1 or len(lines) > 1 else "")] * copies
        left_out += [one for one in line.left_out if one not in left_out]
    text += ["wait"] if text[-1].endswith("&") else []
    return Written({name: "\n".join(text) + "\n"}, left_out=tuple(left_out))
