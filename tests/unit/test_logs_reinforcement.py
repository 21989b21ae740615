"""Logs as trainers of 2025 leave them: reinforcement learning, metrics as JSON, bars alone, and what is refused with advice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from windtunnel.base.errors import FileError
from windtunnel.draw.terminal import print_sheet
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Reading
from windtunnel.runs.comparison import compare_run
from windtunnel.runs.comparison_sheet import comparison_sheet
from windtunnel.spec import load_job

LOST = "[36m(TaskRunner pid=99)[0m "
"""A colour whose escape character was lost on the way through a web page."""


def _read(folder: Path, text: str, name: str = "train.log") -> Reading:
    path = folder / name
    path.write_bytes(text.encode())
    return read_files([path])


@pytest.mark.parametrize("head", ["", LOST, "0: ", "trainer-1  | ", "\x1b[36m(TaskRunner pid=1)\x1b[0m "])
@pytest.mark.parametrize("wrap", ["{}", "np.float64({})"])
def test_values_of_verl_may_be_numpys(head: str, wrap: str, tmp_path: Path) -> None:
    lines = [
        head + f"step:{step} - actor/pg_loss:{wrap.format(0.5)} - perf/total_num_tokens:{wrap.format(4000)} - "
        f"timing_s/step:{wrap.format(8.0)}"
        for step in (5, 6)
    ]
    reading = _read(tmp_path, "\n".join(lines))
    assert reading.facts["framework"] == "verl" and reading.facts["step_seconds"] == 8.0
    assert reading.facts["tokens_per_step"] == 4000


def test_verls_fine_tuning_prints_times_of_steps(tmp_path: Path) -> None:
    lines = [f"step:{step} - train/loss:1.25 - train/lr(1e-3):0.01 - train/time(s):3.5" for step in (1, 2, 3)]
    steps = _read(tmp_path, "\n".join(lines)).value.steps
    assert np.allclose(steps.seconds, 3.5) and np.allclose(steps.loss, 1.25)


NEMO = """\
{head}========================= Step {step}/1000 =========================
{head}▶ Training policy...
{head}  • Loss: 0.0012
{head}  • Total step time: {seconds}s
{head}  • generation: 40.11s (45.4%)
{head}  • policy_training: 30.00s (33.9%)
{head}    - E2E (Tokens/sec/gpu): 1,612.22
"""


@pytest.mark.parametrize("head", ["", "(GRPO pid=3) ", "0: "])
def test_nemo_rl_has_a_heading_and_a_block_a_step(head: str, tmp_path: Path) -> None:
    reading = _read(tmp_path, "".join(NEMO.format(head=head, step=step, seconds=80 + step) for step in (1, 2, 3)))
    assert reading.facts["framework"] == "NeMo-RL" and list(reading.value.steps.step) == [1, 2, 3]
    assert np.allclose(reading.value.steps.seconds, [81, 82, 83]) and np.allclose(reading.value.steps.loss, 0.0012)
    figures = reading.facts["figures"]
    assert figures["policy_training"] == 30.0 and figures["tokens_per_second_per_gpu"] == pytest.approx(1612.22)


def test_openrlhf_says_what_a_step_took(tmp_path: Path) -> None:
    said = {"policy_loss": 0.25, "reward": 0.4, "timing/ppo_train": 48.0, "timing/generation": 45.0, "timing/step_total": 100.0}
    lines = ["Episode [1/1]:   1%|          | 3/312 [05:12<8:52:11, 103.3s/it]"]
    lines += [f"(PPOTrainer pid=2) ✨ Global step {step}: {said}" for step in (3, 4)]
    reading = _read(tmp_path, "\n".join(lines))
    assert list(reading.value.steps.step) == [3, 4] and np.allclose(reading.value.steps.seconds, 100.0)
    assert reading.facts["figures"]["timing/ppo_train"] == 48.0 and np.allclose(reading.value.steps.loss, 0.25)


@pytest.mark.parametrize("clock", ["_runtime", "_timestamp"])
def test_metrics_as_json_are_timed_by_their_clock(clock: str, tmp_path: Path) -> None:
    begin = 1.755e9 if clock == "_timestamp" else 0.0
    rows = [
        {"train/loss": 2.5, "train/global_step": step, clock: begin + 4.25 * step, "_runtime": 4.25 * step} for step in (10, 20, 40)
    ]
    rows.insert(1, {"eval/loss": 2.0, "train/global_step": 10, "_runtime": 60.0})
    steps = _read(tmp_path, "\n".join(map(json.dumps, rows)), "metrics.jsonl").value.steps
    assert list(steps.step) == [10, 20, 40]
    assert np.isnan(steps.seconds[0]) and np.allclose(steps.seconds[1:], 4.25)


BAR = "{head}  1%|▏         | {at}/500 [00:{clock}<44:00,  5.25s/it]"


@pytest.mark.parametrize("head", ["", "0: ", "trainer-1  | ", "(Trainer pid=8123, ip=10.0.0.4) "])
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_bars_alone_are_a_log(head: str, end: str, tmp_path: Path) -> None:
    text = "".join(BAR.format(head=head, at=at, clock=10 + 5 * at) + end for at in (1, 2, 3))
    reading = _read(tmp_path, text)
    assert reading.facts["framework"] == "Trainer (tqdm)" and np.allclose(reading.value.steps.seconds, 5.25)


def test_bars_of_loading_are_no_log(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        _read(tmp_path, "Loading checkpoint shards:  50%|##   | 2/4 [00:03<00:03,  1.50s/it]\n")


def test_losses_without_times_are_refused_with_what_to_give(tmp_path: Path) -> None:
    line = "[INFO|2025-08-01 10:00:31] llamafactory.train.callbacks:143 >> {'loss': 1.45, 'learning_rate': 4e-05, 'epoch': 0.29}\n"
    with pytest.raises(FileError, match=r"trainer_state\.json"):
        _read(tmp_path, line * 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Epoch 1 starting\nloss is 3.2 now\nloss is 3.1 now\n", "a log without a line that is known"),
    ],
)
def test_a_log_that_is_not_read_is_refused_as_one(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=said):
        _read(tmp_path, text)


PHASES = {
    "verl": [
        f"step:{n} - actor/pg_loss:0.1 - timing_s/gen:40.0 - timing_s/update_actor:5.0 - timing_s/step:80.0" for n in (1, 2, 3)
    ],
    "slime": [
        f"perf {n}: " + str({"perf/actor_train_time": 5.0, "perf/train_wait_time": 60.0, "perf/step_time": 80.0}) for n in (1, 2)
    ],
    "OpenRLHF": [
        f"Global step {n}: " + str({"reward": 0.1, "timing/ppo_train": 5.0, "timing/generation": 40.0, "timing/step_total": 80.0})
        for n in (3, 4)
    ],
    "NeMo-RL": [NEMO.format(head="", step=n, seconds=80).replace("30.00s", "5.00s") for n in (1, 2)],
}


@pytest.mark.parametrize("log", PHASES)
def test_the_update_of_a_step_is_what_a_job_is_compared_with(log: str, tmp_path: Path) -> None:
    run = _read(tmp_path, "\n".join(PHASES[log])).value
    comparison = compare_run(run, load_job("llama3-8b-8xh100"))
    assert comparison.measured_step == 5.0 and comparison.log is not None and comparison.log.update is not None
    assert np.allclose(run.steps.seconds, 80.0)
    console = Console(record=True, width=140)
    print_sheet(comparison_sheet(comparison), console)
    assert "update of the policy takes 5" in console.export_text()


def test_a_log_of_rollouts_without_the_updates_time_says_so(tmp_path: Path) -> None:
    line = {"loss": 0.1, "completions/mean_length": 201.5, "reward": 0.5, "step_time": 36.0}
    comparison = compare_run(_read(tmp_path, "\n".join([str(line)] * 3)).value, load_job("llama3-8b-8xh100"))
    assert comparison.log is not None and comparison.log.rollouts and comparison.log.update is None
    console = Console(record=True, width=140)
    print_sheet(comparison_sheet(comparison), console)
    assert "steps generate text too" in console.export_text()


def test_a_log_of_training_alone_has_no_phases(tmp_path: Path) -> None:
    line = {"loss": 0.1, "train_speed(s/it)": 5.0, "iteration": 3}
    comparison = compare_run(_read(tmp_path, "\n".join([str(line)] * 3)).value, load_job("llama3-8b-8xh100"))
    assert comparison.log is not None and not comparison.log.rollouts and comparison.log.update is None
