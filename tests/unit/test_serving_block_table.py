"""Blocks over many numbers of tokens: those that are lines are equal to those that are written one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.serving import ServePlan, server_of
from windtunnel.serving.block_table import PROBES, BlockTable, blocks_over
from windtunnel.serving.graph import PassGraph, ServedBlock
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model
from windtunnel.workload.ops import COLUMNS

SIZES = [*range(1, 40), 64, 100, 255, 256, 777, 2048, 8191, 16384, 32768]


def assert_equal(lines: BlockTable, written: BlockTable) -> None:
    for name in COLUMNS:
        assert np.array_equal(getattr(lines.ops, name), getattr(written.ops, name)), name
    assert (lines.ops.names, lines.ops.modules) == (written.ops.names, written.ops.modules)
    assert (lines.forms, lines.experts) == (written.forms, written.experts)
    assert np.array_equal(lines.of, written.of)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(
    ("model", "plan", "weights"),
    [
        ("llama3.1-8b", ServePlan(tp=2), "bf16"),
        ("qwen3-32b", ServePlan(tp=4, pp=2), "nvfp4"),
        ("llama3.1-70b", ServePlan(tp=8), "int4"),
        ("gemma3-27b", ServePlan(), "fp8"),
        ("nemotron-h-8b", ServePlan(), "bf16"),
        ("qwen3-30b-a3b", ServePlan(tp=2, ep=2), "fp8"),
        ("deepseek-v3", ServePlan(dp=8, ep=8), "fp8_block"),
        ("deepseek-v4-flash", ServePlan(tp=8), "mxfp4"),
        ("deepseek-v3", ServePlan(dp=32, ep=32), "fp8_block"),
    ],
)
def test_layers_are_those_that_are_written_one_by_one(engine: str, model: str, plan: ServePlan, weights: str) -> None:
    graph = PassGraph(server_of(load_model(model), "b200-ib", plan.gpus, engine, plan, weights=weights))
    for kind, _ in graph.kinds:
        calls = (lambda size: (graph.experts_call(size),)) if kind.experts else None
        written = BlockTable.join([graph.layer(kind, size) for size in SIZES])
        assert_equal(blocks_over(lambda size: graph.layer(kind, size), SIZES, calls), written)  # noqa: B023
    for build in (graph.embedding, graph.head):
        assert_equal(blocks_over(build, SIZES), BlockTable.join([build(size) for size in SIZES]))


def test_a_dense_layer_is_written_for_few_numbers_of_tokens() -> None:
    graph = PassGraph(server_of(load_model("llama3.1-8b"), "h100-ib", 1, "vllm", ServePlan()))
    asked: list[int] = []

    def build(size: int) -> ServedBlock:
        asked.append(size)
        return graph.layer(graph.kinds[0][0], size)

    blocks_over(build, SIZES)
    assert asked == [*PROBES, 32768]


@pytest.mark.parametrize("bend", [5, 500, 20_000])
def test_rows_that_are_no_lines_are_written_one_by_one(bend: int) -> None:
    graph = PassGraph(server_of(load_model("llama3.1-8b"), "h100-ib", 1, "vllm", ServePlan()))

    def build(size: int) -> ServedBlock:
        block = graph.layer(graph.kinds[0][0], size)
        return replace(block, rows=tuple(row._replace(bytes=min(row.bytes, row.bytes / size * bend)) for row in block.rows))

    assert_equal(blocks_over(build, SIZES), BlockTable.join([build(size) for size in SIZES]))


def test_shared_rows_are_calls_of_all_ranks() -> None:
    times = StepTimes(server_of(load_model("mixtral-8x7b"), "h100-ib", 4, "vllm", ServePlan(dp=4, ep=4)))
    shared = times.layers_over(times.kinds[0][0]).shared_part()
    assert set(shared.ops.names) == {"dispatch", "combine"}
    assert len(shared.experts) == len(times.sizes)
    assert len(shared.ops) == 2 * len(times.sizes)
