"""Computations by windtunnel's own kernels, from the shapes in execution traces and profiler traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.compute.estimate import estimate
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Context
from windtunnel.formats.traces.pytorch_et.shaped import read_shaped
from windtunnel.records.graph_file import read_graph, write_graph
from windtunnel.replay import ReplayOptions, replay
from windtunnel.spec.loading.load import load_cluster, load_runtime
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

CLUSTER = load_cluster("h100-ib", ["gpus=8"])


def product(m: int, n: int, k: int) -> float:
    """Seconds of a bf16 product on the cluster's GPU."""
    op = Op(
        "p", Kind.GEMM, Phase.FORWARD, dtype=DTYPES.index("bf16"), m=m, n=n, k=k, flops=2.0 * m * n * k,
        bytes=2.0 * (m * k + k * n + m * n),
    )  # fmt: skip
    return float(estimate(OpTable.of([op]), CLUSTER.node.gpu, load_runtime("megatron-core")).seconds[0])


def event(name: str, category: str, begin: float, length: float, **args: Any) -> dict[str, Any]:
    thread = args.pop("tid", 1)
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread, "ts": begin, "dur": length, "args": args}


def profile(tmp_path: Path) -> Path:
    """An operator with one kernel, one with two, one without a shape; and a copy from the host."""
    shape = {"Input Dims": [[4096, 1024], [1024, 2048]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    events = []
    for at, (name, kernels, args) in enumerate([("aten::mm", 1, shape), ("aten::mm", 2, shape), ("aten::gelu", 1, {})]):
        begin = 1000.0 * at
        events.append(event(name, "cpu_op", begin, 100.0, **{"External id": at + 1}, **args))
        for one in range(kernels):
            link = 10 * at + one + 1
            events.append(event("cudaLaunchKernel", "cuda_runtime", begin + 10 + one, 5.0, correlation=link))
            events.append(
                event(f"kernel_{at}", "kernel", begin + 200 + 100 * one, 50.0, correlation=link, stream=7, tid=7, device=0)
            )
    events.append(event("cudaMemcpyAsync", "cuda_runtime", 4000.0, 5.0, correlation=99))
    events.append(
        event("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 4010.0, 70.0, correlation=99, stream=7, tid=7, bytes=2**20)
    )
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0, "world_size": 1}}))
    return path


def test_products_of_a_profile_take_the_time_of_our_kernel(tmp_path: Path) -> None:
    graph, _ = read_shaped([profile(tmp_path)], Context())
    known = np.flatnonzero(graph.products[:, 0] > 0)
    assert graph.products[known].tolist() == [[1, 4096, 2048, 1024, 2]] and graph.names[graph.name[known[0]]] == "kernel_0"
    assert graph.flops[known].tolist() == [2.0 * 4096 * 2048 * 1024]
    result = replay(graph, CLUSTER, ReplayOptions(compute="kernels"))
    took = result.times.end - result.times.start
    assert took[known[0]] == pytest.approx(product(4096, 2048, 1024))
    names = [graph.names[at] for at in graph.name.tolist()]
    assert all(took[at] == pytest.approx(50e-6) for at, name in enumerate(names) if name in ("kernel_1", "kernel_2"))
    assert took[names.index("Memcpy HtoD (Pageable -> Device)")] == pytest.approx(70e-6)
    assert any("by their shapes: 1 products and 0 attention" in note for note in result.assumed)
    assert any(note.endswith("that tell theirs: 1 copies, 3 others") for note in result.assumed)


def test_a_graph_s_products_stay_in_its_file(tmp_path: Path) -> None:
    graph, _ = read_shaped([profile(tmp_path)], Context())
    write_graph(graph, tmp_path / "graph.parquet")
    assert np.array_equal(read_graph(tmp_path / "graph.parquet").products, graph.products)


def tensor(number: int, storage: int, count: int) -> list[Any]:
    return [number, storage, 0, count, 2, "cuda:0"]


def node(number: int, name: str, inputs: list[tuple[Any, list[int]]], outputs: list[tuple[Any, list[int]]]) -> dict[str, Any]:
    def side(listed: list[tuple[Any, list[int]]]) -> dict[str, Any]:
        return {
            "values": [value for value, _ in listed],
            "shapes": [shape for _, shape in listed],
            "types": ["Tensor(c10::BFloat16)"] * len(listed),
        }

    attributes = [
        {"name": "op_schema", "type": "string", "value": f"{name}(Tensor a)"},
        {"name": "tid", "type": "uint64", "value": 1},
    ]
    return {"id": number, "name": name, "ctrl_deps": 1, "inputs": side(inputs), "outputs": side(outputs), "attrs": attributes}


def test_operators_of_an_execution_trace_take_our_kernels(tmp_path: Path) -> None:
    root = {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "attrs": []}
    a, b, c = (
        (tensor(1, 11, 8192 * 512), [8192, 512]),
        (tensor(2, 12, 512 * 256), [512, 256]),
        (tensor(3, 13, 8192 * 256), [8192, 256]),
    )
    nodes = [root, node(2, "aten::mm", [a, b], [c]), node(3, "aten::t", [c], [(tensor(4, 13, 8192 * 256), [256, 8192])])]
    path = tmp_path / "et_0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    graph = read_files([path]).value
    result = replay(graph, CLUSTER, ReplayOptions(compute="kernels"))
    assert result.end == pytest.approx(product(8192, 256, 512))  # the view takes none
    assert result.busy["compute"].tolist() == pytest.approx([result.end])
    at_peak = replay(graph, CLUSTER).end
    assert at_peak == pytest.approx(2.0 * (8192 * 512 + 512 * 256 + 8192 * 256) / CLUSTER.node.gpu.memory_bandwidth, rel=1e-3)
