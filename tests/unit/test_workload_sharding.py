"""Copies of full sharding: what moves, and when there is none."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.workload import Phase, build


def copied(**fields: Any) -> dict[Phase, float]:
    """Bytes that a layer's copies move, by phase."""
    workload = build(make_job(gpus=4, dp=4, global_batch=8, **fields))
    layer, ops = workload.blocks[1], workload.ops
    moved: dict[Phase, float] = {}
    for row in (*layer.forward, *layer.backward):
        if ops.modules[row] == "sharding":
            phase = Phase(int(ops.phase[row]))
            moved[phase] = moved.get(phase, 0.0) + float(ops.bytes[row])
    return {phase: size / layer.parameters for phase, size in moved.items()}


def test_parameters_are_copied_before_each_pass_and_gradients_once() -> None:
    """2 B read and written, forward and backward; gradients 2 B read, 4 B written for a reduction in fp32."""
    moved = copied(sharding="fsdp", sharding_copies=True, reduce_dtype="fp32")
    assert moved == {Phase.PARAMETER_SYNC: 8.0, Phase.GRADIENT_SYNC: 6.0}


def test_kept_parameters_are_copied_once() -> None:
    assert copied(sharding="fsdp", sharding_copies=True, reshard_after_forward=False)[Phase.PARAMETER_SYNC] == 4.0


@pytest.mark.parametrize("fields", [{"sharding": "fsdp"}, {"sharding": "zero1", "sharding_copies": True}])
def test_flat_parameters_and_replicas_copy_nothing(fields: dict[str, Any]) -> None:
    assert copied(**fields) == {}
