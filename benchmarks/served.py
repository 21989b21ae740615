"""Time to first token and for each further one, predicted against measured servers.

python benchmarks/served.py TABLE.csv [--mode agg|disagg] [--every N[:FIRST],...] [--worst N] [--speculate WORDS] [--record FILE]
    [--prompts FACTOR]

TABLE.csv has one row for a server at a stated concurrency, with the columns of aiconfigurator's `silicon_sample.csv`: backend,
model_path, system, mode, isl, osl, batch_size, tp_size, attention_dp_size, moe_ep_size, gemm_quant_mode, silicon_ttft_ms,
silicon_tpot_ms. One constant is fitted on it, on the rows of `--every 8:2,8:5,8:7` that
the record takes: `engine.PROMPTS`, where the median error of tokens is least (`--prompts`: another one). Without the file the
script says so and ends.

What rows leave open, and how it is read here: lengths of the public benchmark's runs are drawn from 0.8 to 1.0 of the stated ones
(its `--random-range-ratio 0.8`); where tp is beyond a node of eight and is moe_tp x moe_ep, or tp equals the DP-attention ranks,
one flag was counted twice; GPT-OSS has experts in MXFP4, as its checkpoint; those in NVFP4 have all linear layers in 4 bits;
`launched` has what launch scripts of the public benchmark set. Rows with prompts on copies of their own (`--mode disagg`) need
their numbers of workers, which 158 of 1,065 state.

No row says whether its server drafts tokens: the table has no column for it, and no text of it the words MTP, EAGLE, draft or
speculative. The public benchmark's configurations tell some of them apart (`drafted`), which are predicted with as many drafts and
what is published of how many are kept. A measured token that takes less than its bytes need is proof of drafts, and is counted.
`--speculate mtp,drafts=1,rate=0.85` predicts models with such a layer as if they all drafted: DeepSeek-V3's report (arXiv
2412.19437, 5.4.3) states 0.85 to 0.90 for its second token, and nothing here is fitted to the rows.

`--carried` predicts each row as if no GPU of its architecture had been measured.
`--record FILE` writes the errors by kind of server, from which answers take theirs (`catalog/served_accuracy.toml`); servers that
`is_held_out` picks take no part in it, nor do rows of `--scored`. The catalogue's lines are of
`--every 8:2,8:5,8:7,37,41 --scored 43` (every 8th row from numbers 2, 5 and 7 on, with every 37th and 41st, without every 43rd),
and of `--mode disagg --most 256 --each 3`. Without it, the script says how many rows that the record leaves out lie inside what
answers state.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.compute.engines.file import choose_carried
from windtunnel.formats.jobs.servers.launch import BALANCE_WAIT
from windtunnel.serving import Served, ServePlan, answer, serve, server_of, step_times
from windtunnel.serving.drafting import times_of as drafting_times
from windtunnel.serving.engine import PROMPTS
from windtunnel.serving.load import drawn_load
from windtunnel.serving.predict import serve_sides
from windtunnel.serving.published import (
    CARRIED,
    FIGURES,
    FirstSpreads,
    FirstToken,
    PublishedServers,
    ServerKind,
    catalogue_servers,
    catalogue_spreads,
    errors_of_figure,
    first_widening,
    fit_spreads,
    kinds_around,
    record_text,
)
from windtunnel.serving.room import room_of
from windtunnel.serving.speculation import speculation_of
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

MODELS = {
    **dict.fromkeys(("DeepSeek-R1", "DeepSeek-V3", "DeepSeek-R1-NVFP4", "DeepSeek-V3.1-NVFP4"), "deepseek-v3"),
    **dict.fromkeys(("Qwen3-32B", "Qwen3-32B-NVFP4"), "qwen3-32b"),
    **{"MiniMax-M2.5": "minimax-m2", "gpt-oss-120b": "gpt-oss-120b", "Qwen3.5-397B-A17B": "qwen3.5-397b-a17b"},
    **{"Llama-3.1-70B": "llama3.1-70b", "Llama-3.1-8B-Instruct": "llama3.1-8b", "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b"},
}
MACHINES = {"h100_sxm": "h100-ib", "b200_sxm": "b200-ib", "b300_sxm": "b300-ib", "gb200": "gb200-nvl72", "h200_sxm": "h200-ib"}
FORMATS = {"": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "bfloat16": "bf16"}
BLOCKS = ("deepseek-v3", "minimax-m2", "qwen3.5-397b-a17b", "qwen3-235b-a22b")
"""Models whose published FP8 checkpoints have a scale for each block of 128 (their config.json: weight_block_size)."""

DRAFTERS = ("qwen3.5-397b-a17b",)
"""Models with a further layer that drafts, which their entries leave out (config.json: mtp_num_hidden_layers 1)."""

BUILDS = {"nightly-dev": "0.5.9", "nightly-dev-20260216-d3bae71e": "0.5.9"}
"""Builds of SGLang of 2026-02-16 -> the release of the days after."""

FEWEST = 3  # servers below which a kind says too little of the next one
SIDES = {"agg": "together", "disagg": "apart"}

SOURCE = "silicon_sample.csv of ai-dynamo/aiconfigurator (Apache-2.0)"

WORDS = 6.3e-6
"""Seconds in which a token of random words is tokenised, which the public benchmark sends (`serving.simulate`: 5.8 to 6.9 us);
genai-perf's prompts are of English."""

