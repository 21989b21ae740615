"""Classes of kernels that move bytes: measured ones, and those derived from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from windtunnel.calibrate.kernels.samples import Samples
from windtunnel.compute.curves import Basis, KernelCurves, MemoryCurve, Provenance
from windtunnel.compute.memory_classes import DERIVED, NATIVE, key_of

MEMORY = ("norm", "elementwise", "softmax", "cross_entropy", "embedding", "permute", "optimizer", "copy", "reduce")
"""Ops of a dataset that only move bytes."""

BY_KERNEL = ("scan",)
"""Ops whose kernels have a curve each over the bytes of the graph's row, and no class."""


class MemoryClass(NamedTuple):
    """A class and its basis; a latency of 0 means that the rows do not determine it."""

    curve: MemoryCurve
    table: Basis


def rows_by_kernel(rows: Samples) -> Iterator[tuple[str, Samples]]:
    """The rows of each kernel by (name, library) under its key; those without a library belong only to their class."""
    for name, library in sorted(set(zip(rows.name, rows.library, strict=True))):
        if name and library:
            yield key_of(name, library), rows.of(name=name, library=library)


def derive_classes(known: Mapping[str, MemoryClass], relative: KernelCurves) -> dict[str, MemoryClass]:
    """All classes: the measured ones, those that follow from plain pointwise kernels by `DERIVED`, or a relative's."""
    known = {NATIVE if name == "softmax" else name: value for name, value in known.items()}
    lent = {
        name: MemoryClass(relative.memory[name], _carried_basis(relative, name))
        for name in ("elementwise", *DERIVED, "permute")
        if name in relative.memory
    }
    plain = known.get("elementwise")
    base = plain or lent["elementwise"]
    classes = {"elementwise": base}
    for name, (share, backward) in DERIVED.items():
        if name in known:
            curve, table = known[name]
            if curve.latency == 0.0:
                curve = replace(base.curve, efficiency=min(curve.efficiency, base.curve.efficiency), backward=curve.backward)
            classes[name] = MemoryClass(curve if curve.backward != 1.0 else replace(curve, backward=backward), table)
        elif plain is None and name in lent:
            classes[name] = lent[name]
        else:
            close = share >= 0.95
            curve = replace(base.curve, efficiency=base.curve.efficiency * share, backward=backward)
            classes[name] = MemoryClass(
                curve,
                Basis(
                    max(base.table.error, 0.12 if close else 0.25),
                    Provenance.TRANSFERRED if close else Provenance.ASSUMED,
                    f"pointwise kernels of the same GPU times {share:g}",
                ),
            )
    if "permute" in known:
        classes["permute"] = known["permute"]
    return classes


def _carried_basis(relative: KernelCurves, name: str) -> Basis:
    table = relative.tables[name]
    provenance = max(table.provenance, Provenance.TRANSFERRED)
    return Basis(min(1.0, (table.error**2 + 0.01) ** 0.5), Provenance(provenance), f"{relative.id}: {table.source}")
