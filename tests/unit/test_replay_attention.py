"""Fused attention by windtunnel's own kernels, from the shapes in profiler traces and execution traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_replay_kernels import CLUSTER, event, node, tensor

from windtunnel.compute.estimate import estimate
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Context
from windtunnel.formats.traces.pytorch_et.nodes import attention_of
from windtunnel.formats.traces.pytorch_et.shaped import read_shaped
from windtunnel.records.graph_file import read_graph, write_graph
from windtunnel.records.trace_graph import AttentionShape
from windtunnel.replay import ReplayOptions, replay
from windtunnel.spec.loading.load import load_runtime
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

FORWARD, BACKWARD = "aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention_backward"
QUERY, KEY = [2, 32, 4096, 128], [2, 8, 4096, 128]


def ours(backward: bool, causal: bool = True, library: str = "fa2") -> float:
    """Seconds of 2 sequences of 4,096 tokens, 32 heads of width 128 and 8 heads of keys, worked out by hand."""
    seen = 2048.5 if causal else 4096.0
    flops = (10.0 if backward else 4.0) * 64 * 4096 * seen * 128
    moved = (2.5 if backward else 1.0) * 2 * 2 * (32 + 32 + 8 + 8) * 4096 * 128
    op = Op(
        "a", Kind.ATTENTION_BACKWARD if backward else Kind.ATTENTION, Phase.DGRAD if backward else Phase.FORWARD,
        dtype=DTYPES.index("bf16"), batch=64, m=4096, n=4096, k=128, extra=4, flops=flops, bytes=moved,
        launches=3 if backward else 1,
    )  # fmt: skip
    runtime = load_runtime("megatron-core").model_copy(update={"attention_library": library})
    return float(estimate(OpTable.of([op]), CLUSTER.node.gpu, runtime).seconds[0])


def inputs(count: int, tensors: dict[int, list[int]], scalars: dict[int, Any]) -> dict[str, Any]:
    """Arguments of an operator as the profiler writes them."""
    return {
        "Input Dims": [tensors.get(at, []) for at in range(count)],
        "Input type": ["c10::BFloat16" if at in tensors else "Scalar" for at in range(count)],
        "Concrete Inputs": [str(scalars.get(at, "")) for at in range(count)],
    }


def profile(tmp_path: Path, forward: dict[str, Any], backward: dict[str, Any]) -> Path:
    """An attention whose inner operator launches one kernel; its backward with three; a kernel of attention without operator."""
    events = [
        event(FORWARD, "cpu_op", 0.0, 100.0, **forward),
        event("aten::_flash_attention_forward", "cpu_op", 10.0, 50.0),
        event(BACKWARD, "cpu_op", 1000.0, 100.0, **backward),
    ]
    for link, (begin, length, name) in enumerate(
        [(20, 200, "flash_fwd"), (1010, 20, "dot_do_o"), (1020, 160, "flash_bwd"), (1030, 20, "convert_dq"), (2000, 90, "fmha_bwd")]
    ):
        events.append(event("cudaLaunchKernel", "cuda_runtime", begin, 5.0, correlation=link + 1))
        at = 300.0 * (link + 1) + begin
        events.append(event(name, "kernel", at, length, correlation=link + 1, stream=7, tid=7, device=0))
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0, "world_size": 1}}))
    return path


def seconds_of(path: Path) -> tuple[dict[str, float], tuple[str, ...]]:
    graph, _ = read_shaped([path], Context())
    result = replay(graph, CLUSTER, ReplayOptions(compute="kernels"))
    took = result.times.end - result.times.start
    return {graph.names[name]: float(took[at]) for at, name in enumerate(graph.name.tolist())}, result.assumed


def test_attention_of_a_profile_takes_the_time_of_our_kernel(tmp_path: Path) -> None:
    forward = inputs(7, {0: QUERY, 1: KEY, 2: KEY}, {3: "0.", 4: True, 5: False, 6: 0.1})
    backward = inputs(15, {0: QUERY, 1: QUERY, 2: KEY, 3: KEY, 4: QUERY}, {8: 4096, 9: 4096, 10: "0.", 11: True})
    took, notes = seconds_of(profile(tmp_path, forward, backward))
    assert took["flash_fwd"] == pytest.approx(ours(False))
    # the operator's kernels divide its time as they did when measured, 20 : 160 : 20
    shares = np.array([took["dot_do_o"], took["flash_bwd"], took["convert_dq"]]) / ours(True)
    assert shares == pytest.approx([0.1, 0.8, 0.1])
    assert took["fmha_bwd"] == pytest.approx(90e-6)
    assert any("by their shapes: 0 products and 2 attention operators (4 kernels)" in note for note in notes)
    assert any("that tell theirs: 1 of attention" in note for note in notes)
    assert not any("causal" in note for note in notes)


def test_attention_without_a_mask_takes_longer_and_one_without_values_is_taken_as_causal(tmp_path: Path) -> None:
    full = inputs(7, {0: QUERY, 1: KEY, 2: KEY}, {4: False})
    silent = inputs(15, {1: QUERY, 2: KEY, 3: KEY}, {})
    del silent["Concrete Inputs"]
    took, notes = seconds_of(profile(tmp_path, full, silent))
    assert took["flash_fwd"] == pytest.approx(ours(False, causal=False)) and ours(False, causal=False) > 1.5 * ours(False)
    assert took["dot_do_o"] + took["flash_bwd"] + took["convert_dq"] == pytest.approx(ours(True))
    assert any(note.startswith("1 attention operators whose causal flag is not recorded") for note in notes)


def test_attention_of_another_shape_keeps_the_trace_s_time(tmp_path: Path) -> None:
    took, notes = seconds_of(profile(tmp_path, inputs(7, {0: QUERY}, {}), inputs(15, {1: QUERY[:2], 2: KEY, 3: KEY}, {})))
    assert took["flash_fwd"] == pytest.approx(200e-6) and took["flash_bwd"] == pytest.approx(160e-6)
    assert notes[0].startswith("no computation has a shape") or any("of attention" in note for note in notes)


def test_an_event_whose_name_is_no_text_has_no_shape(tmp_path: Path) -> None:
    forward = inputs(7, {0: QUERY, 1: KEY, 2: KEY}, {4: True})
    path = profile(tmp_path, forward, inputs(15, {1: QUERY, 2: KEY, 3: KEY}, {11: True}))
    path.write_text(path.read_text().replace(f'"{BACKWARD}"', '["x"]'))
    took, _ = seconds_of(path)
    assert took["flash_fwd"] == pytest.approx(ours(False)) and took["flash_bwd"] == pytest.approx(160e-6)


def test_a_graph_s_attention_stays_in_its_file(tmp_path: Path) -> None:
    forward = inputs(7, {0: QUERY, 1: KEY, 2: KEY}, {4: True})
    graph, _ = read_shaped([profile(tmp_path, forward, inputs(15, {1: QUERY, 2: KEY, 3: KEY}, {11: True}))], Context())
    assert len(graph.attentions) == 4
    write_graph(graph, tmp_path / "graph.parquet")
    assert np.array_equal(read_graph(tmp_path / "graph.parquet").attentions, graph.attentions)


def test_attention_of_an_execution_trace_takes_our_kernel_once(tmp_path: Path) -> None:
    """The operators inside it, an allocation and the kernel's own, take no time beside it."""
    root = {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "attrs": []}
    q, k, v, out = ((tensor(at, 10 + at, 2**25), shape) for at, shape in enumerate((QUERY, KEY, KEY, QUERY), 2))
    outer = node(2, FORWARD, [q, k, v], [out])
    outer["inputs"]["values"] += [0.0, True, False, 0.1]
    outer["inputs"]["shapes"] += [[], [], [], []]
    outer["inputs"]["types"] += ["Double", "Bool", "Bool", "Double"]
    inner = [node(3, "aten::_flash_attention_forward", [q, k, v], [out]), node(4, "aten::empty_like", [q], [out])]
    inner.append(node(5, "aten::t", [out], [out]))
    inner[0]["ctrl_deps"], inner[1]["ctrl_deps"] = 2, 3
    path = tmp_path / "et_0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [root, outer, *inner]}))
    graph = read_files([path]).value
    result = replay(graph, CLUSTER, ReplayOptions(compute="kernels"))
    assert result.times.end[graph.ids.tolist().index(5)] == 0.0  # the host does not wait for it
    assert replay(graph, CLUSTER, ReplayOptions(compute="kernels")).end == pytest.approx(ours(False))
    read_and_written = 2.0 * 2 * 4096 * 128 * (32 + 32 + 8 + 8)
    assert replay(graph, CLUSTER).end == pytest.approx(read_and_written / CLUSTER.node.gpu.memory_bandwidth, rel=1e-3)


