"""Kernel constants from datasets of one GPU: classes with enough rows are fitted, the others are taken from a relative.

The command is `windtunnel fit kernels`. Errors are ln(predicted / measured) in per cent. Held-out rows are predicted by constants
fitted without their group: a weight's shape in all of its three products, a width, a length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import asdict, dataclass, field, replace
from windtunnel.base.errors import SpecError
from windtunnel.calibrate.kernels import classes
from windtunnel.calibrate.kernels.memory_classes import BY_KERNEL, MEMORY, MemoryClass, derive_classes, rows_by_kernel
from windtunnel.calibrate.kernels.reference import reference, reference_gpu
from windtunnel.calibrate.kernels.samples import BACKWARD, Samples, samples
from windtunnel.calibrate.kernels.solve import held_out, log_errors, sigma, statistics
from windtunnel.compute.choose import BY_ARCHITECTURE, DEFAULT
from windtunnel.compute.curves import AttentionCurve, Basis, GemmCurve, KernelCurves, MemoryCurve, Provenance
from windtunnel.compute.device import Device, device
from windtunnel.compute.kernel_file import load
from windtunnel.compute.library import default_attention
from windtunnel.compute.processor import PRODUCT, is_processor, neutral
from windtunnel.records import Dataset
from windtunnel.spec.machine import GPU

BETWEEN_SETS = 0.08
"""Least error of a class: two published sets on one GPU model differ by about twice this (data, clocks, cooling)."""

CARRIED = 0.1
"""Relative error added for constants of another GPU."""

LEAST = {"gemm": 8, "grouped_gemm": 8, "attention": 6, "memory": 5}
"""Minimum of rows for a class to be fitted: two for each free constant."""

LEAST_CPU = {"gemm": 4, "grouped_gemm": 4, "attention": 3, "memory": 3}
"""The same for a processor, of whose classes only the rate is fitted if rows are few."""

TILES = {
    "ampere": ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)),
    "hopper": ((128, 256), (256, 128), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)),
    "blackwell": ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)),
}
"""Output tiles of the libraries' tensor-core kernels (CUTLASS profiler's default shapes for sm80, sm90, sm100)."""

QUERY_ROWS = {("blackwell", "forward"): 256}
"""Query rows of an attention block, if not 128: two tiles of 128 in flight on sm100."""

PLAIN = GemmCurve(
    fraction=0.9,
    tiles=TILES["ampere"],
    tile_cost=12.0,
    prologue=100.0,
    wave=0.5,
    memory=0.85,
    latency=3e-6,
    split=3e-6,
    blend=3.0,
    throttle=0.1,
    settle=3e-4,
    dgrad=1.0,
    wgrad=1.03,
)
"""Start of a fit; factors of layouts without rows are the mean of A100 PCIe's and B200's."""

LARGE, WIDE = 3e7, 8192
"""For times that include the launch: only sets with more bytes than this, with rows of one block each, are used for the rate."""

BY_ROW = ("norm", "softmax")
"""Classes whose kernels assign one row to one block, both in a dataset and in the graph of a job; other ops run over rows, heads or
elements."""

FIRST = AttentionCurve(fraction=0.7, rows=128, wave=0.5, setup=150.0, head=20.0, causal=1.05, latency=6e-6)
"""Start of a fit of attention without a relative's curve."""


class Use(NamedTuple):
    """A class of kernels: usable rows, rows that a fit needs, and the origin of its constants."""

    what: str
    rows: int
    needed: int
    used: str


FITTED = "fitted"


@dataclass
class Fit:
    """A fit in progress and its results: errors by class and part of the rows, the basis of each class, assumptions."""

    kernels: KernelCurves
    lines: list[tuple[str, Floats]] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Summary of the fit: errors of held-out rows in percent, and the origin of each class's constants."""
        held_out = []
        for what, errors in self.lines:
            each = statistics(errors)
            held_out.append(
                {
                    "what": what,
                    "rows": int(each.n),
                    "median_pct": each.median_pct,
                    "p90_pct": each.p90_pct,
                    "bias_pct": each.bias_pct,
                }
            )
        classes = [{"class": each.what, "rows": each.rows, "needed": each.needed, "used": each.used} for each in self.uses]
        return {"gpu": self.kernels.id, "held_out": held_out, "classes": classes, "messages": list(self.messages)}


