"""Golden values of Megatron-LM's functional tests.

Numbers: NVIDIA/Megatron-LM, tests/functional_tests/test_cases, the first and last steps of
gpt3_mcore_te_tp1_pp1_resume_torch_dist_dist_optimizer_no_mmap_bin_files/golden_values_dev_dgx_a100.json (Apache-2.0).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.logs.golden_values import read
from windtunnel.formats.reading import Content, Context


def metric(values: Any) -> dict[str, Any]:
    return {"start_step": 1, "end_step": 100, "step_interval": 5, "values": values}


GOLDEN = {
    "lm loss": metric({"1": 10.84092, "5": 10.8406, "100": 9.38833}),
    "num-zeros": metric({"1": 1629.0, "5": 1944.0, "100": 3359.0}),
    "mem-allocated-bytes": metric({"1": 552128512.0, "5": 552128512.0, "100": 552128512.0}),
    "mem-max-allocated-bytes": metric({"1": 2615097856.0, "5": 2711714304.0, "100": 2711714304.0}),
    "iteration-time": metric({"1": 4.51458, "5": "nan", "100": 0.08314}),
}


def written(folder: Path, table: Any) -> Path:
    path = folder / "golden.json"
    path.write_text(json.dumps(table))
    return path


def test_steps_with_times_losses_and_memory(tmp_path: Path) -> None:
    reading = read_files([written(tmp_path, GOLDEN)])
    steps = reading.value.steps
    assert (reading.format, reading.content) == ("megatron-golden-values", Content.RUN)
    assert steps.step.tolist() == [1, 5, 100]
    assert np.array_equal(steps.seconds, [4.51458, np.nan, 0.08314], equal_nan=True)
    assert steps.loss.tolist() == [10.84092, 10.8406, 9.38833]
    assert reading.facts["peak_memory_bytes"] == 2711714304.0 and reading.facts["timed_steps"] == 2
    assert reading.ignored == ("mem-allocated-bytes", "num-zeros") and not reading.broken


def test_values_as_a_list_count_by_the_interval(tmp_path: Path) -> None:
    run = read([written(tmp_path, {"iteration-time": {**metric([3.0, 0.5, 0.4]), "start_step": 0}})], Context()).value
    assert run.steps.step.tolist() == [0, 5, 10] and run.steps.seconds.tolist() == [3.0, 0.5, 0.4]


def test_what_is_no_number_is_counted(tmp_path: Path) -> None:
    reading = read(
        [written(tmp_path, {"iteration-time": metric({"1": 2.0, "x": 3.0, "3": "fast", "4": -1.0, "5": True})})], Context()
    )
    assert len(reading.value.steps) == 1
    assert reading.broken[0].endswith("4 values that are no numbers")


@pytest.mark.parametrize("table", [{"a": metric({"1": 2.0})}, {"iteration-time": metric({})}, {"iteration-time": metric(7)}, [1]])
def test_a_file_without_a_step_is_refused(tmp_path: Path, table: Any) -> None:
    with pytest.raises(FileError, match="no step"):
        read([written(tmp_path, table)], Context())


def test_old_files_have_the_mean_of_all_steps(tmp_path: Path) -> None:
    losses = {"start_step": 0, "end_step": 35, "step_interval": 5, "values": [10.79, 10.8, 10.7]}
    reading = read([written(tmp_path, {"lm loss": losses, "iteration_timing_avg": 0.069})], Context())
    assert reading.value.steps.step.tolist() == [0, 5, 10] and reading.value.steps.seconds.tolist() == [0.069] * 3
    assert "mean" in reading.assumed[0]