WARMED = "2026-01-21"
"""The day from which the public benchmark's client sends two requests of each user to warm a server up (SemiAnalysisAI/InferenceX,
pull request 480)."""

USERS = 10
"""Requests of each user, as the public benchmark sends."""


@dataclass(frozen=True)
class ServedRow:
    """A row that was predicted: seconds, or why not; what the answer states as its errors."""

    row: dict[str, str]
    ttft: float
    tpot: float
    why: str = ""
    floor: float = 0.0
    kind: ServerKind | None = None
    first: FirstToken | None = None
    stated: dict[str, float | None] = field(default_factory=dict)
    is_scored: bool = False

    @property
    def server(self) -> str:
        """What rows of one server share: all but lengths and users."""
        loads = ("id", "silicon_data_source", "isl", "osl", "batch_size", "prefill_batch_size", "decode_batch_size")
        named = self.row.items()
        return " ".join(value for name, value in named if value and name not in loads and not name.startswith("silicon"))

    @property
    def is_held_out(self) -> bool:
        """Whether the record leaves the row out: rows of `--scored`, and one server in five, by a hash of its words."""
        return self.is_scored or int(hashlib.sha256(self.server.encode()).hexdigest(), 16) % 5 == 0

    def errors(self) -> dict[str, float]:
        """Relative errors by figure; throughput by Little's law from both latencies, with the mean output."""
        further = int(self.row["osl"]) * (0.9 if is_public(self.row) else 1.0) - 1.0
        first, each = (float(self.row[f"silicon_{name}_ms"]) / 1e3 for name in ("ttft", "tpot"))
        throughput = (first + further * each) / (self.ttft + further * self.tpot) - 1.0
        return {"ttft": self.ttft / first - 1.0, "tpot": self.tpot / each - 1.0, "throughput": throughput}

    @property
    def family(self) -> str:
        """What the row is of."""
        model = self.row["model_path"].split("/")[-1]
        return " ".join((self.row["backend"], self.row["system"], model, self.row["gemm_quant_mode"]))


def plan_of(row: dict[str, str], side: str = "") -> ServePlan:
    """The row's plan; `side`: "prefill_" or "decode_" of a row with both."""
    names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    tp, dp, cut, ep = (int(row[side + name] or 1) or 1 for name in names)
    if tp == dp > 1:
        return ServePlan(tp=1, dp=dp, ep=dp) if starts_groups(row) else ServePlan(tp=tp, ep=tp)
    if max(tp, dp) > 8 and max(tp, dp) == cut * ep and cut > 1 and ep > 1:
        tp, dp, ep = (cut, 1, ep) if tp > 1 else (1, cut, ep)
    wide = tp * dp
    return ServePlan(tp=tp, dp=dp, ep=ep if wide % ep == 0 else 1)


