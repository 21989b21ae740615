"""Logs of trainers for fine-tuning and reinforcement learning: dicts, verl, nanochat, Levanter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.formats.door import read_files
from windtunnel.predict import predict
from windtunnel.records.run import Run
from windtunnel.runs.comparison import compare_run
from windtunnel.spec import load_job

GIB = 2**30
HEADS = ("", "2025-05-21T03:50:19.029644300Z ", "(TaskRunner pid=16292) ", "\x1b[36m(main pid=7)\x1b[0m ", "[rank0] ")


def _read(folder: Path, lines: list[str]) -> tuple[str, Run]:
    path = folder / "train.log"
    path.write_text(
        "Loading checkpoint shards: 100%|###| 4/4 [00:03<00:00,  1.1it/s]\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
    reading = read_files([path])
    assert reading.format == "training-log"
    return str(reading.facts["framework"]), reading.value


SWIFT = {"loss": 0.4, "memory(GiB)": 76.5, "train_speed(iter/s)": 0.2, "epoch": 0.2, "global_step/max_steps": "{step}/4491"}
MEGATRON_SWIFT = {"loss": 1.2, "memory(GiB)": 60.0, "train_speed(s/it)": 5.0, "iteration": "{step}/2000"}
GRPO = {"loss": 0.003, "num_tokens": 123456.0, "completions/mean_length": 412.3, "step_time": 5.0, "epoch": 0.01}
SLIME = {"perf/rollout_time": 3.5, "perf/train_time": 1.2, "perf/step_time": 5.0}
BARE = {"step": "{step}", "step_time": 5.0}
FORMS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "ms-swift": ("", SWIFT, False),
    "Megatron-SWIFT": ("", MEGATRON_SWIFT, False),
    "TRL": ("", GRPO, True),
    "slime": ("perf {step}: ", SLIME, False),
    "bare": ("", BARE, False),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("quotes", ["python", "json"])
def test_a_dict_a_step_is_read(form: str, head: str, quotes: str, tmp_path: Path) -> None:
    before, table, counts = FORMS[form]
    lines = []
    for step in range(10, 50, 10):
        filled = {key: value.format(step=step) if isinstance(value, str) else value for key, value in table.items()}
        lines.append(head + before.format(step=step) + (json.dumps(filled) if quotes == "json" else repr(filled)))
    name, run = _read(tmp_path, lines)
    assert name == "Trainer (dicts)"
    assert list(run.steps.step) == ([1, 2, 3, 4] if counts else [10, 20, 30, 40])
    assert np.allclose(run.steps.seconds, 5.0)
    if "memory(GiB)" in table:
        assert np.allclose(run.steps.memory, table["memory(GiB)"] * GIB)
    if "loss" in table:
        assert np.allclose(run.steps.loss, table["loss"])


def test_a_rate_alone_is_compared_at_the_jobs_tokens(tmp_path: Path) -> None:
    job = load_job("llama3-8b-8xh100")
    expected = predict(job)
    rate = expected.tokens_per_s_per_gpu / 1.25
    lines = [repr({"loss": 1.5, "memory/max_allocated (GiB)": 62.3, "tokens_per_second_per_gpu": rate}) for _ in range(6)]
    _, run = _read(tmp_path, lines)
    assert not np.isfinite(run.steps.seconds).any()
    comparison = compare_run(run, job)
    assert comparison.measured_step == pytest.approx(1.25 * expected.step_time_s)
    assert comparison.log is not None and comparison.log.memory == pytest.approx(62.3 * GIB)


@pytest.mark.parametrize("head", HEADS)
def test_verl_gives_the_phases_of_a_step(head: str, tmp_path: Path) -> None:
    line = "step:{step} - global_seqlen/min:538646.000 - actor/pg_loss:0.001 - perf/max_memory_allocated_gb:25.5 - "
    line += "perf/total_num_tokens:1000.0 - timing_s/gen:{gen} - timing_s/update_actor:14.302 - timing_s/step:96.551"
    name, run = _read(tmp_path, [head + line.format(step=step, gen=70.0 + step) for step in (1, 2, 3)])
    assert name == "verl"
    assert np.allclose(run.steps.seconds, 96.551) and np.allclose(run.steps.memory, 25.5 * GIB)
    assert run.facts["timing_s/gen"] == 72.0 and run.facts["timing_s/update_actor"] == 14.302


def test_nanochat_and_levanter(tmp_path: Path) -> None:
    line = (
        "step {:05d}/21400 (0.02%) | loss: 8.893647 | lrm: 1.00 | dt: 989.44ms | tok/sec: 529,882 | mfu: 74.13 | total time: 0.00m"
    )
    name, run = _read(tmp_path, [line.format(step) for step in (4, 5, 6)])
    assert name == "nanochat" and np.allclose(run.steps.seconds, 0.98944)
    assert run.steps.tokens[0] == pytest.approx(529882 * 0.98944)
    line = "I0804 01:31:39.100 levanter.tracker Progress on:train {}it/54.0kit rate:{} remaining:26:55:10 elapsed:09:47 loss=1.2"
    name, run = _read(tmp_path, [line.format("33.0", "17.8s/it"), line.format("34.0", "17.8s/it"), line.format("1.25k", "0.1it/s")])
    assert name == "Levanter" and list(run.steps.step) == [33, 34, 1250]
    assert list(run.steps.seconds) == [17.8, 17.8, 10.0]


def test_bars_beside_dicts_without_a_time_stay_bars(tmp_path: Path) -> None:
    bars = [f" 1%|#  | {step}/500 [00:{step:02d}<50:00,  6.02s/it]" for step in (1, 2, 3)]
    name, run = _read(tmp_path, [*bars, "{'loss': 2.9, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.01}"])
    assert name == "Trainer (tqdm)" and np.allclose(run.steps.seconds, 6.02)


@pytest.mark.parametrize(
    "damage", [lambda line: line[:40], lambda line: line.replace("'", ""), lambda line: line.replace("0.2,", "nan,")]
)
def test_a_damaged_dict_is_left_out(damage: Any, tmp_path: Path) -> None:
    lines = [repr({**SWIFT, "global_step/max_steps": f"{step}/100"}) for step in (1, 2, 3)]
    _, run = _read(tmp_path, [*lines, damage(repr(SWIFT))])
    assert list(run.steps.step[:3]) == [1, 2, 3] and np.allclose(run.steps.seconds[:3], 5.0)