def fit(
    data: Sequence[Dataset],
    relative: KernelCurves | None = None,
    stated: Mapping[str, MemoryClass] | None = None,
    only: Sequence[str] = (),
    report: Callable[[float], object] = lambda share: None,
) -> Fit:
    """Constants of the one GPU of `data`.

    `relative`: constants that fill the gaps; by default those of its architecture. `stated`: classes that move bytes whose share of
    the bandwidth is published without rows. `only`: classes that must be fitted (gemm, grouped_gemm, attention, or an op that moves
    bytes). SpecError for one with too few rows, for data of two GPUs, and for data without a usable row.
    """
    gpus = sorted({each.about.gpu for each in data})
    if len(gpus) != 1:
        raise SpecError("datasets", ", ".join(gpus) or "none", "datasets of one GPU", "Fit each GPU into a file of its own.")
    threads = sorted({each.about.settings.get("threads", "") for each in data})
    if len(threads) > 1:
        raise SpecError(
            "about.settings.threads",
            ", ".join(word or "not stated" for word in threads),
            "the same in all datasets",
            "Measure them with the same --threads.",
        )
    rows = samples(data)
    _enough(rows, only, is_processor(data[0].about.architecture))
    gpu, sheet, assumptions = reference_gpu(data[0].about, rows)
    relative = relative if relative is not None else relative_of(gpu)
    about = {name: value for name, value in asdict(data[0].about).items() if value and name not in ("datasheet", "version")}
    shell = replace(
        relative,
        id=gpu.id,
        architecture=gpu.architecture,
        datasheet=sheet,
        about=about,
        tables={},
        memory={},
        attention={},
        grouped=None,
        **reference(gpu, rows),
    )
    result = Fit(shell, messages=[f"assumed {what}" for what in assumptions])
    work = _FitSteps(result, gpu, device(gpu, shell), rows, relative, _source(data), only)
    work.products()
    report(0.6)
    work.attention()
    report(0.8)
    work.bytes_moved(stated or {})
    report(1.0)
    return result


def starting_curves() -> KernelCurves:
    """A relative with only starting values: a fit with it depends only on its data."""
    table = Basis(0.35, Provenance.ASSUMED, "starting values")
    return KernelCurves(
        id="none",
        architecture="none",
        peak=1.0,
        achievable=1.0,
        sms=1.0,
        l2=1.0,
        power=1.0,
        narrow=1.0,
        bandwidth=1.0,
        gemm=PLAIN,
        memory={"elementwise": MemoryCurve(0.8, 2e-6, 1.3)},
        attention={"fa2": {"forward": FIRST, "backward": FIRST}},
        tables={"gemm": table, "elementwise": table, "attention.fa2": table},
    )


def relative_of(gpu: GPU) -> KernelCurves:
    """The relative whose constants fill the gaps of a GPU's data: the one that it names, that of its architecture, or the default;
    never itself. A processor has no relative among GPUs and uses neutral constants."""
    if is_processor(gpu.architecture):
        return neutral(gpu)
    for name in (gpu.kernels_from, BY_ARCHITECTURE.get(gpu.architecture), DEFAULT, BY_ARCHITECTURE["ampere"]):
        if name is not None and name != gpu.id:
            return load(name)
    return load(DEFAULT)


def _least(name: str, cpu: bool) -> int:
    table = LEAST_CPU if cpu else LEAST
    return table.get(name, table["memory"])


