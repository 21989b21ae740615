"""Operators of a trace by shape, worked out by hand; traces of several programs; a change to a GPU with other formats."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from kineto_trace import TRACE

import windtunnel as wt
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.cli import main
from windtunnel.profile.layers.shapes import moved_bytes
from windtunnel.profile.trace import BACKWARD, MODULE, attribute
from windtunnel.records import read
from windtunnel.records.run import Run
from windtunnel.runs.operators import OperatorRow, operators_of
from windtunnel.runs.replay_script import write_replay
from windtunnel.runs.sources import run_of
from windtunnel.runs.whatif import kernel_ratios
from windtunnel.spec import load_gpu

PRODUCT, ADDED = [[4096, 1024], [1024, 2048]], [[4096, 2048], [4096, 2048]]
HEADS = [[2, 8, 512, 64], [2, 2, 512, 64], [2, 2, 512, 64]]
KERNELS = (
    (1, "aten::mm", PRODUCT, 40.0),
    (2, "aten::mm", PRODUCT, 60.0),
    (3, "aten::add", ADDED, 50.0),
    (4, "aten::_scaled_dot_product_flash_attention", HEADS, 10.0),
)


def chrome(rank: int = 0, start: float = 0.0, gpu: str = "NVIDIA H100 80GB HBM3") -> dict[str, Any]:
    """Four launches and their kernels, one after the other; microseconds."""
    events: list[dict[str, Any]] = []
    for number, name, shapes, lasts in KERNELS:
        begin = start + 100.0 * number
        op = {"Input Dims": shapes, "Input type": ["c10::BFloat16"] * len(shapes)}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": 20.0, "args": op},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": begin + 5, "dur": 2.0,
             "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7, "ts": begin + 10, "dur": lasts,
             "args": {"correlation": number, "stream": 7}},
        ]  # fmt: skip
    about = {"rank": rank, "world_size": 8}
    return {"deviceProperties": [{"id": 0, "name": gpu}], "distributedInfo": about, "traceEvents": events}


def read_run(folder: Path, table: Mapping[str, Any]) -> Run:
    path = folder / "trace.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    return run_of(path)


def rows_of(folder: Path, table: Mapping[str, Any]) -> tuple[OperatorRow, ...]:
    return operators_of(read_run(folder, table).ranks)


def test_rates_bound_and_prediction_of_each_shape(tmp_path: Path) -> None:
    product, added, attention = rows_of(tmp_path, chrome())
    assert (product.op, product.number, product.dtype, product.shapes) == ("aten::mm", 2, "bf16", "4096x1024 1024x2048")
    assert product.seconds == pytest.approx(100e-6) and product.flops_rate == pytest.approx(2 * 2 * 4096 * 1024 * 2048 / 100e-6)
    gpu = load_gpu("h100-sxm-80gb")
    assert product.bound == "compute" and product.peak == pytest.approx(product.flops_rate / gpu.peak["bf16"])
    assert added.bytes_rate == pytest.approx(3 * 2 * 4096 * 2048 / 50e-6) and added.bound == "memory"
    assert attention.flops_rate == pytest.approx(4 * 64 * 16 * (512 * 513 / 2) / 10e-6)
    # the kernel models' own time of the same product, twice; within a factor of its roofline
    assert product.predicted is not None and 1 < product.predicted / (2 * 2 * 4096 * 1024 * 2048 / gpu.peak["bf16"]) < 3


def test_seconds_add_up_to_the_traces(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, chrome())
    assert sum(row.seconds for row in rows) == pytest.approx(160e-6) and sum(row.share for row in rows) == pytest.approx(1.0)
    report = wt.runs.show(tmp_path / "trace.json")
    assert [row["op"] for row in report.as_dict()["operators"]] == [row.op for row in rows]
    assert rows_of(tmp_path, chrome(gpu="a board that nobody knows"))[0].predicted is None


def test_the_terminal_names_the_longest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(chrome()), encoding="utf-8")
    assert main(["runs", "show", str(path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("aten::mm"))
    assert line.split()[1:4] == ["forward", "4096x1024", "2"]


def sums_of_slices(table: Mapping[str, Any], device: bool) -> dict[tuple[Any, ...], tuple[int, float]]:
    """Calls and seconds by operator, module, pass and inputs, slice by slice."""
    sums: dict[tuple[Any, ...], tuple[int, float]] = {}
    for one in attribute(table, device).slices:
        number, seconds = sums.get(key := (one.op, one.module, one.phase, one.shapes, one.dtypes), (0, 0.0))
        sums[key] = number + 1, seconds + one.seconds
    return sums


def agree(run: Run, wanted: dict[tuple[Any, ...], tuple[int, float]]) -> None:
    found = {(one.op, one.module, one.phase, one.shapes, one.dtypes): one for one in run.ranks[0].operators}
    assert {key: one.number for key, one in found.items()} == {key: number for key, (number, _) in wanted.items()}
    for key, (_, seconds) in wanted.items():
        assert found[key].seconds == pytest.approx(seconds, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("device", [True, False])
def test_operators_are_the_slices_of_a_trace_together(tmp_path: Path, device: bool) -> None:
    kept = ("kernel", "gpu_memcpy", "gpu_memset")
    events = [event for event in TRACE["traceEvents"] if device or event.get("cat") not in kept]
    agree(read_run(tmp_path, {**TRACE, "traceEvents": events}), sums_of_slices(TRACE, device))


HOST_NAMES = ("aten::mm", "aten::add", f"{MODULE}layers.0", f"{MODULE}layers.0.mlp", f"{BACKWARD}: MmBackward0", "Optimizer.step#A",
              "Torch-Compiled Region: 0/0", "a range")  # fmt: skip


@st.composite
def nested(draw: st.DrawFn) -> tuple[dict[str, Any], bool]:
    """A trace of two threads with events inside events, launches that may launch nothing, kernels that none launched."""
    events: list[dict[str, Any]] = []

    def fill(thread: int, begin: int, length: int, depth: int) -> None:
        at = begin
        while at < begin + length and len(events) < 60:
            lasts = draw(st.integers(1, max(1, begin + length - at)))
            name = draw(st.sampled_from(HOST_NAMES))
            args: dict[str, Any] = {}
            if draw(st.booleans()):
                args = {"Input Dims": draw(st.sampled_from([[[2, 3], []], [[[2], [3]]], []])), "Input type": ["float"]}
            if draw(st.booleans()):
                args["Sequence number"] = draw(st.integers(0, 3))
            if draw(st.integers(0, 3)) == 0:
                args["Fwd thread id"] = draw(st.integers(0, 2))
            category = "cpu_op" if name.startswith(("aten", BACKWARD, "Torch")) else "user_annotation"
            events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": at, "dur": lasts, "args": args})
            if draw(st.integers(0, 2)) == 0:
                call = draw(st.sampled_from(["cudaLaunchKernel", "cudaGraphLaunch"]))
                args = {"correlation": 1 + sum(event["cat"] == "cuda_runtime" for event in events)}
                events.append({"ph": "X", "cat": "cuda_runtime", "name": call, "pid": 1, "tid": thread, "ts": at, "dur": 0.5,
                               "args": args})  # fmt: skip
            if depth < 4 and lasts > 2 and draw(st.booleans()):
                fill(thread, at + 1, lasts - 1, depth + 1)
            at += lasts + draw(st.integers(0, 2))

    for thread in (1, 2):
        fill(thread, draw(st.integers(0, 5)), 60, 0)
    device = draw(st.booleans())
    for number in range(draw(st.integers(1, 14)) if device else 0):
        events.append({"ph": "X", "cat": draw(st.sampled_from(["kernel", "kernel", "gpu_memcpy"])) if number else "kernel",
                       "name": f"k{number}", "pid": 0, "tid": 7, "ts": draw(st.integers(0, 90)), "dur": draw(st.integers(0, 9)),
                       "args": {"correlation": draw(st.integers(0, 14)), "stream": 7}})  # fmt: skip
    return {"traceEvents": draw(st.permutations(events))}, device


@examples(150)
@given(nested())
def test_operators_are_the_slices_of_any_trace_together(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Any, bool]) -> None:
    table, device = drawn
    run = read_run(tmp_path_factory.mktemp("trace"), table)
    if any(event["cat"] == "cpu_op" for event in table["traceEvents"]):
        agree(run, sums_of_slices(table, device))
    else:
        assert run.ranks[0].operators == ()


def test_a_trace_becomes_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "trace.json", tmp_path / "traced.parquet"
    path.write_text(json.dumps(chrome()), encoding="utf-8")
    assert main(["measure", "from", str(path), "-o", str(out), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["about"]["gpu"] == "h100-sxm-80gb"
    attention = next(row for row in read(out).rows() if row["op"] == "attention")
    assert (attention["batch"], attention["m"], attention["k"], attention["heads_per_kv"], attention["causal"]) == (
        16,
        512,
        64,
        4,
        True,
    )
    path.write_text(json.dumps(chrome(gpu="a board that nobody knows")), encoding="utf-8")
    assert main(["measure", "from", str(path), "-o", str(out)]) == 2 and "--gpu" in capsys.readouterr().err


def products(*kernels: tuple[str, float]) -> dict[str, Any]:
    """A trace with a product of 1,024 x 1,024 x 1,024 in fp32, launched once, for each kernel's name and us."""
    events: list[dict[str, Any]] = []
    for number, (name, lasts) in enumerate(kernels):
        at = 1000.0 * number
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": at, "dur": 50.0,
             "args": {"External id": number + 1, "Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": at + 10.0, "dur": 4.0,
             "args": {"correlation": number + 1, "External id": number + 1}},
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 60.0, "dur": lasts,
             "args": {"correlation": number + 1, "External id": number + 1, "stream": 7}},
        ]  # fmt: skip
    return {"deviceProperties": [{"name": "NVIDIA A100-SXM4-80GB"}], "traceEvents": events}