def test_attention_of_linked_traces_takes_our_kernel(tmp_path: Path) -> None:
    """Kernels belong to the operator inside the attention that launched them; the execution trace knows its shape."""
    root = {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "attrs": []}
    tensors = [(tensor(at, 10 + at, 2**25), shape) for at, shape in enumerate((QUERY, QUERY, KEY, KEY, QUERY), 2)]
    outer = node(10, BACKWARD, tensors, tensors[:3])
    for key, more in (("values", ["", "", "", 4096, 4096, 0.0, True]), ("shapes", [[]] * 7), ("types", ["Scalar"] * 7)):
        outer["inputs"][key] += more
    inner = [node(11, "aten::_flash_attention_backward", tensors, tensors[:3]), node(12, "aten::zeros", [], [tensors[0]])]
    inner[0]["ctrl_deps"], inner[1]["ctrl_deps"] = 10, 11
    for one in (outer, *inner):
        one["attrs"].append({"name": "rf_id", "type": "uint64", "value": one["id"]})
    (tmp_path / "et_0.json").write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [root, outer, *inner]}))
    events = [
        event(name, "cpu_op", begin, length, **{"Record function id": number})
        for number, name, begin, length in (
            (10, BACKWARD, 0.0, 100.0), (11, "aten::_flash_attention_backward", 10.0, 80.0), (12, "aten::zeros", 12.0, 10.0)
        )
    ]  # fmt: skip
    for link, (begin, length, name) in enumerate([(15, 25, "fill"), (40, 175, "flash_bwd")], 1):
        events.append(event("cudaLaunchKernel", "cuda_runtime", begin, 5.0, correlation=link))
        events.append(event(name, "kernel", 300.0 * link, length, correlation=link, stream=7, tid=7, device=0))
    profiled = tmp_path / "kineto_0.json"
    profiled.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0, "world_size": 1}}))
    reading = read_files([tmp_path / "et_0.json", profiled])
    assert reading.facts["attentions"] == 1
    result = replay(reading.value, CLUSTER, ReplayOptions(compute="kernels"))
    took = result.times.end - result.times.start
    names = [reading.value.names[at] for at in reading.value.name.tolist()]
    assert took[names.index("fill")] == pytest.approx(ours(True) / 8)
    assert took[names.index("flash_bwd")] == pytest.approx(ours(True) * 7 / 8)


