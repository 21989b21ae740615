"""MLPerf's result logs and power readings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.formats.door import read_files


def line(key: str, time: int, value: Any = None, prefix: str = "", **metadata: Any) -> str:
    entry = {"namespace": "", "time_ms": time, "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": metadata}
    return f"{prefix}:::MLLOG {json.dumps(entry)}\n"


RESULT = (
    line("global_batch_size", 0, 64, "  0: ") + line("run_start", 1000) + line("block_start", 1000, samples_count=0)
    + "a line of something else\n" + line("block_stop", 7000, samples_count=640)
    + line("eval_accuracy", 7500, 2.5, samples_count=640)
    + line("run_stop", 8000, status="success")
)  # fmt: skip


def test_without_step_times_a_step_is_a_share_of_its_block(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(RESULT, encoding="utf-8")
    reading = read_files([path])
    assert reading.value.steps.seconds.tolist() == [0.6] and reading.value.steps.step.tolist() == [
        10
    ]  # 640 samples, 64 a step, 6 s
    assert reading.facts["run_s"] == 7.0 and reading.facts["eval"] == [[640, 2.5]]
    assert reading.facts["mllog_lines"] == 6 and reading.facts["mllog_prefix_not_at_col0"] == 1 and reading.facts["text_lines"] == 7


def test_blocks_that_count_steps_give_their_means(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    blocks = [
        ("training_step", 1000, 0, 21_000, 100),
        ("training_step", 21_500, 100, 31_500, 150),
        ("validation_step", 0, 0, 9, 10),
    ]
    path.write_text("".join(
        line("block_start", begin, what, step_num=first) + line("block_stop", end, what, step_num=last)
        for what, begin, first, end, last in blocks
    ), encoding="utf-8")  # fmt: skip
    steps = read_files([path]).value.steps
    assert (steps.step.tolist(), steps.seconds.tolist()) == ([100, 150], [0.2, 0.2])


def test_tracked_step_times_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text("".join(line("tracked_stats", n, {"train_step_time": 10.0 + n}) for n in range(3)), encoding="utf-8")
    assert read_files([path]).value.steps.seconds.tolist() == [10.0, 11.0, 12.0]


def test_power_readings_add_up_to_energy(tmp_path: Path) -> None:
    (tmp_path / "result_0.txt").write_text(RESULT, encoding="utf-8")
    readings = line("conversion_eff", 0, 0.96) + "".join(line("power_reading", 1000 * s, 100.0 * s) for s in (0, 2, 4))
    (tmp_path / "node_0.txt").write_text(readings, encoding="utf-8")
    source = read_files([tmp_path]).facts["sources"]["node_0.txt"]
    assert source["trapezoid_energy_J"] == 800  # 0 to 400 W over 4 s
    assert source["readings"] == 3 and source["conversion_eff"] == [0.96]
    assert source["in_run_window_readings"] == 2 and source["mean_w_in_run"] == 300.0  # at 2 s and 4 s of a run from 1 s to 8 s


def test_an_entry_that_is_cut_off_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(RESULT + ':::MLLOG {"namespace": "", "time_', encoding="utf-8")
    reading = read_files([path])
    assert reading.facts["mllog_lines"] == 6 and "1 entries" in reading.broken[0]


@pytest.mark.parametrize(
    ("name", "seconds", "blocks"),
    [("v4.0_nvidia_eos_n64_gpt3.txt.gz", 3147.895, 24), ("v4.1_oracle_512H100_llama2lora_stdout.txt.gz", 132.602, 21)],
)
def test_real_results(shared: Path, name: str, seconds: float, blocks: int) -> None:
    path = shared / "samples/5_logs_dumps/mlperf" / name
    if not path.exists():
        pytest.skip("no samples beside the project")
    facts = read_files([path]).facts
    assert facts["run_s"] == seconds and facts["blocks"] == blocks