def test_fp32_on_tensor_cores_is_tf32_and_impossible_kernels_are_open(tmp_path: Path) -> None:
    """2.15 GFLOP take 110 us at the 19.5 TFLOP/s of fp32, and 14 us at the 156 of tf32."""
    path, out = tmp_path / "trace.json", tmp_path / "traced.parquet"
    plain = [(f"ampere_sgemm_{number}x64_tn", 130.0) for number in range(60)]
    path.write_text(
        json.dumps(products(*plain, ("cutlass_80_tensorop_s1688gemm_128x128", 20.0), ("splitKreduce", 7.0))), encoding="utf-8"
    )
    rows = {row["kernel"]: row for row in wt.measure.from_trace(path, out=out, gpu=None).rows()}
    assert rows["ampere_sgemm_0x64_tn"]["dtype"] == "fp32" and rows["ampere_sgemm_0x64_tn"]["status"] == "ok"
    assert rows["cutlass_80_tensorop_s1688gemm_128x128"]["dtype"] == "tf32"
    assert rows["cutlass_80_tensorop_s1688gemm_128x128"]["status"] == "ok"
    assert rows["splitKreduce"]["status"] == "open" and "faster than the GPU" in rows["splitKreduce"]["note"]
    path.write_text(json.dumps(products(plain[0], ("splitKreduce", 7.0))), encoding="utf-8")
    with pytest.raises(SpecError, match="Another GPU's times"):  # half of a trace
        wt.measure.from_trace(path, out=out, gpu=None)
    (shown,) = [row for row in rows_of(tmp_path, products(("splitKreduce", 20.0))) if row.op == "aten::mm"]
    assert shown.dtype == "tf32" and shown.peak == pytest.approx(2 * 1024**3 / 20e-6 / 156e12)