@pytest.mark.parametrize(
    ("name", "shapes", "values", "wanted"),
    [
        ("flash_attn::_flash_attn_forward", [[2, 4096, 32, 128], [2, 4096, 8, 128], [2, 4096, 8, 128]],
         {5: True, 6: -1, 7: -1}, (2, 32, 8, 4096, 4096, 128, 1, 0, 0)),
        ("flash_attn::_flash_attn_forward", [[2, 4096, 32, 128], [2, 4096, 8, 128], [2, 4096, 8, 128]],
         {5: "True", 6: "1023", 7: "0"}, (2, 32, 8, 4096, 4096, 128, 1, 1024, 0)),
        ("flash_attn::_flash_attn_forward", [[1, 128, 4, 64], [1, 512, 4, 64], [1, 512, 4, 64]],
         {5: True}, (1, 4, 4, 128, 512, 64, 1, 0, 0)),
        # three sequences of 100 tokens each, and three of together 300 whose longest has 120
        ("flash_attn::_flash_attn_varlen_forward", [[300, 32, 128], [300, 8, 128], [300, 8, 64], [4], [4]],
         {5: 100, 6: 100, 9: False}, (3, 32, 8, 100, 100, 96, 0, 0, 0)),
        ("flash_attn::_flash_attn_varlen_forward", [[300, 32, 128], [300, 8, 128], [300, 8, 128], [4], [4]],
         {5: 120, 6: 120, 9: False}, None),
        ("flash_attn::_flash_attn_varlen_forward", [[300, 32, 128], [300, 8, 128], [300, 8, 128], [2], [2]],
         {9: True}, (1, 32, 8, 300, 300, 128, 1, 0, 0)),
        ("aten::_efficient_attention_forward", [[1, 128, 4, 64], [1, 128, 4, 64], [1, 128, 4, 64], [], [], []],
         {9: 1}, (1, 4, 4, 128, 128, 64, 1, 0, 0)),
        # from the top left: a query's keys depend on which of them the mask leaves
        ("aten::_scaled_dot_product_efficient_attention", [[1, 4, 128, 64], [1, 4, 512, 64], [1, 4, 512, 64]], {6: True}, None),
        (FORWARD, [[1, 4, 128, 64], [1, 3, 128, 64], [1, 3, 128, 64]], {4: True}, None),
        (FORWARD, [[1, 4, 128, 64], [1, 4, -1, 64], "x"], {4: True}, None),
        ("aten::mm", [[4, 4], [4, 4]], {}, None),
    ],
)  # fmt: skip
def test_shapes_of_attention_operators(
    name: str, shapes: list[Any], values: dict[int, Any], wanted: tuple[int, ...] | None
) -> None:
    listed = [values.get(at, "") for at in range(20)]
    assert attention_of(name, shapes, 2, listed) == (None if wanted is None else AttentionShape(*wanted, 2, 0))
