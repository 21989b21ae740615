"""Scripts on a cluster that isn't there: their calls, splits, stages and memory are those that a hand counts."""

from __future__ import annotations

from pathlib import Path

import pytest

import windtunnel as wt
from windtunnel.records.capture_file import EntryKind, steps_of

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
SCRIPTS = Path(__file__).parent / "scripts"


def captured(name: str, gpus: int, folder: Path, **options: object) -> wt.Captured:
    command = ["torchrun", "--nproc-per-node", "8", str(SCRIPTS / f"{name}.py")]
    return wt.capture(command, "h100-ib", gpus, out=folder, **options)  # type: ignore[arg-type]


def test_fsdp_over_tensor_parallelism_has_the_calls_that_a_hand_counts(tmp_path: Path) -> None:
    """Layers of 2 x 256 x 1024 weights over tp 2, sharded over dp 8. Gathered in bf16 forward and backward, but for the last layer,
    which stays; reduced in fp32. An all-reduce of bf16 activations forward and, but for the first layer, backward."""
    job = captured("sharded", 16, tmp_path)
    calls = {(calls.op, len(calls.ranks)): (calls.count, calls.bytes) for calls in job.calls}
    weights = 2 * 256 * 1024 // 2
    activations = 2 * 64 * 256 * 2
    assert calls[("reduce_scatter", 8)] == (3, 3 * 4 * weights)
    assert calls[("all_reduce", 2)] == (5, 5 * activations)
    assert calls[("all_gather", 8)][0] in (5, 6)
    assert calls[("all_gather", 8)][1] == calls[("all_gather", 8)][0] * 2 * weights
    assert job.operators["aten::mm"] == 3 * 6 - 1  # no gradient of the first layer's input
    assert job.world == 16
    assert 1e-4 < job.seconds < 5
    assert not job.values


def test_experts_get_even_shares_and_values_that_are_known_are_known(tmp_path: Path) -> None:
    """256 tokens to 2 of 8 experts on 4 ranks: a quarter of 512 rows to each, there and back. Backward, only what comes back
    travels again: the tokens need no gradient."""
    job = captured("experts", 4, tmp_path, ranks=[1])
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    count, size = calls["all_to_all"]
    assert count == 1 + 2 + 1
    assert size == 4 * 8 + 3 * 512 * 128 * 4
    assert [value.rule for value in job.values] == ["Float is 1"]
    assert job.ranks[0].about["rank"] == 1


def test_stages_run_together_and_meet(tmp_path: Path) -> None:
    job = captured("stages", 4, tmp_path)
    assert [int(rank.about["rank"]) for rank in job.ranks] == [0, 1, 2, 3]
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    assert calls["send"] == calls["recv"] == (8, 8 * 4 * 8 * 512)
    assert not job.replayed.stuck
    middle = job.ranks[1]
    sent = middle.entries[steps_of(middle)[-1]]
    assert (sent["kind"] == EntryKind.CALL).sum() == 4 * 8


def test_a_model_that_is_larger_than_the_machine_takes_no_memory(tmp_path: Path) -> None:
    job = captured("large", 1, tmp_path)
    assert job.memory[0].tensors > 16 * 32768 * 32768 * 2
    said = (tmp_path / "rank-000000.log").read_text().splitlines()
    held = [int(line.rpartition(" ")[2]) for line in said if line.startswith("host memory")]
    assert held
    assert max(held) < 2 << 20


def test_a_script_that_breaks_says_its_own_line_and_reaches_nobody(tmp_path: Path) -> None:
    with pytest.raises(wt.EngineError, match=r"broken\.py, line 12: model") as raised:
        captured("broken", 1, tmp_path)
    assert "[4, 9] X [8, 8]" in str(raised.value)
    assert "refused: a captured script has no network" in (tmp_path / "rank-000000.log").read_text()
