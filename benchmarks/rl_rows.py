"""Steps of reinforcement learning, predicted against published ones.

python benchmarks/rl_rows.py TABLE.csv [--record FILE]

TABLE.csv has a figure in each row: model, gpu, gpus, framework, role (colocate sync, one-step-off, fully_async, …), plan with
`resources train:rollout`, workload, osl, load, metric, value, note. Nothing is fitted on it. Without the file the script says so.

What rows leave open is stated here once a study: tables say the longest response, not the mean. The mean is the one with which the
update of the study's first synchronous row comes out; that figure is not scored, all others are. Lengths are log-normal with a
coefficient of variation of 1, prompts have 150 tokens. Plans are those of the recipes that the documentation links to.

`--record FILE` writes the errors of the steps, from which answers take theirs (`catalog/rl_accuracy.toml`).
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.rl import RLJob, RLStep, load_rl_job, predict_rl
from windtunnel.rl.answer import PublishedRL, rl_record_text
from windtunnel.rl.batch import draw_batch
from windtunnel.rl.sync import between_phases
from windtunnel.rl.training import train_passes
from windtunnel.serving.published import errors_of_figure

MODELS = {"Qwen2.5-Math-7B": "qwen2.5-7b", "Qwen3-30B-A3B-Base": "qwen3-30b-a3b", "Qwen2.5-7B-Instruct (ReTool SFT)": "qwen2.5-7b",
          "Qwen3-30B-A3B": "qwen3-30b-a3b", "Qwen3-235B": "qwen3-235b-a22b"}  # fmt: skip
MODES = {
    "colocate sync": "colocated",
    "one-step-off": "one_step_off",
    "fully_async": "async",
    "stream off policy pipeline": "async",
    "on policy": "colocated",
    "1-step off": "async",
    "8-step off": "async",
}
PHASES = {
    "step_time_s": "step", "generation_s": "rollout", "generate_sequences_s": "rollout", "old_log_prob_s": "old log-probabilities",
    "ref_log_prob_s": "reference log-probabilities", "update_actor_s": "update",
}  # fmt: skip
SOURCE = "tables of steps in the documentation of verl-project/verl and NVIDIA-NeMo/RL (Apache-2.0)"
FSDP = {"sharding": "hsdp", "shard_group": 2, "recompute": "full", "cp": 4, "cp_kind": "a2a"}
"""verl's dapo_7b_math_fsdp2_colocate.sh and …_4_12.sh: sp_size 4, fsdp_size 2; those of 28K tokens have fsdp_size 8
(dapo_7b_math_fsdp2_64_64.sh), retool's 4 (dapo_7b_async_retool.sh). Tokens of a micro batch are those of a GPU times sp_size."""
MEGATRON = {"recompute": "full", "sharding": "zero1"}
MIXTURE = {"tp": 2, "cp": 2, "ep": 8, "etp": 1, "sequence_parallel": True}
"""grpo_30b_a3b_base_math_megatron_96_32.sh, which also has enforce_eager=True (no captured graphs), 0.7 of the memory and passes of
10,240 tokens, and updates on the CPU (optimizer_cpu_offload=True, optimizer_offload_fraction=1)."""
NEMO_SHARES = {"on policy": 0.0, "1-step off": 1 / 2, "8-step off": 1 / 3}
"""Share of the GPUs that generate, in NeMo RL's recipes (examples/configs/recipes/llm/performance): grpo-qwen3-30ba3b-4n8g.yaml,
…-4n8g-async-1off.yaml, …-24n8g-async-8off.yaml and those of Qwen3-235B. At release 0.6 log-probabilities are computed in all."""
MACHINE = {"base": "h200-ib", "node": "hgx-h20"}


@dataclass
class RLStudy:
    """Figures of one configuration."""

    row: Mapping[str, str]
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def family(self) -> tuple[str, ...]:
        """What shares lengths."""
        return tuple(self.row[name] for name in ("model", "framework", "workload", "osl"))

    @property
    def trainer(self) -> str:
        return "NeMo RL" if self.row["framework"].startswith("NeMo") else "verl"

    @property
    def mode(self) -> str | None:
        return MODES.get(self.row["role"])


def read(path: Path) -> list[RLStudy]:
    """The configurations of a table, with their figures."""
    found: dict[tuple[str, ...], RLStudy] = {}
    names = ("model", "gpus", "framework", "role", "plan", "workload", "osl", "load", "note")
    for row in csv.DictReader(path.open(encoding="utf-8")):
        if row["model"] in MODELS and row["role"] in MODES:
            study = found.setdefault(tuple(row[name] for name in names), RLStudy(row))
            study.figures[row["metric"]] = float(row["value"])
    return list(found.values())


