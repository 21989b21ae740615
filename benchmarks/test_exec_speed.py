"""Speed of the engine's Python door on a pipelined program of 159 000 operators (C++ alone: `exec_bench`). Asserts no time."""

from __future__ import annotations

from typing import Any

from windtunnel.engine import Program, ProgramBuilder, run

RANKS, MICRO_BATCHES, CHUNKS = 8, 32, 6


def assemble() -> Program:
    """Per rank, pass, micro batch and virtual stage: a receive, two layers of 25 operators, a send (8 448 instances)."""
    builder = ProgramBuilder(categories=16, compute_tax=0.05)
    comm = [k % 6 == 5 for k in range(25)]
    waits = [k - 1 if k and k % 6 in (0, 5) else -1 for k in range(25)]
    for scale in (1, 2):
        seconds = [1e-5 * (1 + k % 5) * scale for k in range(25)]
        category = [k % 12 for k in range(25)]
        builder.add_template(seconds, category, [int(c) for c in comm], 4e-6, comm, waits)
    ranks = [builder.rank() for _ in range(RANKS)]
    for work in range(2 * MICRO_BATCHES * CHUNKS):
        for r, rank in enumerate(ranks):
            key = work * RANKS + r
            received = [rank.add_rendezvous(2, [(key, 1e-4, 2)], cat_wait=13, cat_transfer=14)] if r else []
            done = rank.add(work // (MICRO_BATCHES * CHUNKS), received, times=2)
            if r + 1 < RANKS:
                rank.add_rendezvous(3, [(key + 1, 1e-4, 2)], [done], cat_wait=13, cat_transfer=14)
    return builder.build()


def test_assemble(benchmark: Any) -> None:
    assert benchmark(assemble).ranks == RANKS


def test_run(benchmark: Any) -> None:
    program = assemble()
    timeline = benchmark(run, program)
    benchmark.extra_info["operators"] = timeline.ops
    assert timeline.ops > 150_000


def test_run_recorded(benchmark: Any) -> None:
    program = assemble()
    timeline = benchmark(run, program, record_ops="all")
    assert timeline.recorded.start.size == timeline.ops