def test_a_tensor_that_is_filled_is_not_read() -> None:
    assert moved_bytes("aten::fill_", ((10, 10), ()), "fp32") == 400.0
    assert moved_bytes("aten::copy_", ((10, 10), (10, 10)), "fp32") == 1200.0


def test_kernels_without_operators_have_the_class_of_their_names(tmp_path: Path) -> None:
    """As PyTorch's profiler wrote traces before 1.13: other categories, launches, and no operator."""
    names = ("cutlass_70_wmma_tensorop_f16_s161616gemm_f16_32x32", "void at::native::elementwise_kernel<128, 4>(int)")
    events = []
    for number, name in enumerate(names):
        seen = {"ph": "X", "ts": 10.0 + 100.0 * number, "args": {"correlation": number}}
        events += [
            {**seen, "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "dur": 4.0},
            {**seen, "cat": "Kernel", "name": name, "pid": 0, "tid": 7, "ts": 20.0 + 100.0 * number, "dur": 15.0 + number},
        ]
    path, out = tmp_path / "trace.json", tmp_path / "traced.parquet"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    data = wt.measure.from_trace(path, out=out, gpu="a100-sxm-80gb")
    found = {row["op"]: row for row in data.rows()}
    assert set(found) == {"gemm", "elementwise"} and found["gemm"]["seconds"] == pytest.approx(15e-6)
    assert found["gemm"]["kernel"] == names[0] and found["gemm"]["m"] is None and "no operator" in found["gemm"]["note"]
    path.write_text(json.dumps({"traceEvents": events[::2]}), encoding="utf-8")
    with pytest.raises(WindtunnelError, match="record_shapes"):
        wt.measure.from_trace(path, out=out, gpu="a100-sxm-80gb")


def test_traces_of_several_programs_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / f"{rank}.json" for rank in range(3)]
    for rank, file in enumerate(files):
        file.write_text(json.dumps(chrome(rank, 3.6e9 * rank)), encoding="utf-8")
    with pytest.raises(SpecError, match=r"3,600 s apart.*one program at a time"):
        wt.runs.show(files)
    for rank, file in enumerate(files):
        file.write_text(json.dumps(chrome(rank, 50.0 * rank)), encoding="utf-8")
    assert len(wt.runs.show(files).run.ranks) == 3