def nemo_job(study: RLStudy) -> RLJob:
    """The job of a configuration of NeMo RL, whose tables state the mean sample."""
    row = study.row
    longest, mean = (int(text.replace(",", "")) for text in re.findall(r"[\d,]*\d", row["osl"])[:2])
    generated, updated = (int(text.replace(",", "")) for text in re.findall(r"[\d,]*\d", row["load"])[:2])
    degrees = [re.findall(r"\w+", text) for text in re.findall(r"=\[(.*?)\]", row["plan"])]
    (engine_tp, _), (tp, cp, ep, pp, *_) = degrees[0], degrees[1]
    gpus, apart = int(row["gpus"]), round(int(row["gpus"]) * NEMO_SHARES[row["role"]])
    samples = 32 if "30B" in row["model"] else 16
    rl: dict[str, Any] = {
        "trainer": "nemo-rl", "algorithm": "grpo", "mode": study.mode, "prompts": generated // samples, "samples": samples,
        "mini_batch": updated // samples, "prompt": "150", "response": f"{mean - 150}~0.6<{longest - 150}", "old_logprobs": True,
        "pack_tokens": longest * int(cp), "logprob_tokens": (2 if "30B" in row["model"] else 1) * longest * int(cp),
        "rollout": {"tp": int(engine_tp), "memory": 0.8 if apart else 0.6},
    }  # fmt: skip
    if apart:
        rl["rollout"]["gpus"] = apart
        rl |= {"staleness": float(row["role"][0]), "sync_every": generated // updated}
    else:
        rl["offload"] = "all"
    plan = {"tp": int(tp), "cp": int(cp), "ep": int(ep), "pp": int(pp), "etp": 1, "sharding": "zero1"}
    plan |= {"sequence_parallel": int(tp) > 1, "recompute": "none" if "30B" in row["model"] else "full"}
    if "235B" in row["model"]:  # num_layers_in_first_pipeline_stage and …_last_…: 11 of the 94 layers
        plan["stages"] = [11, *[12] * (int(pp) - 2), 11]
    cluster = {"base": {"H100": "h100-ib", "GB200": "gb200-nvl72"}[row["gpu"]], "gpus": gpus}
    return load_rl_job({"workload": "rl", "model": MODELS[row["model"]], "cluster": cluster, "plan": plan, "rl": rl})


def job_of(study: RLStudy, mean: float) -> RLJob:
    """The job that a configuration describes, with a mean response."""
    if study.trainer == "NeMo RL":
        return nemo_job(study)
    row, load, note = study.row, study.row["load"], study.row["note"]
    cap = int(digits[0]) if (digits := re.findall(r"\d+", row["osl"])) else 16384
    number = lambda pattern, text, other: float(m[1]) if (m := re.search(pattern, text)) else other  # noqa: E731
    prompts = int(number(r"train_batch_size (\d+)", load, 512))
    gpus, per = int(row["gpus"]), re.search(r"resources \D*(\d+):(\d+)", row["plan"])
    rl: dict[str, Any] = {
        "algorithm": "grpo" if "GRPO" in row["workload"] else "dapo", "mode": study.mode, "prompts": prompts, "samples": 16,
        "mini_batch": int(number(r"mini (\d+)", load, number(r"mini_batch (\d+)", note, 32))), "trainer": "verl",
        "prompt": "150~0<2048",
        "response": f"{mean:.0f}~1<{cap}", "offload": "all" if study.mode == "colocated" else "none",
        "rollout": {"tp": 4 if gpus > 8 else 2, "memory": 0.8},
    }  # fmt: skip
    if "recipe default" in load:  # of July 2025: verl captured no graphs by default before August (its pull request 2956)
        rl["rollout"] |= {"graphs": False}
    if "turns" in load:
        rl |= {"turns": 4, "tool_tokens": 256, "tool_seconds": 2.0, "prompts": 64}
    if study.mode != "colocated" and per:
        rl["rollout"] |= {"gpus": int(per[2])}
        if int(per[2]) // max(1, gpus // 8) < 4:
            rl["rollout"] |= {"tp": 2}
    if study.mode == "async":
        stale = number(r"staleness(?:_threshold)? ([\d.]+)", load + note, 0.5)
        require = int(number(r"require_batches (\d+)", load + note, 4 if rl["mini_batch"] == 32 else 1))
        rl |= {"staleness": stale, "require": require, "sync_every": max(1, int(number(r"sync every (\d+)", note, 4)))}
        rl["mini_batch"] = min(rl["mini_batch"], prompts // require)
    train = gpus - int(per[2]) if per and study.mode != "colocated" else gpus
    if "Megatron" in row["framework"]:
        plan = MEGATRON
        rl["pack_tokens"] = cap + 2048
        if "A3B" in row["model"]:
            plan = MEGATRON | MIXTURE | {"offload": {"optimizer": "host"}}
            rl["pack_tokens"] *= MIXTURE["cp"]
            rl["rollout"] |= {"graphs": False, "memory": 0.7, "step_tokens": 10240}
    else:
        retool = "turns" in load
        plan = FSDP | {"shard_group": 4 if retool else 8 if cap > 20480 else 2, "cp": 2 if train % 8 else 4}
        rl["pack_tokens"] = (1 if retool else 2) * (cap + 2048) * plan["cp"]
        rl["logprob_tokens"] = round(rl["pack_tokens"] * (4 if retool else 1.5))
    table = {"workload": "rl", "model": MODELS[row["model"]], "cluster": MACHINE | {"gpus": gpus}, "plan": plan, "rl": rl}
    return load_rl_job(table)


def mean_of(study: RLStudy) -> float:
    """The mean response with which the study's update comes out: a search by halves, between 200 tokens and the longest."""
    low, high = 200.0, 20000.0
    for _ in range(9):
        middle = (low * high) ** 0.5
        whole = job_of(study, middle)
        batch = draw_batch(whole.rl, whole.model.max_seq)
        passes = train_passes(whole, batch)
        fullest = max(passes.prediction.memory, key=lambda stage: stage.total)
        spent = passes.update_s + between_phases(whole, batch, fullest).updated
        longer = spent < study.figures["update_actor_s"]
        low, high = (middle, high) if longer else (low, middle)
    return (low * high) ** 0.5


def main() -> int:
    """Prints a table of figures and the medians."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    path = options.table
    if not path.is_file():
        print(f"{path}: there is no such file, so nothing is scored", file=sys.stderr)
        return 0
    means: dict[tuple[str, ...], float] = {}
    errors: dict[str, list[float]] = {"synchronous steps": [], "other steps": [], "phases": []}
    for study in read(path):
        first = study.family not in means
        if first and study.trainer == "NeMo RL":
            means[study.family] = float(study.figures["mean_sequence_tokens"])
        elif first:
            if study.mode != "colocated" or "update_actor_s" not in study.figures:
                continue
            means[study.family] = mean_of(study)
        try:
            step = predict_rl(job_of(study, means[study.family]))
        except WindtunnelError as error:
            print(f"{study.row['model']} {study.row['role']} {study.row['plan']}: {error}")
            continue
        _score(study, step, first, means[study.family], errors)
    if options.record is not None:
        lines = [
            PublishedRL(modes, len(errors[name]), len(means), errors_of_figure(errors[name]))
            for modes, name in (("ahead", "other steps"), ("in_turn", "synchronous steps"))
        ]
        options.record.write_text(rl_record_text(lines, SOURCE), encoding="utf-8")
    for name, values in errors.items():
        if values:
            print(f"{name}: {len(values)}, median error {100 * median(map(abs, values)):.0f} %, bias {100 * median(values):+.0f} %")
    return 0


def _score(study: RLStudy, step: RLStep, first: bool, mean: float, errors: dict[str, list[float]]) -> None:
    row = study.row
    print(f"{row['model']}, {row['gpus']} {row['gpu']}, {row['role']}, {row['plan'][:40]}; {row['note'][:30]}; mean {mean:.0f}")
    for metric, measured in study.figures.items():
        if metric not in PHASES or study.mode == "async" and metric == "generation_s":
            continue  # of an asynchronous step that is a wait
        predicted = step.step_time_s if metric == "step_time_s" else step.seconds_of(PHASES[metric])
        chosen = first and metric == "update_actor_s"
        if predicted and not chosen:
            kind = "phases" if metric != "step_time_s" else "synchronous steps" if study.mode == "colocated" else "other steps"
            kinds = [kind, f"{study.trainer}: {PHASES[metric]}", *([] if kind == "phases" else ["all steps"])]
            for name in kinds:
                errors.setdefault(name, []).append(predicted / measured - 1.0)
        print(f"  {metric:22s} {measured:8.1f} {predicted:8.1f} {100 * (predicted / measured - 1.0):+5.0f} %{' chosen' * chosen}")
    if study.trainer == "NeMo RL":
        print("  " + ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in step.timing.phases))


if __name__ == "__main__":
    sys.exit(main())
