"""Tables that PyTorch's profiler prints: each second of the device counted once, by kind of kernel."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Reading

OPERATORS = [("aten::mm", 4.0, 100, "products"), ("aten::_flash_attention_forward", 2.0, 50, "attention"),
             ("c10d::_allgather_base_", 3.0, 20, "communication"), ("aten::mul", 0.5, 900, "memory-bound"),
             ("aten::native_layer_norm", 0.25, 10, "memory-bound"), ("aten::copy_", 0.25, 30, "copies")]  # fmt: skip
KERNELS = [("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", 4.0, 100),
           ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_tr...", 2.0, 50),
           ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStor...", 3.0, 20),
           ("void at::native::vectorized_elementwise_kernel<4, at...", 0.5, 900),
           ("_rms_norm_fwd_kernel", 0.25, 10), ("Memcpy DtoD (Device -> Device)", 0.25, 30)]  # fmt: skip


def _time(seconds: float) -> str:
    return f"{seconds:.3f}s" if seconds >= 1 else f"{1e3 * seconds:.3f}ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3f}us"


def _table(rows: list[tuple[str, float, float, int]], device: str, shapes: bool, gap: int, head: str = "") -> str:
    """(name, host seconds, device seconds, calls) as `table()` prints them."""
    total = sum(row[2] for row in rows if not row[1]) or sum(row[2] for row in rows) or 1.0
    columns = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", f"Self {device}", f"Self {device} %",
               f"{device} total", f"{device} time avg", "# of Calls", *(["Input Shapes"] if shapes else [])]  # fmt: skip
    width = [55, *[12] * 10, *([40] if shapes else [])]
    rule = (" " * gap).join("-" * size for size in width)
    lines = [rule, (" " * gap).join(f"{name:>{size}}" for name, size in zip(columns, width, strict=True)), rule]
    for name, host, own, calls in rows:
        cells = [name, "1.00%", _time(host), "1.00%", _time(host), _time(host), _time(own), f"{100 * own / total:.2f}%", _time(own),
                 _time(own / calls), str(calls), *(["[[1, 4096], [4096, 64]]"] if shapes else [])]  # fmt: skip
        lines.append((" " * gap).join(f"{cell:>{size}}" for cell, size in zip(cells, width, strict=True)))
    lines += [rule, "Self CPU time total: 9.500s", f"Self {device} time total: {_time(total)}"]
    return "\n".join(head + line for line in lines) + "\n"


def _read(folder: Path, text: str) -> Reading:
    path = folder / "profile.txt"
    path.write_text("import torch\n" + text, encoding="utf-8")
    reading = read_files([path])
    assert reading.format == "profiler-table"
    return reading


@pytest.mark.parametrize("seed", range(10))
def test_each_second_of_the_device_counts_once(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    operators = [(name, 0.002, own, calls) for name, own, calls, _ in OPERATORS]
    kernels = [(name, 0.0, own, calls) for name, own, calls in KERNELS]
    rows = [*kernels, ("ProfilerStep*", 0.0, 9.9, 3)] if seed % 3 == 0 else operators if seed % 3 == 1 else operators + kernels
    draw.shuffle(rows)
    text = _table([row for row in rows if row[0] != "ProfilerStep*"], draw.choice(["CUDA", "XPU", "Device"]), draw.random() < 0.5,
                  2, draw.choice(["", "[rank0]: ", "0: "]))  # fmt: skip
    facts = _read(tmp_path, text).facts
    assert facts["device_seconds"] == 10.0 and facts["communication_share"] == pytest.approx(0.3)
    kinds = facts["by_kind_seconds"]
    assert kinds == pytest.approx({"products": 4.0, "communication": 3.0, "attention": 2.0, "memory-bound": 0.75, "copies": 0.25})


def test_operators_speak_where_the_table_is_cut_before_the_kernels(tmp_path: Path) -> None:
    rows = [("c10d::_allgather_base_", 0.06, 42.93, 810),
            ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*...", 0.0, 42.93, 810),
            ("record_param_comms", 0.03, 27.985, 1630)]  # fmt: skip
    text = _table(rows, "CUDA", True, 2).replace("time total: 42.930s", "time total: 78.550s")
    reading = _read(tmp_path, text)
    assert reading.facts["communication_share"] == pytest.approx((42.93 + 27.985) / 78.55)
    assert reading.facts["operators"][0]["calls"] == 810 and reading.facts["operators"][0]["shapes"].startswith("[[1, 4096]")
    assert reading.facts["by_kind_seconds"]["rows that are not in the table"] == pytest.approx(78.55 - 70.915)


def test_a_table_whose_spaces_were_lost_is_read(tmp_path: Path) -> None:
    text = _table([(name, 0.0, own, calls) for name, own, calls in KERNELS], "CUDA", False, 2)
    squeezed = "\n".join(" ".join(line.split()) for line in text.splitlines())
    assert _read(tmp_path, squeezed).facts["communication_share"] == pytest.approx(0.3)


def test_a_profile_of_the_host_alone_says_what_is_missing(tmp_path: Path) -> None:
    text = _table([("aten::mm", 2.0, 0.0, 5)], "CUDA", False, 2).split("Self CPU time total")[0]
    with pytest.raises(WindtunnelError, match="without times of a device"):
        _read(tmp_path, text)