def _enough(rows: Samples, only: Sequence[str], cpu: bool) -> None:
    known = ("gemm", "grouped_gemm", "attention", *MEMORY)
    for name in only:
        if name not in known:
            raise SpecError("--only", name, ", ".join(known))
        available_rows, least = len(rows.of(op=name)), _least(name, cpu)
        if available_rows < least:
            raise SpecError("--only", f"{available_rows} rows of {name}", f"at least {least} rows to fit it")
    counts = {name: len(rows.of(op=name)) for name in known}
    if not any(count >= _least(name, cpu) for name, count in counts.items()):
        got = ", ".join(f"{count} of {name}" for name, count in counts.items() if count) or "no usable kernel row"
        raise SpecError(
            "datasets",
            got,
            f"at least {_least('gemm', cpu)} products, {_least('attention', cpu)} attention kernels of one direction, or "
            f"{_least('memory', cpu)} kernels that move bytes",
            "Measure a job's kernels: `windtunnel profile sweep JOB -o kernels.parquet`.",
        )


def _source(data: Sequence[Dataset]) -> str:
    parts = [f"{each.about.source}{f', {each.about.licence}' if each.about.licence else ''}" for each in data]
    return "; ".join(dict.fromkeys(part for part in parts if part)) or "measured"


@dataclass
class _FitSteps:
    """One fit's data and the three steps over it."""

    made: Fit
    gpu: GPU
    dev: Device
    rows: Samples
    relative: KernelCurves
    source: str
    only: Sequence[str]

    @property
    def cpu(self) -> bool:
        return is_processor(self.gpu.architecture)

    def least(self, name: str) -> int:
        """Minimum of rows for a class to be fitted."""
        return _least(name, self.cpu)

    def use(self, what: str, rows: int, needed: int, used: str = FITTED) -> None:
        self.made.uses.append(Use(what, rows, needed, used))

    def put(self, key: str, table: Basis) -> None:
        self.made.kernels.tables[key] = table

    def products(self) -> None:
        """Dense products, then grouped ones with the dense curve as their start."""
        rows, least = self.rows.of(op="gemm"), self.least("gemm")
        if np.count_nonzero(~rows.host) >= least:  # times from the host include the launch
            rows = rows.take(~rows.host)
        tiles = TILES.get(self.gpu.architecture, self.relative.gemm.tiles)
        if len(rows) < least:
            curve = replace(self.relative.gemm, fraction=self._scale_fraction(self.relative.gemm.fraction))
            self._carry("gemm", len(rows), least)
        else:
            few = len(rows) < classes.FEW
            start = PRODUCT if self.cpu else replace(self.relative.gemm if few else PLAIN, tiles=tiles)
            curve = self._products("gemm", start, rows)
            self.use("gemm", len(rows), least)
        self.made.kernels = replace(self.made.kernels, gemm=curve)
        rows = self.rows.of(op="grouped_gemm")
        least = self.least("grouped_gemm")
        if len(rows) >= least:
            self.use("grouped_gemm", len(rows), least)
            self.made.kernels = replace(self.made.kernels, grouped=self._products("grouped_gemm", curve, rows))
        elif len(rows):
            self.use("grouped_gemm", len(rows), least, "as gemm")

    def _products(self, key: str, start: GemmCurve, rows: Samples) -> GemmCurve:
        dev = self.dev

        def fit_part(part: Samples) -> GemmCurve:
            return classes.fit_gemm(start, dev, part, self.cpu)

        def predict(curve: GemmCurve, part: Samples) -> Floats:
            return classes.gemm_predict(curve, dev, part)

        curve, errors = fit_part(rows), _held_out_errors(rows, fit_part, predict)
        parts: dict[str, Bools] = {"all": np.ones(len(rows), np.bool_), "2048 tokens or more": rows.tokens >= 2048}
        parts |= {phase: rows.phase == phase for phase in ("forward", "dgrad", "wgrad") if len(set(rows.phase)) > 1}
        usual = rows.tokens >= 1024
        self._table(key, errors, log_errors(predict(curve, rows), rows), parts, usual if usual.sum() > 4 else parts["all"])
        return curve

    def attention(self) -> None:
        """Both directions of each library; constants that no row determines are taken from the relative."""
        rows, least = self.rows.of(op="attention"), self.least("attention")
        curves: dict[str, dict[str, AttentionCurve]] = {}
        library = np.where(rows.library == "", default_attention(self.gpu.architecture), rows.library)
        backward = np.isin(rows.phase, BACKWARD)
        for name in sorted(set(library)):
            wide = name.partition(" ")[0]  # a kernel in 8 bits begins where the same library's in 16 bits ended
            lent = self.relative.attention.get(name) or curves.get(wide) or next(iter(self.relative.attention.values()))
            ways: dict[str, AttentionCurve] = {}
            errors: dict[str, tuple[Floats, Floats]] = {}
            for way in ("forward", "backward"):
                part = rows.take((library == name) & (backward == (way == "backward")))
                tall = lent[way].rows if self.cpu else QUERY_ROWS.get((self.gpu.architecture, way), 128)
                start = lent[way]
                if lent is not curves.get(wide):
                    start = replace(start, rows=tall, fraction=self._scale_fraction(start.fraction))
                if len(part) >= least:
                    ways[way], errors[way] = self._attention(start, part)
                    self.use(f"attention {name} {way}", len(part), least)
                else:
                    ways[way] = start
                    if len(part) or ways.get("forward") is not start:
                        self.use(f"attention {name} {way}", len(part), least, f"{self.relative.id}'s")
            if errors:
                curves[name] = ways
                held_out = {way: each[0] for way, each in errors.items()}
                trained = {way: statistics(each[1]) for way, each in errors.items()}
                self.put(
                    f"attention.{name}",
                    Basis(
                        max(sigma(e) for e in held_out.values()) if len(held_out) == 2 else 0.15,
                        Provenance.MODELLED,
                        self.source,
                        {way: statistics(e) for way, e in held_out.items()},
                        trained,
                    ),
                )
                table = self.made.kernels.tables[f"attention.{name}"]
                self.put(f"attention.{name}", replace(table, error=max(table.error, BETWEEN_SETS)))
                self.made.lines += [(f"attention {name} {way}", e) for way, e in held_out.items()]
        if not curves:
            for name, lent in self.relative.attention.items():
                curves[name] = {way: replace(curve, fraction=self._scale_fraction(curve.fraction)) for way, curve in lent.items()}
                self._carry(f"attention.{name}", len(rows), least)
        self.made.kernels = replace(self.made.kernels, attention=curves)

    def _attention(self, start: AttentionCurve, rows: Samples) -> tuple[AttentionCurve, tuple[Floats, Floats]]:
        names = classes.determined_by_direction(start, self.dev, rows)

        def fit_part(part: Samples) -> AttentionCurve:
            return classes.fit_attention(start, self.dev, part, names, self.cpu)

        def predict(curve: AttentionCurve, part: Samples) -> Floats:
            return classes.attention_predict(curve, self.dev, part)

        curve = fit_part(rows)
        return curve, (_held_out_errors(rows, fit_part, predict), log_errors(predict(curve, rows), rows))

    def bytes_moved(self, stated: Mapping[str, MemoryClass]) -> None:
        """A curve for every kernel by name and library and one for every class; classes without rows are derived or taken from a
        relative."""
        curves: dict[str, MemoryCurve] = {}
        measured_classes: dict[str, MemoryClass] = dict(stated)
        lent = self.relative.memory["elementwise"]
        start = MemoryCurve(lent.efficiency, lent.latency, 1.0 if self.cpu else lent.cache)
        rows = self.rows.take(np.isin(self.rows.op, (*MEMORY, *BY_KERNEL)))
        least = self.least("memory")
        for key, part in rows_by_kernel(rows):
            if len(part) >= least:
                curve, table = self._memory_curve(key, start, part)
                curves[key] = curve
                self.put(key, table)
        for op in MEMORY:
            part = rows.of(op=op)
            part = part.take(np.array([classes.trains(library) for library in part.library], np.bool_)) if len(part) else part
            plain = part.take(~part.host)
            if len(plain) >= least:
                measured_classes[op] = MemoryClass(*self._memory_curve(op, start, plain, op in BY_ROW))
            elif len(part) >= least:  # the launch in such times belongs to the timing method
                large = part.take((part.moved > LARGE) & (part.n <= WIDE))
                if len(large) >= least:
                    curve, table = self._memory_curve(op, MemoryCurve(lent.efficiency, 2e-5, 1.0), large, False)
                    measured_classes.setdefault(op, MemoryClass(replace(curve, latency=0.0), table))
            if len(part):
                self.use(op, len(part), least, FITTED if op in measured_classes else "from other classes")
        for name, (curve, table) in derive_classes(measured_classes, self.relative).items():
            curves[name] = curve
            self.put(name, table)
        self.made.kernels = replace(self.made.kernels, memory=curves)

    def _memory_curve(self, key: str, start: MemoryCurve, rows: Samples, by_row: bool = True) -> tuple[MemoryCurve, Basis]:
        def fit_part(part: Samples) -> MemoryCurve:
            return classes.fit_memory(start, self.dev, part, by_row, self.cpu)

        def predict(curve: MemoryCurve, part: Samples) -> Floats:
            return classes.memory_predict(curve, self.dev, part)

        curve, errors = fit_part(rows), _held_out_errors(_split(rows), fit_part, predict)
        parts: dict[str, Bools] = {"all": np.ones(len(rows), np.bool_), "above 10 us": rows.seconds > classes.LONG}
        usual = parts["above 10 us"] if parts["above 10 us"].any() else parts["all"]
        if self.cpu:  # an operator's time does not include a launch
            parts = {"all": parts["all"]}
        self._table(key, errors, log_errors(predict(curve, rows), rows), parts, usual)
        return curve, self.made.kernels.tables.pop(key)

    def _table(self, key: str, held_out: Floats, trained: Floats, parts: dict[str, Bools], usual: Bools) -> None:
        if not (self.cpu and key in MEMORY):  # a processor's operators have their own curves; the class covers all others
            self.made.lines += [
                (f"{key}, {part}" if part != "all" else key, held_out[mask]) for part, mask in parts.items() if mask.any()
            ]
        self.put(
            key,
            Basis(
                max(sigma(held_out[usual]), BETWEEN_SETS),
                Provenance.MODELLED,
                self.source,
                {part: statistics(held_out[mask]) for part, mask in parts.items() if mask.any()},
                {part: statistics(trained[mask]) for part, mask in parts.items() if mask.any()},
            ),
        )

    def _carry(self, key: str, rows: int, least: int) -> None:
        table = self.relative.tables[key]
        founded = max(table.provenance, Provenance.TRANSFERRED)
        self.put(key, Basis(float(np.hypot(table.error, CARRIED)), Provenance(founded), f"{self.relative.id}: {table.source}"))
        self.use(key.replace(".", " "), rows, least, "assumed" if self.cpu else f"{self.relative.id}'s")

    def _scale_fraction(self, fraction: float) -> float:
        """A relative's share of the peak, scaled by the ratio of the two GPUs' best measured shares of peak."""
        here, there = self.made.kernels, self.relative
        return min(1.0, fraction * (here.achievable / here.peak) / (there.achievable / there.peak))


def _split(rows: Samples) -> Samples:
    """Groups by shape if one group would contain half of the rows: a sweep along two axes crosses in one width."""
    _, counts = np.unique(rows.group.astype(str), return_counts=True)
    if counts.max() <= 0.5 * len(rows):
        return rows
    return replace(rows, group=np.array([f"{g} {m:.0f}" for g, m in zip(rows.group, rows.m, strict=True)], np.object_))


def _held_out_errors(rows: Samples, fitted: Callable[[Samples], Any], predict: Callable[[Any, Samples], Floats]) -> Floats:
    """Held-out errors; with fewer than three groups no group can be held out, and the errors are those of the fit, doubled."""
    if len(set(rows.group)) < 3:
        return 2.0 * log_errors(predict(fitted(rows), rows), rows)
    return held_out(rows, fitted, predict)
