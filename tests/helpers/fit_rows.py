"""Synthetic kernel rows with known laws, as a dataset."""

from __future__ import annotations

from typing import Any

from windtunnel.records import About, Dataset, dataset

COMMON: dict[str, Any] = {"level": "kernel", "mode": "eager", "status": "ok", "source": "made up", "phase": "forward"}
CPU = About(
    gpu="my-cpu",
    device="Two cores",
    architecture="cpu",
    source="made up",
    licence="CC0",
    datasheet={"peak.fp32": 1e11, "memory_bandwidth": 2e10, "l2": 3e7, "memory": 1.6e10, "sms": 2.0},
)


def product(m: int, n: int, k: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        **COMMON,
        "op": "gemm",
        "name": "linear",
        "dtype": "fp32",
        "batch": 1,
        "m": m,
        "n": n,
        "k": k,
        "seconds": seconds,
        **more,
    }


def moved(op: str, name: str, size: float, seconds: float, **more: Any) -> dict[str, Any]:
    return {**COMMON, "op": op, "name": name, "dtype": "fp32", "bytes": size, "seconds": seconds, **more}


def attention(seq: int, heads: int, seconds: float, phase: str = "forward") -> dict[str, Any]:
    return {
        **COMMON,
        "op": "attention",
        "name": "sdpa",
        "dtype": "fp32",
        "batch": heads,
        "m": seq,
        "n": seq,
        "k": 64,
        "causal": True,
        "phase": phase,
        "seconds": seconds,
    }


def tiny_cpu(about: About = CPU) -> Dataset:
    """A slow machine: products at 8e10 FLOP/s and 20 us, kernels that move bytes at 1e10 B/s and 5 us."""
    rows = [
        product(m, n, k, 2e-5 + 2.0 * m * n * k / 8e10)
        for n, k in ((256, 256), (768, 256), (256, 768))
        for m in (64, 128, 256, 512)
    ]
    rows += [moved("elementwise", "add", size, 5e-6 + size / 1e10, n=int(size / 12)) for size in (1e5, 3e5, 1e6, 3e6, 1e7, 3e7)]
    return dataset(about, rows)
