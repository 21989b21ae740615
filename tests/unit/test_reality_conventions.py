"""Each source's MFU, from its own numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.conventions import Skipped, mfu_pct
from windtunnel.reality.rows.table import TrainingRow, read

ROWS: dict[str, TrainingRow] = {row.id: row for path in measurements.tables() for row in read(path).training}


def test_llama3_counts_all_parameters_and_every_key() -> None:
    """T0092: 16 Mi tokens on 16384 GPUs. 400 TFLOP/s, as printed, are 40.4 % of 989; the step that they imply is 6.75 s."""
    row = ROWS["T0092"]
    per_token = 6 * 405.85e9 + 12 * 126 * 16384 * 8192
    step = per_token * 2048 * 8192 / 16384 / 400e12
    assert step == pytest.approx(6.755, abs=0.01)
    assert mfu_pct(row, step, 989e12) == pytest.approx(400 / 9.89)


def test_what_is_blank_is_said() -> None:
    for fields in ({"params_b": None}, {"layers": None}, {"gbs": None}):
        found = mfu_pct(replace(ROWS["T0092"], **fields), 7.0, 989e12)  # type: ignore[arg-type]
        assert isinstance(found, Skipped) and "not published" in found.reason
    unknown = mfu_pct(replace(ROWS["T0092"], source="a talk"), 7.0, 989e12)
    assert isinstance(unknown, Skipped) and "not known" in unknown.reason


def test_llama3_has_one_layer_a_virtual_stage() -> None:
    """126 layers, embedding and head on 16 stages of 8 virtual stages (section 3.3.2)."""
    made = draft(ROWS["T0091"])
    assert isinstance(made, Draft) and {job.plan.vpp for job in made.jobs} == {8}
    assert made.jobs[0].plan.stages == (0, *[1] * 126, 0)


def test_layouts_with_embedding_and_head_as_layers_have_virtual_stages() -> None:
    """94 layers and two on 8 stages: 12 a stage, so 1, 2, 3, 4 or 6 virtual ones."""
    row = replace(ROWS["T0508"], vpp=None, framework="megatron", mbs=None)  # NeMo's tables print it wherever there is one
    made = draft(row)
    assert isinstance(made, Draft) and {job.plan.vpp for job in made.jobs} == {1, 2, 3, 4, 6}


@pytest.mark.parametrize(("notes", "more"), [("", False), ("interleaved schedule", True)])
def test_a_row_that_prints_the_rest_of_its_plan_has_no_virtual_stages(notes: str, more: bool) -> None:
    row = replace(ROWS["T0508"], vpp=None, framework="megatron", mbs=1, recompute="full", notes=notes)
    made = draft(row)
    assert isinstance(made, Draft) and ({job.plan.vpp for job in made.jobs} != {1}) is more
    assert any("no virtual stages, the framework's default" in text for text in made.assumed) is not more
