"""Servers that LLMServingSim recorded, predicted from their requests, beside LLMServingSim's own errors.

python benchmarks/llmservingsim.py FOLDER

FOLDER is `bench/examples` of github.com/casys-kaist/LLMServingSim (read at 5daddb2, MIT). GPU/MODEL/vllm/requests.jsonl has
arrival, lengths, first and last token of each request as vLLM saw them, vllm/meta.json the server's flags, config.json the
board's memory and its link, validation/summary.txt what LLMServingSim made of it. Lengths, arrivals, flags and these two rates
go in, latencies come out; nothing is fitted on them. Arrivals are `queued_ts`, as in LLMServingSim's own comparison. Without the
folder the script says so and ends.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.serving import Served, ServePlan, serve, server_of
from windtunnel.serving.load import ServeLoad
from windtunnel.spec import load_model

MACHINES = {"RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000"}
MODELS = {"Llama-3.1-8B": "llama3.1-8b", "Qwen3-32B": "qwen3-32b", "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b"}
FORMATS = {"bfloat16": "bf16", "auto": "bf16", "fp8": "fp8"}
POINTS = (("mean", "Mean"), ("p50", "Median"), ("p90", "P90"), ("p99", "P99"))


def predict_example(folder: Path) -> tuple[Served, dict[str, dict[str, float]]]:
    """(the answer, measured seconds by latency and point) of GPU/MODEL."""
    flags = json.loads((folder / "vllm" / "meta.json").read_text(encoding="utf-8"))["engine_kwargs"]
    rows = [json.loads(line) for line in (folder / "vllm" / "requests.jsonl").read_text(encoding="utf-8").splitlines() if line]
    rows.sort(key=lambda row: row["queued_ts"])
    at, first, last = (np.array([row[name] for row in rows]) for name in ("queued_ts", "first_token_ts", "last_token_ts"))
    prompt, output = (np.array([row[name] for row in rows], np.int64) for name in ("input_toks", "output_toks"))
    wide = flags["data_parallel_size"]
    plan = ServePlan(tp=flags["tensor_parallel_size"], dp=wide, ep=wide if flags["enable_expert_parallel"] else 1)
    machine = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    board = machine["nodes"][0]["instances"][0]["npu_mem"]
    server = server_of(
        load_model(MODELS[folder.name]), MACHINES[folder.parent.name], plan.gpus, "vllm", plan,
        overrides=[
            f"cluster.node.scale_up.bandwidth={machine['link_bw']}GB/s per GPU each way",
            f"cluster.node.gpu.memory_bandwidth={board['mem_bw']}GB/s",
        ],
        weights=FORMATS[flags["dtype"]], kv=FORMATS[flags["kv_cache_dtype"]],
        step_tokens=flags["max_num_batched_tokens"], running=flags["max_num_seqs"],
    )  # fmt: skip
    many = output > 1
    measured = {
        "TTFT": summary_of(first - at),
        "TPOT": summary_of((last - first)[many] / (output[many] - 1)),
        "Latency": summary_of(last - at),
    }
    measured["tokens/s"] = {"mean": float(output.sum() / (last.max() - at.min()))}
    return serve(server, ServeLoad(prompt, output, at - at.min())), measured


def summary_of(values: Any) -> dict[str, float]:
    """Mean and quantiles."""
    return {"mean": float(values.mean()), **{f"p{n}": float(np.quantile(values, n / 100.0)) for n in (50, 90, 99)}}


def theirs_of(folder: Path) -> dict[tuple[str, str], float]:
    """LLMServingSim's errors in per cent, by latency and point, as its summary has them."""
    text = (folder / "validation" / "summary.txt").read_text(encoding="utf-8")
    found = re.findall(r"^(\w+) (\w+)\s+[\d.]+\s+[\d.]+\s+([-+][\d.]+)%", text, re.MULTILINE)
    return {(name, point): float(error) for name, point, error in found}


def main() -> int:
    """Prints measured and predicted latencies, and both errors."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    examples = [path.parent.parent for path in sorted(folder.glob("*/*/vllm/requests.jsonl"))]
    if not examples:
        print(f"{folder}: no GPU/MODEL/vllm/requests.jsonl, so nothing is scored", file=sys.stderr)
        return 0
    for one in examples:
        served, measured = predict_example(one)
        theirs = theirs_of(one)
        print(f"{one.parent.name} {one.name}: cache of {served.room.lane_tokens:,} tokens, {served.preempted} preemptions")
        spreads = {"TTFT": served.ttft, "TPOT": served.tpot, "Latency": served.e2e}
        for name, spread in spreads.items():
            for point, word in POINTS:
                real, ours = measured[name][point], getattr(spread, point)
                errors = f"{100 * (ours / real - 1):+6.1f} %  theirs {theirs[name, word]:+.1f} %"
                print(f"  {name:8}{point:5}{1e3 * real:12.1f} ms {1e3 * ours:12.1f}  {errors}")
        real = measured["tokens/s"]["mean"]
        print(f"  tokens/s     {real:12.1f}    {served.tokens_per_s:12.1f}  {100 * (served.tokens_per_s / real - 1):+6.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
