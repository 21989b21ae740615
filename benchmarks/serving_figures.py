"""Published throughput of servers, predicted: TensorRT-LLM's table at maximum load, and SGLang's DeepSeek-V3 on 96 H100.

python benchmarks/serving_figures.py [TABLE.csv] [--every N]

TABLE.csv has TensorRT-LLM's performance overview (docs/source/performance/perf-overview.md, release 1.0), a figure in each row:
model, weights, gpu, plan, isl, osl, value: output tokens a second with all requests sent at once. Nothing is fitted on it. Caches
are in FP8, as its checkpoints state; mixtures of experts have DP attention over all ranks, as its guide sets; batches go up to the
engine's 2,048 requests for each rank with requests of its own. SGLang's figures (lm-sys.org, 2025-05-05) are tokens a second of a
node: prompts on 32 GPUs, and decoding with 256 requests a GPU at 2,000 cached tokens on 72, whose 288 experts with copies stand
here as 64 GPUs with 256.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path
from statistics import median

from windtunnel.base.errors import WindtunnelError
from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import drawn_load
from windtunnel.serving.room import room_of
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

MODELS = {
    "Llama-3.3-70B-Instruct": "llama3.1-70b",
    "Llama-3.1-405B-Instruct": "llama3.1-405b",
    "Llama-3.1-8B-Instruct": "llama3.1-8b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Llama-4-Scout-17B-16E": "llama4-scout",
    "Llama-4-Maverick-17B-128E": "llama4-maverick",
}
MACHINES = {"H100": "h100-ib", "H200": "h200-ib", "B200": "b200-ib", "GB200": "gb200-nvl72", "RTXPRO6000": "rtx-pro-6000"}
WAVES = 3
"""Requests of each place in the batch: enough for the long run."""

PROMPTS = ((1024, 57674.0), (2048, 54543.0), (4096, 50302.0))
"""Prompt tokens, and input tokens a second of a node."""

DECODED = 22282.0
"""Output tokens a second of a node."""


def predict_figure(row: dict[str, str]) -> float:
    """Output tokens a second of a row's server when it never lacks requests."""
    model = load_model(MODELS[row["model"]])
    tp, pp = (int(found[1]) if (found := re.search(rf"{name}(\d+)", row["plan"])) else 1 for name in ("tp", "pp"))
    plan = ServePlan(dp=tp, ep=tp) if model.experts and pp == 1 else ServePlan(tp=tp, pp=pp)
    machine, isl, osl = MACHINES[row["gpu"]], int(row["isl"]), int(row["osl"])
    server = server_of(model, machine, plan.gpus, "trtllm", plan, weights=row["weights"], kv="fp8", step_tokens=max(8192, isl))
    times = StepTimes(server)
    held = room_of(server, times).requests(isl + osl)
    users = max(1, min(int(held), server.engine.running)) * server.lanes
    return serve(server, drawn_load(isl, osl, concurrency=users, requests=WAVES * users), times=times).tokens_per_s


def show_table(path: Path, every: int) -> None:
    """Each `every`-th row of the table, and the median of all of them."""
    errors = []
    for row in list(csv.DictReader(path.open(encoding="utf-8")))[::every]:
        name = f"{row['model']} {row['gpu']} {row['plan'].split(' (')[0]} {row['isl']}/{row['osl']}"
        try:
            predicted = predict_figure(row)
        except (WindtunnelError, KeyError) as error:
            print(f"{name:60} not: {str(error)[:90]}")
            continue
        errors.append(predicted / float(row["value"]) - 1.0)
        print(f"{name:60} {float(row['value']):9.0f} {predicted:9.0f} {100 * errors[-1]:+6.1f} %", flush=True)
    if errors:
        inside = sum(abs(error) <= 0.15 for error in errors)
        print(f"TensorRT-LLM: {len(errors)} rows, median error {100 * median(map(abs, errors)):.1f} %, ", end="")
        print(f"bias {100 * median(errors):+.1f} %, {inside} within 15 %")


def show_deepseek() -> None:
    """SGLang's figures of DeepSeek-V3 on H100."""
    model = load_model("deepseek-v3")
    plan = ServePlan(dp=32, ep=32)
    times = StepTimes(server_of(model, "h100-ib", 32, "sglang", plan, weights="fp8_block"))
    for prompt, measured in PROMPTS:
        count = 16384 // prompt
        one = Passing(count * prompt, count, count * prompt * (prompt + 1) / 2.0, 0, 0.0)
        predicted = 8 * count * prompt / times.meeting_seconds([(one, count, 32)], 0)
        error = 100 * (predicted / measured - 1)
        print(f"DeepSeek-V3 96 H100, prompts of {prompt:5}: {measured:8.0f} {predicted:8.0f} {error:+6.1f} %")
    wide = StepTimes(server_of(model, "h100-ib", 64, "sglang", ServePlan(dp=64, ep=64), weights="fp8_block"))
    one = Passing(0, 0, 0.0, 256, 256 * 2000.0)
    predicted = 8 * 256 / wide.meeting_seconds([(one, 256, 64)], 0)
    print(f"DeepSeek-V3 96 H100, decoding:        {DECODED:8.0f} {predicted:8.0f} {100 * (predicted / DECODED - 1):+6.1f} %")


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("table", nargs="?", type=Path)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    show_deepseek()
    if options.table is not None and options.table.is_file():
        show_table(options.table, options.every)
    else:
        print("no table of TensorRT-LLM: only SGLang's figures are scored")


if __name__ == "__main__":
    main()
