"""Tokens on their way to experts with torch's own operators: bytes by hand."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.workload import Phase, Workload, build

H, TOKENS, TOP_K = 64, 32, 2
MIXTURE: dict[str, Any] = {
    "layers": 1,
    "hidden": H,
    "heads": 4,
    "ffn": 128,
    "vocab": 256,
    "seq": TOKENS,
    "experts": 4,
    "top_k": TOP_K,
}
ONE, COPIES = TOKENS * H, TOKENS * TOP_K * H


def moved(workload: Workload, name: str, phase: Phase = Phase.FORWARD) -> float:
    """16-bit numbers that the rows of that name read and write."""
    ops = workload.ops
    rows = [
        row for row, (label, of) in enumerate(zip(ops.names, ops.phase, strict=True)) if label == f"moe.{name}" or label == name
    ]
    return sum(float(ops.bytes[row]) for row in rows if ops.phase[row] == phase) / 2.0


def test_torchs_operators_move_tokens_several_times() -> None:
    plain = build(make_job(**MIXTURE, moe_reorder="torch"))
    assert moved(plain, "permute") == 2 * COPIES
    assert moved(plain, "pad") == moved(plain, "pad grad", Phase.DGRAD) == 4 * COPIES
    assert moved(plain, "unpad") == 2 * COPIES
    assert moved(plain, "score") == (1 + 2 + 4 + 2 + 1) * COPIES  # fp32 in between
    assert moved(plain, "unpermute") == 2 * ONE + 3 * COPIES
    assert moved(plain, "permute grad", Phase.DGRAD) == ONE + 3 * COPIES  # zeros, then atomics
    fused = build(make_job(**MIXTURE))
    assert moved(fused, "permute") == ONE + COPIES and moved(fused, "pad") == moved(fused, "score") == 0.0
    assert [block.saved for block in plain.blocks] == [block.saved for block in fused.blocks]


@pytest.mark.parametrize(("ep", "waits"), [(1, False), (2, True)])
def test_the_host_reads_split_sizes_only_where_tokens_travel(ep: int, waits: bool) -> None:
    fields: dict[str, Any] = {"moe_reorder": "torch", "moe_host_wait": True, "dp": 2, "ep": ep}
    assert bool(build(make_job(**MIXTURE, **fields)).ops.sync.any()) is waits
