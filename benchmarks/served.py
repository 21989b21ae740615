"""Time to first token and for each further one, predicted against measured servers.

python benchmarks/served.py TABLE.csv [--every N] [--first N] [--worst N]

TABLE.csv has one row for a server at a stated concurrency, with the columns of aiconfigurator's `silicon_sample.csv`: backend,
model_path, system, mode, isl, osl, batch_size, tp_size, attention_dp_size, moe_ep_size, gemm_quant_mode, silicon_ttft_ms,
silicon_tpot_ms. Nothing is fitted on it. Without the file the script says so and ends.

What rows leave open, and how it is read here: lengths of the public benchmark's runs are drawn from 0.8 to 1.0 of the stated ones
(its `--random-range-ratio 0.8`); where tp is beyond a node of eight and is moe_tp x moe_ep, or tp equals the DP-attention ranks,
one flag was counted twice; GPT-OSS and checkpoints in NVFP4 have experts in 4 bits; `launched` has what launch
scripts of the public benchmark set.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.serving import Served, ServePlan, serve, server_of
from windtunnel.serving.load import drawn_load
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

MODELS = {
    "DeepSeek-R1": "deepseek-v3",
    "DeepSeek-V3": "deepseek-v3",
    "DeepSeek-R1-NVFP4": "deepseek-v3",
    "DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "MiniMax-M2.5": "minimax-m2",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-32B-NVFP4": "qwen3-32b",
    "gpt-oss-120b": "gpt-oss-120b",
    "Llama-3.1-70B": "llama3.1-70b",
    "Llama-3.1-8B-Instruct": "llama3.1-8b",
    "Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
}
MACHINES = {"h100_sxm": "h100-ib", "b200_sxm": "b200-ib", "b300_sxm": "b300-ib", "gb200": "gb200-nvl72", "h200_sxm": "h200-ib"}
FORMATS = {"": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "bfloat16": "bf16"}
BLOCKS = ("deepseek-v3", "minimax-m2", "qwen3.5-397b-a17b", "qwen3-235b-a22b")
"""Models whose published FP8 checkpoints have a scale for each block of 128 (their config.json: weight_block_size)."""

USERS = 10
"""Requests of each user, as the public benchmark sends."""


@dataclass(frozen=True)
class ServedRow:
    """A row that was predicted: seconds, or why not."""

    row: dict[str, str]
    ttft: float
    tpot: float
    why: str = ""

    @property
    def family(self) -> str:
        """What the row is of."""
        return " ".join(
            (self.row["backend"], self.row["system"], self.row["model_path"].split("/")[-1], self.row["gemm_quant_mode"])
        )


def plan_of(row: dict[str, str]) -> ServePlan:
    """The row's plan."""
    tp, dp, cut, ep = (int(row[name] or 1) or 1 for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"))
    if tp == dp > 1:
        return ServePlan(tp=1, dp=dp, ep=dp)
    if max(tp, dp) > 8 and max(tp, dp) == cut * ep and cut > 1 and ep > 1:
        tp, dp, ep = (cut, 1, ep) if tp > 1 else (1, cut, ep)
    wide = tp * dp
    return ServePlan(tp=tp, dp=dp, ep=ep if wide % ep == 0 else 1)


@cache
def times_of(
    model: str,
    machine: str,
    plan: ServePlan,
    engine: str,
    formats: tuple[str, str, str],
    longest: int,
    polls: int,
    chunk: int | None,
) -> StepTimes:
    """The server's passes, which rows share."""
    weights, attention, kv = formats
    tokens = {"vllm": None, "sglang": chunk, "trtllm": max(8192, longest)}[engine]
    return StepTimes(
        server_of(
            load_model(model), machine, plan.gpus, engine, plan,
            weights=weights, attention_weights=attention or None, kv=kv, step_tokens=tokens, polls=polls,
        )
    )  # fmt: skip


def launched(engine: str, model: str, weights: str, users: int) -> tuple[str, int, int | None]:
    """(cache, passes between looks at new requests, tokens of a chunk) of a public run, as its launch scripts have them
    (SemiAnalysisAI/InferenceX benchmarks/single_node: dsr1_fp8_b200.sh, dsr1_fp4_b200.sh, dsr1_fp4_b200_trt.sh,
    qwen3.5_fp8_b200.sh, gptoss_fp4_b200.sh). NVIDIA's checkpoints in NVFP4 state a cache in FP8."""
    narrow = weights == "nvfp4" or (engine != "vllm" and weights != "bf16")
    if engine != "sglang":
        return "fp8" if narrow else "bf16", 1, None
    return "fp8" if narrow else "bf16", 30 if users >= 16 else 10, 16384 if weights == "nvfp4" else 32768


def predict_row(row: dict[str, str]) -> Served:
    """The row's server under its load."""
    model = MODELS[row["model_path"].split("/")[-1]]
    weights = FORMATS[row["moe_quant_mode"]] if row["moe_quant_mode"] else FORMATS[row["gemm_quant_mode"]]
    weights = "fp8_block" if weights == "fp8" and model in BLOCKS else weights
    attention = "bf16" if model == "gpt-oss-120b" else ""
    isl, osl = int(row["isl"]), int(row["osl"])
    public = "db-dump" in row["silicon_data_source"] or "source_file=2026" in row["silicon_data_source"]
    lengths = [f"{round(0.8 * n)}-{n}" if public else n for n in (isl, osl)]
    found = re.search(r"concurrency=(\d+)", row["silicon_data_source"])
    users = int(found[1]) if found else int(row["batch_size"])
    kv, polls, chunk = launched(row["backend"], model, weights, users) if public else ("bf16", 1, None)
    formats = (weights, attention, kv)
    longest = isl if isl > 8192 else 0
    times = times_of(model, MACHINES[row["system"]], plan_of(row), row["backend"], formats, longest, polls, chunk)
    return serve(times.server, drawn_load(*lengths, concurrency=users, requests=USERS * users), times=times)


def score(path: Path, every: int, first: int = 0) -> Iterator[ServedRow]:
    """Each `every`-th aggregated row, from the `first` on."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "agg"]
    for row in rows[first::every]:
        try:
            answer = predict_row(row)
        except (WindtunnelError, KeyError) as error:
            yield ServedRow(row, 0.0, 0.0, str(error) or type(error).__name__)
        else:
            yield ServedRow(row, answer.ttft.mean, answer.tpot.mean)


def errors_of(rows: list[ServedRow], name: str) -> list[float]:
    """Relative errors of `ttft` or `tpot`, signed."""
    return [1e3 * getattr(one, name) / float(one.row[f"silicon_{name}_ms"]) - 1.0 for one in rows]


def show(rows: list[ServedRow], worst: int) -> None:
    """Errors by family and of all."""
    good = [one for one in rows if not one.why]
    families: dict[str, list[ServedRow]] = {}
    for one in good:
        families.setdefault(one.family, []).append(one)
    print(f"{'family':62} rows  TPOT median  bias   TTFT median  bias  %")
    for name, group in sorted(families.items()):
        print_line(name, group)
    print_line("all", good)
    print(f"predicted {len(good)} of {len(rows)} rows")
    for why in sorted({one.why for one in rows if one.why}):
        print(f"  not: {sum(one.why == why for one in rows)} x {why}")
    for one in sorted(good, key=lambda one: -abs(errors_of([one], "tpot")[0]))[:worst]:
        print(one.row["id"], f"{1e3 * one.tpot:.2f} for {float(one.row['silicon_tpot_ms']):.2f} ms")


def print_line(name: str, group: list[ServedRow]) -> None:
    """One line of the table."""
    cells: list[Any] = []
    for latency in ("tpot", "ttft"):
        errors = errors_of(group, latency)
        cells += [100 * median(abs(e) for e in errors), 100 * median(errors)]
    print(f"{name:62} {len(group):4d}  {cells[0]:8.1f}  {cells[1]:+7.1f}   {cells[2]:8.1f}  {cells[3]:+7.1f}")


def main() -> None:
    """Score the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--worst", type=int, default=0)
    options = parser.parse_args()
    if options.table is None or not options.table.is_file():
        print("no table of measured servers: nothing to score")
        sys.exit(0)
    show(list(score(options.table, options.every, options.first)), options.worst)


if __name__ == "__main__":
    main()
