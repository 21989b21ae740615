"""rocprofv3's JSON and JAX's profiles become runs and operators whose seconds add up; XLA's programs say what products compute."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError
from windtunnel.cli import main
from windtunnel.formats.door import read_files
from windtunnel.records.run import ON_DEVICE
from windtunnel.runs.operators import operators_of_source
from windtunnel.runs.sources import run_of

PRODUCT = ((64, 128), (128, 32), (64, 32))
"""Shapes of a product's operands and of its result."""


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return number_of(number << 3) + number_of(value)
    data = value.encode() if isinstance(value, str) else value
    return number_of(number << 3 | 2) + number_of(len(data)) + data


def number_of(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def shape(*sizes: int, kind: int = 16) -> bytes:
    return field(2, kind) + field(3, b"".join(map(number_of, sizes)))


def instruction(name: str, opcode: str, about: bytes, number: int, operands: tuple[int, ...] = (), more: bytes = b"") -> bytes:
    given = b"".join(map(number_of, operands))
    return field(2, field(1, name) + field(2, opcode) + field(3, about) + field(35, number) + field(36, given) + more)


def program() -> bytes:
    """A fusion that calls a computation with one product over the second dimension of its first operand."""
    operands = [instruction(f"p{place}", "parameter", shape(*sizes), place) for place, sizes in enumerate(PRODUCT[:2])]
    dot = instruction("dot.1", "dot", shape(*PRODUCT[2]), 2, (0, 1), field(30, field(1, b"\x01") + field(2, b"\x00")))
    inner = field(3, b"".join((*operands, dot)) + field(5, 7))
    fusion = instruction("gemm_fusion", "fusion", shape(*PRODUCT[2]), 2, (0, 1), field(38, b"\x07"))
    other = instruction("add.1", "add", shape(64, 32, kind=11), 3, (2,))
    return field(1, "jit_step") + inner + field(3, b"".join((*operands, fusion, other)) + field(5, 8))


def metadata(number: int, about: bytes) -> bytes:
    return field(1, number) + field(2, field(1, number) + about)


def xspace() -> bytes:
    """Two devices and a host: three executions, a copy, and a line over all of them that repeats them."""
    hlo = field(5, field(1, 1) + field(6, field(1, program())))
    host = field(2, "/host:metadata") + field(4, metadata(1, field(2, "jit_step") + hlo))
    planes = [host + field(5, metadata(1, field(2, "Hlo Proto")))]
    for device in range(2):
        stats = ("hlo_op", "gemm_fusion", "add.1", "memcpy_details")
        kernels = ("gemm_fusion_kernel.kd", "loop_add.kd", "CopyDeviceToDevice")
        plane = field(2, f"/device:GPU:{device}")
        plane += b"".join(field(5, metadata(place, field(2, name))) for place, name in enumerate(stats, 1))
        plane += b"".join(field(4, metadata(place, field(2, name))) for place, name in enumerate(kernels, 1))
        named = {kernel: field(4, field(1, of) + field(7, value)) for kernel, of, value in ((1, 1, 2), (2, 1, 3), (3, 4, 1))}
        spans = ((1, 0, 40), (2, 50, 10), (1, 70, 60), (3, 140, 5))
        events = b"".join(
            field(4, field(1, kernel) + field(2, at * 10**6) + field(3, lasts * 10**6) + named[kernel])
            for kernel, at, lasts in spans
        )
        over = field(2, "XLA Modules") + field(3, 1000) + field(4, field(1, 1) + field(2, 0) + field(3, 145 * 10**6))
        planes.append(plane + field(3, field(2, "Stream #1") + field(3, 1000) + events) + field(3, over))
    return b"".join(field(1, plane) for plane in planes)


def test_a_profile_of_jax(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(xspace())
    run = run_of(path)
    assert [trace.device for trace in run.ranks] == ["GPU:0", "GPU:1"]
    for trace in run.ranks:
        assert float(trace.events.seconds[np.isin(trace.events.kind, ON_DEVICE)].sum()) == pytest.approx(115e-6)
    rows = operators_of_source(path, run)
    assert sum(row.seconds for row in rows) == pytest.approx(230e-6) and sum(row.share for row in rows) == pytest.approx(1.0)
    product = next(row for row in rows if row.op == "gemm_fusion")
    assert (product.number, product.dtype, product.kind) == (4, "bf16", "gemm") and product.seconds == pytest.approx(200e-6)
    assert product.flops_rate == pytest.approx(2 * 2 * 64 * 128 * 32 / 100e-6)
    assert product.bytes_rate == pytest.approx(2 * 2 * (64 * 128 + 128 * 32 + 64 * 32) / 100e-6)
    added = next(row for row in rows if row.op == "add.1")
    assert added.flops_rate is None and added.bytes_rate == pytest.approx((2 + 4) * 64 * 32 / 10e-6)
    assert main(["runs", "show", str(path), "--json", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["op"] for row in shown["operators"]} == {"gemm_fusion", "add.1", "CopyDeviceToDevice"}


def tpu() -> bytes:
    """A TPU: a loop around two executions of a fusion, of which the profile states the work, beside lines that repeat them."""
    stats = ("device_type_string", "flops", "bytes_accessed", "shape_with_layout")
    plane = field(2, "/device:TPU:0")
    plane += b"".join(field(5, metadata(place, field(2, name))) for place, name in enumerate(stats, 1))
    plane += field(6, field(1, 1) + field(5, "TPU v4"))
    work = field(5, field(1, 2) + field(3, 10**9)) + field(5, field(1, 3) + field(4, 10**6))
    plane += field(4, metadata(1, field(2, "%fusion.1 = bf16[64,32]{1,0} fusion(%p0)") + field(4, "fusion.1") + work))
    plane += field(4, metadata(2, field(2, "%while.2 = (s32[]) while(%t)") + field(4, "while.2")))
    plane += field(4, metadata(3, field(2, "%add.3 = s32[] add(%a, %b)") + field(4, "add.3")))
    spans = ((2, 0, 100), (1, 5, 40), (1, 50, 40), (3, 200, 2))
    events = b"".join(field(4, field(1, kernel) + field(2, at * 10**6) + field(3, lasts * 10**6)) for kernel, at, lasts in spans)
    for name in ("XLA Ops", "Async XLA Ops", "XLA TraceMe", "Steps"):
        plane += field(3, field(2, name) + field(3, 1000) + events)
    return field(1, plane)


def test_a_profile_of_a_tpu_says_what_bounds_its_operators(tmp_path: Path) -> None:
    """1 GFLOP and 1 MB in 40 µs on 275 TFLOP/s and 1.2 TB/s; of the loop the 20 µs around them; and a scalar add."""
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(tpu())
    rows = {row.op: row for row in wt.runs.show(path).operators}
    assert sum(row.seconds for row in rows.values()) == pytest.approx(102e-6)
    fusion = rows["fusion.1"]
    assert (fusion.number, fusion.dtype, fusion.bound) == (2, "bf16", "compute") and fusion.seconds == pytest.approx(80e-6)
    assert fusion.flops_rate == pytest.approx(10**9 / 40e-6) and fusion.bytes_rate == pytest.approx(10**6 / 40e-6)
    assert fusion.peak == pytest.approx(10**9 / 40e-6 / 275e12)
    assert rows["while.2"].seconds == pytest.approx(20e-6) and (rows["while.2"].bound, bool(rows["while.2"].why)) == ("", True)
    assert rows["add.3"].bound == "launch" and not rows["add.3"].why


def rocprof() -> dict[str, Any]:
    """A process with two kernels on one GPU, a copy, and a kernel on another."""

    def dispatch(kernel: int, begin: int, lasts: int, agent: int) -> dict[str, Any]:
        about = {"agent_id": {"handle": agent}, "queue_id": {"handle": 3}, "kernel_id": kernel}
        span = {"start_timestamp": 10**9 + begin, "end_timestamp": 10**9 + begin + lasts}
        return {**span, "dispatch_info": about, "correlation_id": {"internal": begin, "external": 0}}

    copy = {
        "start_timestamp": 10**9 + 900, "end_timestamp": 10**9 + 950, "dst_agent_id": {"handle": 1}, "src_agent_id": {"handle": 0},
        "correlation_id": {"internal": 9}, "bytes": 4096,
    }  # fmt: skip
    kernels = [dispatch(1, 0, 300, 1), dispatch(2, 400, 200, 1), dispatch(2, 100, 700, 2)]
    records = {"kernel_dispatch": kernels, "memory_copy": [copy]}
    symbols = [{"kernel_id": 1, "formatted_kernel_name": "Cijk_Ailk_Bljk_MT64"}, {"kernel_id": 2, "kernel_name": "add_kernel.kd"}]
    agents = [{"id": {"handle": number}, "product_name": "AMD Instinct MI300X"} for number in (1, 2)]
    return {"rocprofiler-sdk-tool": [{"buffer_records": records, "kernel_symbols": symbols, "agents": agents}]}


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_of_rocprof(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("results.json.gz" if packed else "results.json")
    text = json.dumps(rocprof()).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    reading = read_files([path])
    assert reading.format == "rocprof" and [reading.facts[name] for name in ("ranks", "kernels", "copies")] == [2, 3, 1]
    report = wt.runs.show(path)
    assert [(row.op, row.number, pytest.approx(row.seconds)) for row in report.operators] == [
        ("add_kernel", 2, 900e-9), ("Cijk_Ailk_Bljk_MT64", 1, 300e-9), ("Memcpy", 1, 50e-9),
    ]  # fmt: skip
    assert next(row.kind for row in report.operators if row.op.startswith("Cijk")) == "gemm"


@pytest.mark.parametrize(
    "broken", [{"buffer_records": {"kernel_dispatch": [{"start_timestamp": 1}]}}, {"buffer_records": {}}, {}, 3]
)
def test_a_broken_trace_of_rocprof_is_said(tmp_path: Path, broken: Any) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [broken]}), encoding="utf-8")
    with pytest.raises(FileError):
        read_files([path])


@pytest.mark.parametrize("cut", [9, 100, 300, -3])
def test_a_profile_that_is_cut_off_is_said(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(xspace()[:cut])
    with pytest.raises(FileError):
        read_files([path], name="xplane")
