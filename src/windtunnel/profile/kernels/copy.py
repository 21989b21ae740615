"""Copies, casts and fills of n elements: on the device, and between host and device from pinned and pageable memory.

A copy on the device reads and writes; one from or to the host crosses the device's memory once.
"""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope

SIZES = (2**24, 2**28, 2**26, 2**22, 2**20, 2**18)
"""Elements."""

HOST = ("host_to_device_pinned", "device_to_host_pinned", "host_to_device_pageable", "device_to_host_pageable")
LARGEST_HOST = 2**26


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Every way at every size."""
    ways = {
        "device_copy": ("bf16", None),
        "cast_bf16_fp32": ("bf16", "fp32"),
        "cast_fp32_bf16": ("fp32", "bf16"),
        "fill": ("bf16", None),
        "quantise_fp8": ("bf16", "fp8"),
        **({name: ("bf16", None) for name in HOST} if scope.cuda else {}),
    }
    for at, (name, (dtype, out)) in enumerate(ways.items()):
        for index, n in enumerate(SIZES if scope.variants else SIZES[:3]):
            if name in HOST and n > LARGEST_HOST:
                continue
            yield case(name, n, dtype, out, scope.rank(more=0.4 * at + 0.6 * index))


def case(name: str, n: int, dtype: str, out: str | None, rank: float) -> KernelCase:
    """n elements. `quantise_fp8` writes the scaled values and, as products want both orders, their transpose."""
    width, result = WIDTH[dtype], WIDTH[out or dtype]
    moved = {"fill": width, "quantise_fp8": width + 2 * result, **dict.fromkeys(HOST, width)}.get(name, width + result)

    def make(bench: Bench) -> Run:
        torch = bench.torch
        if name in HOST:
            pinned = name.endswith("pinned")
            host = torch.zeros(n, dtype=bench.device.dtype(dtype), pin_memory=pinned)
            there = bench.randn(n, dtype=dtype)
            source, target = (host, there) if name.startswith("host") else (there, host)
            return lambda: target.copy_(source, non_blocking=pinned)
        source = bench.randn(n, dtype=dtype)
        if name == "fill":
            return lambda: source.zero_()
        if name == "quantise_fp8":
            square = source.view(-1, 1024)
            return lambda: ((scaled := (square * 0.5).to(torch.float8_e4m3fn)), scaled.t().contiguous())
        target = torch.empty(n, dtype=bench.device.dtype(out or dtype), device=bench.device.place)
        return lambda: target.copy_(source)

    op = "elementwise" if name == "quantise_fp8" else "copy"
    return KernelCase(
        op, name, "forward", make, dtype, out, n=n, bytes=float(moved * n), rank=rank, modes=() if name in HOST else ("cuda_graph",)
    )