def test_a_gpu_without_bf16_is_compared_in_fp16(capsys: pytest.CaptureFixture[str]) -> None:
    ratios = kernel_ratios(None, load_gpu("v100-sxm2-32gb"), load_gpu("h100-sxm-80gb"))
    assert 0.05 < ratios["gemm"] < 0.6
    assert main(["whatif", "a.json", "--change", "fp8", "--set", "runtime.precision=fp16"]) == 2
    assert "--job JOB beside it" in capsys.readouterr().err


def test_a_script_that_times_an_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The calls that took longest, with strides, formats and scalars as they were recorded; nothing of a trace is run as code."""
    table = chrome()
    for event in table["traceEvents"]:
        if event["name"] == "aten::add":
            event["args"] |= {"Input Strides": [[1, 4096], [2048, 1], []], "Concrete Inputs": ["", "", "2."]}
            event["args"]["Input Dims"] = [*ADDED, []]
            event["args"]["Input type"] = ["c10::BFloat16", "c10::BFloat16", "Scalar"]
    path = tmp_path / 'a""" trace.json'
    path.write_text(json.dumps(table), encoding="utf-8")
    assert main(["runs", "show", str(path), "--replay", "aten::add"]) == 0
    script = capsys.readouterr().out
    compile(script, "script", "exec")
    assert "tensor([4096, 2048], [1, 4096], torch.bfloat16)" in script and "    2.0,\n" in script
    assert "1 calls of 50.0 us" in script and "a____trace.json" in script
    assert main(["runs", "show", str(path), "--replay", "aten::sub"]) == 2 and "aten::add" in capsys.readouterr().err
    assert main(["runs", "show", str(path), "--replay", "k1"]) == 2
    for broken in ("__import__('os')", "[[1]]", "'text'"):
        for event in table["traceEvents"]:
            if event["name"] == "aten::add":
                event["args"]["Concrete Inputs"] = ["", "", broken]
        path.write_text(json.dumps(table), encoding="utf-8")
        assert main(["runs", "show", str(path), "--replay", "aten::add"]) == 2 and "numbers" in capsys.readouterr().err


def test_the_script_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    small = chrome()
    for event in small["traceEvents"]:
        if event["name"] == "aten::mm":
            event["args"]["Input Dims"] = [[8, 4], [4, 6]]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(small), encoding="utf-8")
    script = tmp_path / "mm.py"
    script.write_text(write_replay([path], "aten::mm"), encoding="utf-8")
    runpy.run_path(str(script))
    assert "us; the trace has 50.0 us" in capsys.readouterr().out
