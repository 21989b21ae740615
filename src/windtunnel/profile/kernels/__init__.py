"""Kernels that are measured one by one. A class is a function from a scope to cases; this is where they are registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windtunnel.profile.kernels import (
    activation,
    attention,
    copy,
    cross_entropy,
    embedding,
    gemm,
    grouped_gemm,
    launch,
    norm,
    optimizer,
    permute,
    reduce,
    residual,
    rope,
    scan,
    softmax,
)
from windtunnel.profile.kernels.case import Bench, KernelCase, Unavailable
from windtunnel.profile.kernels.scope import MODELS, Scope, scope_of

CLASSES: dict[str, Callable[[Scope], Iterator[KernelCase]]] = {
    "launch": launch.cases,
    "gemm": gemm.cases,
    "attention": attention.cases,
    "grouped_gemm": grouped_gemm.cases,
    "norm": norm.cases,
    "activation": activation.cases,
    "rope": rope.cases,
    "residual": residual.cases,
    "softmax": softmax.cases,
    "cross_entropy": cross_entropy.cases,
    "embedding": embedding.cases,
    "permute": permute.cases,
    "scan": scan.cases,
    "optimizer": optimizer.cases,
    "copy": copy.cases,
    "reduce": reduce.cases,
}
"""Class -> its cases. See docs/extend/kernel.md."""

__all__ = ["CLASSES", "MODELS", "Bench", "KernelCase", "Scope", "Unavailable", "scope_of"]