def starts_groups(row: dict[str, str]) -> bool:
    """Whether the script of a public run starts DP-attention ranks where its configuration asks for them: those of MiniMax in FP8
    on vLLM have no such flag, and its servers are of tensor and expert parallelism (minimaxm2.5_fp8_h100.sh and those of B200 and
    B300 of March and April 2026)."""
    return not (row["backend"] == "vllm" and "MiniMax" in row["model_path"] and row["gemm_quant_mode"] == "fp8" and is_public(row))


@dataclass(frozen=True)
class Launch:
    """What a server was started with: format of its cache, passes between looks at new requests, tokens of a pass or a chunk,
    requests at once, drafts in `--speculate`'s words, captured passes in `--graphs`', the kernel of its experts, the share of GPU
    memory that it may use, whether it is told to schedule ahead."""

    kv: str = "bf16"
    polls: int = 1
    chunk: int | None = None
    running: int | None = None
    drafts: str = ""
    graphs: str | None = None
    experts: str | None = None
    memory: float | None = None
    ahead: bool = False
    prompts: float = PROMPTS


@cache
def times_of(
    model: str, machine: str, plan: ServePlan, engine: str, formats: tuple[str, str], longest: int, launch: Launch,
    copies: int = 1, release: str | None = None, graphs: str | None = None,
) -> StepTimes:  # fmt: skip
    """The server's passes, which rows share."""
    weights, attention = formats
    tokens = launch.chunk if launch.chunk is not None or engine != "trtllm" else max(8192, longest)
    plain = graphs is not None
    served = load_model(model)
    if launch.drafts and model in DRAFTERS and not served.mtp_layers:
        served = served.model_copy(update={"mtp_layers": 1})
    drafts = speculation_of(launch.drafts, served, load_model) if launch.drafts and served.mtp_layers else None
    server = server_of(
        served, machine, copies * plan.gpus, engine, plan, weights=weights, attention_weights=attention or None, kv=launch.kv,
        step_tokens=tokens, running=launch.running, polls=launch.polls, speculation=drafts, release=release,
        graphs=graphs or launch.graphs, sync=plain, whole_prompts=plain, expert_kernel=launch.experts,
        memory=launch.memory, ahead=launch.ahead,
    )  # fmt: skip
    return drafting_times(replace(server, engine=replace(server.engine, prompts=launch.prompts)))


def launched(row: dict[str, str], model: str, weights: str, plan: ServePlan) -> Launch:
    """A public run's options, as its launch scripts have them (SemiAnalysisAI/InferenceX benchmarks/single_node: dsr1_fp8_b200.sh,
    dsr1_fp4_b200.sh, dsr1_fp4_b200_trt.sh, dsr1_fp8_b200_trt.sh, qwen3.5_fp8_b200.sh, qwen3.5_fp8_b300.sh, gptoss_fp4_b200.sh,
    gptoss_fp4_b200_trt.sh: attention_dp_config; minimaxm2.5_fp8_b200.sh, minimaxm2.5_fp8_h100.sh, gptoss_fp4_h100.sh;
    benchmarks/70b_fp8_h100_docker.sh, 70b_fp8_b200_docker.sh, and the scripts of the same names at the rows' dates). NVIDIA's
    checkpoints in NVFP4 state a cache in FP8."""
    engine, users, together = row["backend"], users_of(row), row["mode"] == "agg"
    narrow = weights == "nvfp4" or (engine != "vllm" and weights != "bf16")
    drafts = drafted(row, model, plan) if together else ""
    if engine == "vllm":
        later = row["system"] != "h100_sxm" and not row["backend_version"].startswith("0.17")  # whose script has no cache's format
        narrow = narrow or model.startswith("llama") or later
        updated = model == "minimax-m2" and later
        twice = 2 * int(row["isl"]) if updated else None
        wide = updated or (model == "gpt-oss-120b" and row["backend_version"])
        graphs = "2048+" if wide else None  # max-cudagraph-capture-size
        first = model == "minimax-m2" and row["backend_version"].startswith("0.17")
        experts, memory = ("triton", 0.95) if first else (None, None)  # neither FlashInfer's nor DeepGEMM's
        hopper = row["system"] == "h100_sxm"
        running = (256 if hopper else None) if model == "minimax-m2" else users if hopper else 512  # --max-num-seqs
        told = together and model != "minimax-m2"  # async-scheduling
        return Launch("fp8" if narrow else "bf16", 1, twice, running if together else None, "", graphs, experts, memory, told)
    kv = "fp8" if narrow else "bf16"
    if engine == "trtllm":
        polls = (BALANCE_WAIT if model == "gpt-oss-120b" else 60) if plan.dp > 1 else 1
        short = row["isl"] == row["osl"] == "1024" and users >= 64
        if model == "deepseek-v3" and weights == "fp8_block" and short and row["backend_version"] == "1.2.0rc6.post2":
            polls = 40  # dsr1_fp8_b200_trt.sh: batch_wait_timeout_iters
        experts = trtllm_experts(row, model, weights, plan) if together else None
        return Launch(kv, polls, trtllm_tokens(row, model, plan) if together else None, drafts=drafts, experts=experts)
    found = sglang_launch(row, model, weights, kv, users, drafts)
    return found if together else replace(found, running=None)


def trtllm_experts(row: dict[str, str], model: str, weights: str, plan: ServePlan) -> str | None:
    """The kernel of DeepSeek's experts in the scripts (`moe_config: backend`): from release 1.2 on TensorRT-LLM's own, but CUTLASS
    in 4 bits under DP attention; before, DeepGEMM in 8 bits, and CUTLASS in 4 for many users."""
    if model != "deepseek-v3":
        return None
    users, recent = users_of(row), row["backend_version"] >= "1.2"
    if weights == "nvfp4":
        many = users > 32 if row["isl"] == "8192" else users >= 256
        return "cutlass" if plan.dp > 1 or (many and not recent) else None
    return None if recent else "deepgemm"


def trtllm_tokens(row: dict[str, str], model: str, plan: ServePlan) -> int | None:
    """Tokens of a pass: 20,000 of GPT-OSS; of DeepSeek a prompt, a token for each user and 64 more, in whole 64s, and from release
    1.2 on at least 8,192 where none are drafted. Without chunks, so few are one prompt a pass."""
    if model == "gpt-oss-120b":
        return 20000
    if model != "deepseek-v3":
        return None
    words = drafted(row, model, plan)
    seats = users_of(row)
    if words:
        seats = max(1, seats // plan.dp) * (int(words.split("drafts=")[1]) + 1)
    tokens = (seats + int(row["isl"]) + 127) // 64 * 64
    return max(tokens, 8192) if row["backend_version"].startswith("1.2") and not words else tokens


def sglang_launch(row: dict[str, str], model: str, weights: str, kv: str, users: int, drafts: str) -> Launch:
    """SGLang's options in the scripts of DeepSeek and Qwen3.5."""
    polls, chunk, running = 30 if users >= 16 else 10, 16384 if weights == "nvfp4" else 32768, 128
    if model == "deepseek-v3":
        running = 512 if drafts else 256 if weights == "nvfp4" else 128
        chunk = 16384 if drafts else chunk
        if weights == "fp8_block" and row["tp_size"] == "4":
            polls, chunk, running = 10, 8192, 32
    elif drafts:
        running = users
    elif row["system"] == "b300_sxm" and weights == "fp8_block" and row["backend_version"].startswith("0.5.10"):
        polls, chunk, running = 10, 16384, users
    memory = 0.82 if weights == "bf16" else 0.8
    if model == "deepseek-v3":
        memory = 0.85 if weights == "nvfp4" else 0.95 if row["tp_size"] == "4" else 0.82
    return Launch(kv, polls, chunk, running, drafts, memory=memory)


def drafted(row: dict[str, str], model: str, plan: ServePlan) -> str:
    """What a public run's server drafts. The table says nothing of it, but images and plans of the benchmark's configurations do
    (configs/nvidia-master.yaml of January to April 2026): `trt-mtp` alone has release 1.2.0rc6.post3, and came in January with
    1.1.0rc2.post2, with one draft under DP attention, else three (dsr1_fp8_b200_trt_mtp.sh); of Qwen3.5 in FP8, `sglang-mtp` alone
    has tp 4 without ep, with three (qwen3.5_fp8_b200_mtp.sh), until SGLang 0.5.10; of DeepSeek in FP8, it alone has more than 64
    users, with two (dsr1_fp8_b200_mtp.sh). Its other rows have the words of rows that do not draft, and are read as those."""
    engine, release, fp8 = row["backend"], row["backend_version"], row["gemm_quant_mode"].startswith("fp8")
    first = release == "1.1.0rc2.post2" and "measured=2026" in row["silicon_data_source"]
    if model == "deepseek-v3" and engine == "trtllm" and (release == "1.2.0rc6.post3" or first):
        return f"mtp,drafts={1 if plan.dp > 1 else 3}"
    if engine != "sglang" or release != "0.5.9" or not fp8:
        return ""
    if model == "qwen3.5-397b-a17b" and plan.tp == 4 and plan.ep == 1:
        return "mtp,drafts=3"
    if model == "deepseek-v3" and row["system"] == "b200_sxm" and plan.ep == 1:
        return "mtp,drafts=2" if users_of(row) > 64 or (row["isl"] == "8192" and plan.tp == 8 and users_of(row) > 4) else ""
    return ""


GENERATED = "1.0.0rc3"
"""The release of TensorRT-LLM whose options aiconfigurator's template of that name states: batches of `GRAPHS` captured and none
padded, no overlap, no chunks (generator/config/backend_templates/trtllm/extra_engine_args.1.0.0rc3.yaml.j2)."""
GRAPHS = "1,2,4,8,16,32,64,128,256"


def generated(engine: str, release: str, isl: int, users: int) -> tuple[int | None, str | None]:
    """(tokens of a pass, captured batches) of servers that aiconfigurator started for its own table. Its generator allows a pass
    the longest prompt, 1,500 more, and a token for each seat: TensorRT-LLM's are the users, vLLM's 512 (cli/backends/trtllm.py of
    the first commit; generator/rule_plugin/trtllm.rule, vllm.rule)."""
    if engine == "sglang":
        return None, None
    seats = users if engine == "trtllm" else max(512, users)
    return isl + 1500 + seats, GRAPHS if engine == "trtllm" and release == GENERATED else None


def predict_row(row: dict[str, str], speculate: str = "", each: int = USERS, prompts: float = PROMPTS) -> Served:
    """The row's server under its load of `each` requests a user. KeyError for one that leaves its numbers of workers open."""
    model = MODELS[row["model_path"].split("/")[-1]]
    weights = FORMATS[row["moe_quant_mode"]] if row["moe_quant_mode"] else FORMATS[row["gemm_quant_mode"]]
    weights = "fp8_block" if weights == "fp8" and model in BLOCKS else weights
    weights = "mxfp4" if model == "gpt-oss-120b" else weights  # its checkpoint, which the table calls NVFP4
    attention = "bf16" if model == "gpt-oss-120b" else ""
    isl, osl = int(row["isl"]), int(row["osl"])
    lengths = [f"{round(0.8 * n)}-{n}" if is_public(row) else n for n in (isl, osl)]
    users = users_of(row)
    launch, graphs = Launch(), None
    if is_public(row):
        launch = launched(row, model, weights, plan_of(row) if row["mode"] == "agg" else ServePlan())
    elif row["mode"] == "agg":
        chunk, graphs = generated(row["backend"], row["backend_version"], isl, users)
        launch = Launch(chunk=chunk)
    launch = replace(launch, drafts=speculate or launch.drafts, prompts=prompts)
    formats = (weights, attention)
    longest = isl if isl > 8192 else 0
    release = row["backend_version"] if row["backend_version"][:1].isdigit() else BUILDS.get(row["backend_version"])
    load = drawn_load(*lengths, concurrency=users, requests=each * users)
    load = replace(load, tokenise=WORDS, cold=is_cold(row)) if is_public(row) else load

    def times(side: str, copies: int) -> StepTimes:
        machine = MACHINES[row["system"]]
        return times_of(model, machine, plan_of(row, side), row["backend"], formats, longest, launch, copies, release, graphs)

    if row["mode"] == "agg":
        alone = times("", 1)
        return serve(alone.server, load, times=alone)
    workers = [int(row[f"{side}_num_workers"] or 0) for side in ("prefill", "decode")]
    if not all(workers):
        raise KeyError("the row leaves its numbers of workers open")
    front, back = times("prefill_", workers[0]), times("decode_", workers[1])
    return serve_sides((front, back), (room_of(front.server, front), room_of(back.server, back)), load)


def is_public(row: dict[str, str]) -> bool:
    """Whether the row is of the public benchmark; the figures of its `gap-analysis` are those of rows with its dates."""
    return any(words in row["silicon_data_source"] for words in ("db-dump", "source_file=2026", "gap-analysis.csv"))


def is_cold(row: dict[str, str]) -> bool:
    """Whether the public benchmark's client sent a server nothing before the requests that it timed, as it did until `WARMED`."""
    return (re.search(r"measured=([0-9-]{10})", row["silicon_data_source"]) or ("", WARMED))[1] < WARMED


def users_of(row: dict[str, str]) -> int:
    """Users who each send the next request when the last one has ended."""
    found = re.search(r"concurrency=(\d+)", row["silicon_data_source"])
    if found:
        return int(found[1])
    if row["mode"] == "agg":
        return int(row["batch_size"])
    return int(row["decode_batch_size"]) * int(row["decode_num_workers"]) * plan_of(row, "decode_").dp


def chosen_rows(every: str, count: int) -> list[int]:
    """Numbers of rows below `count`: those of `8:2,37` are every 8th from number 2 on, and every 37th from 0 on."""
    steps = [(int(step), int(first or 0)) for step, _, first in (one.partition(":") for one in every.split(","))]
    return sorted({number for step, first in steps for number in range(first, count, step)})


def score(
    path: Path,
    every: str,
    mode: str = "agg",
    speculate: str = "",
    most: int = 10**9,
    each: int = USERS,
    scored: str = "",
    prompts: float = PROMPTS,
) -> Iterator[ServedRow]:
    """The rows of a mode that `every` names; those with more than `most` users are left out."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == mode]
    apart = set(chosen_rows(scored, len(rows))) if scored else set()
    for number in chosen_rows(every, len(rows)):
        row = rows[number]
        try:
            if row["mode"] == "disagg" and not row["decode_num_workers"]:
                raise KeyError("the row leaves its numbers of workers open")
            if users_of(row) > most:
                continue
            served = predict_row(row, speculate, each, prompts)
        except (WindtunnelError, KeyError) as error:
            yield ServedRow(row, 0.0, 0.0, str(error) or type(error).__name__)
        else:
            yield ServedRow(
                row, served.ttft.mean, served.tpot.mean, floor=served.floor_tpot, kind=served.kind, first=served.first,
                stated=served.relative_errors(), is_scored=number in apart,
            )  # fmt: skip


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
    drafting = [one for one in good if float(one.row["silicon_tpot_ms"]) < 1e3 * one.floor]
    print(f"{len(drafting)} measured tokens take less than their bytes: their servers drafted")
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


def spreads_of(rows: list[ServedRow]) -> FirstSpreads:
    """The spreads of a first token's parts, without what is held out."""
    kept = [(one.first, one.errors()["ttft"]) for one in rows if one.first is not None and not one.is_held_out]
    return fit_spreads([first for first, _ in kept], [error for _, error in kept])


def record_of(rows: list[ServedRow], spreads: FirstSpreads) -> dict[ServerKind, PublishedServers]:
    """A line for each kind with FEWEST servers, and for each wider one, without what is held out."""
    groups: dict[ServerKind, list[ServedRow]] = {}
    for one in rows:
        if one.kind is not None and not one.is_held_out:
            kinds = dict.fromkeys(kinds_around(one.kind))
            nearest = next(iter(kinds))
            for kind in kinds:
                if (kind.drafts, kind.start) == (nearest.drafts, nearest.start):
                    groups.setdefault(kind, []).append(one)
    found = {}
    for kind, group in sorted(groups.items(), key=lambda entry: tuple(vars(entry[0]).values())):
        servers = len({one.server for one in group})
        if servers >= FEWEST:
            figures = {name: errors_of_figure([one.errors()[name] for one in group], servers) for name in FIGURES}
            firsts = [(one.first, one.errors()["ttft"]) for one in group if one.first is not None]
            widen = first_widening(spreads, *map(list, zip(*firsts, strict=True)), servers) if firsts else 1.0
            most = max(users_of(one.row) for one in group)
            found[kind] = PublishedServers(kind, len(group), servers, figures, most, widen)
    return found


def show_inside(rows: list[ServedRow]) -> None:
    """Shares of the rows that the record leaves out which lie inside what answers state, by what they are of."""
    groups: dict[str, list[ServedRow]] = {}
    for one in rows:
        if one.kind is not None and one.is_held_out:
            users = users_of(one.row)
            load = "below 16 users" if users < 16 else "16 to 64 users" if users <= 64 else "above 64 users"
            alike = (f"drafts {one.kind.drafts}", f"{one.kind.start} start")
            for name in (one.kind.engine, one.kind.trained, one.kind.gpu, *alike, load, "all"):
                groups.setdefault(name, []).append(one)
    print(f"\n{'rows that the record leaves out, inside ±':42} rows  " + "  ".join(FIGURES) + "  %")
    for group, held in sorted(groups.items()):
        shares = [sum(abs(one.errors()[name]) <= (one.stated[name] or 0.0) for one in held) / len(held) for name in FIGURES]
        cells = "  ".join(f"{100 * share:{len(name)}.0f}" for name, share in zip(FIGURES, shares, strict=True))
        print(f"{group:42} {len(held):4d}  {cells}")


def main() -> None:
    """Score the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path)
    parser.add_argument("--every", default="1", help="rows: every N-th from FIRST on, N[:FIRST],...")
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--mode", choices=("agg", "disagg"), default="agg")
    parser.add_argument("--speculate", default="")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--scored", default="", help="rows that the record leaves out, as in --every")
    parser.add_argument("--most", type=int, default=10**9, help="users")
    parser.add_argument("--carried", action="store_true")
    parser.add_argument("--each", type=int, default=USERS, help="requests of a user")
    parser.add_argument("--prompts", type=float, default=PROMPTS)
    options = parser.parse_args()
    if options.table is None or not options.table.is_file():
        print("no table of measured servers: nothing to score")
        sys.exit(0)
    if options.carried:
        step_times.choose_engine = choose_carried
        answer.is_unmeasured = lambda gpu: True
    chosen = (options.every, options.mode, options.speculate, options.most, options.each, options.scored, options.prompts)
    rows = list(score(options.table, *chosen))
    show(rows, options.worst)
    if options.record is None:
        show_inside(rows)
    else:
        is_first = options.mode == "agg" and not options.carried
        spreads = spreads_of(rows) if is_first else catalogue_spreads()
        record = record_of(rows, spreads)
        others = [
            line
            for line in catalogue_servers().values()
            if line.kind.sides != SIDES[options.mode] or (line.kind.gpu == CARRIED) != options.carried
        ]
        record = {kind: line for kind, line in record.items() if (kind.gpu == CARRIED) == options.carried}
        lines = sorted([*record.values(), *others], key=lambda line: tuple(vars(line.kind).values()))
        options.record.write_text(record_text(lines, spreads, SOURCE), encoding="utf-8")


if __name__ == "__main__":
    main()
