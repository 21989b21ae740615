"""Reproduces `catalog/kernels/*.toml` from published measurements and prints the errors.

    python -m windtunnel.compute.fit FOLDER [--write OUT]

FOLDER holds `vidur/compute/{a100,h100}`, `simumax/{a100_pcie,b200_bf16_ceperm}.json` and `llmcompass_a100`; without `--write`
nothing is written. Every number in the table is ln(predicted / measured) in per cent on groups (weight shapes, widths) left out of
the fit.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.compute.device import Device
from windtunnel.compute.fitting import (
    attention_predict,
    fit_attention,
    fit_gemm,
    fit_memory,
    gemm_predict,
    held_out,
    log_errors,
    memory_predict,
)
from windtunnel.compute.kernels import FOLDER, AttentionCurve, GemmCurve, MemoryCurve
from windtunnel.compute.samples import Sample, llmcompass, llmcompass_layer, published_attention, simumax, vidur

Array = npt.NDArray[np.float64]
TOKENS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 6144, 8192, 12288, 16384, 24576, 32768)
"""Token counts taken from Vidur's dense sweep."""

AMPERE = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
HOPPER = ((128, 256), (256, 128), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
BLACKWELL = ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
"""Output tiles of the libraries' tensor-core kernels (CUTLASS profiler's default shapes for sm80, sm90, sm100)."""


@dataclass(frozen=True)
class Gpu:
    """Data sheet of a fitted GPU; the same numbers as in `catalog/gpus`."""

    id: str
    architecture: str
    peak: float
    achievable: float
    bandwidth: float
    sms: int
    l2: float
    power: int
    tiles: tuple[tuple[int, int], ...]
    narrow: float = 1.0
    """(best / peak) of FP8 over that of bf16, from the GPUs' measured best matmuls."""

    def device(self) -> Device:
        rate = np.full(7, self.peak)
        return Device(rate, rate, self.bandwidth, float(self.sms), self.l2)


A100 = Gpu("a100-sxm-80gb", "ampere", 312e12, 271.2e12, 2.039e12, 108, 40 * 2.0**20, 400, AMPERE)
PCIE = Gpu("a100-pcie-80gb", "ampere", 312e12, 252.9e12, 1.935e12, 108, 40 * 2.0**20, 300, AMPERE)
H100 = Gpu(
    "h100-sxm-80gb", "hopper", 989.4e12, 794.5e12, 3.35e12, 132, 50 * 2.0**20, 700, HOPPER, (1402.6 / 1978.9) / (794.5 / 989.4)
)
B200 = Gpu(
    "b200-sxm-180gb", "blackwell", 2250e12, 1745e12, 8.0e12, 148, 126 * 2.0**20, 1000, BLACKWELL, (3432.5 / 4500) / (1745 / 2250)
)

VIDUR = "microsoft/vidur 7d47513 data/profiling/compute/{}, medians, MIT"
SIMUMAX = "MooreThreads/SimuMax 4dcaae5 {}.json, Apache-2.0"
LLMCOMPASS = "PrincetonUniversity/LLMCompass 2e015fd A100 sweeps, BSD-3"
PUBLISHED = "catalog/kernels/published/attention.toml"


@dataclass
class File:
    """One constants file in the making."""

    gpu: Gpu
    gemm: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    attention: dict[str, dict[str, Any]] = field(default_factory=dict)


WAYS = ("forward", "backward")
BETWEEN_SETS = 0.08
"""Two published sets on one GPU model differ by about twice this (LLMCompass and Vidur on A100: 16 %): data, clocks, cooling."""


def founded(curve: Any, error: float, provenance: str, source: str) -> dict[str, Any]:
    """A table: constants, then how well they are founded; an error never claims less than the spread between sets."""
    return {**asdict(curve), "error": round(max(error, BETWEEN_SETS), 3), "provenance": provenance, "source": source}


def sigma(errors: Array) -> float:
    """Share that 68 % of the errors stay below: one sigma, robustly."""
    return float(np.quantile(np.abs(errors), 0.68))


def line(label: str, errors: Array) -> None:
    """One row of the error table."""
    if len(errors):
        size = np.abs(errors)
        print(
            f"| {label} | {len(errors)} | {100 * np.median(size):.1f} | {100 * np.quantile(size, 0.9):.1f} "
            f"| {100 * np.mean(errors):+.1f} |"
        )


def gemm(gpu: Gpu, samples: list[Sample], layouts: bool, label: str) -> tuple[GemmCurve, float]:
    """Fits one GPU's GEMM class and prints held-out errors; returns the curve on all samples and one sigma."""
    dev = gpu.device()
    start = GemmCurve(
        fraction=0.9,
        tiles=gpu.tiles,
        tile_cost=12.0,
        prologue=100.0,
        wave=0.5,
        memory=0.85,
        latency=3e-6,
        split=3e-6,
        blend=3.0,
        throttle=0.1,
        settle=3e-4,
    )
    errors = held_out(samples, lambda s: fit_gemm(start, dev, s, layouts), lambda c, s: gemm_predict(c, dev, s))
    tokens = np.array([s.m if s.layout != "wgrad" else s.k for s in samples])
    line(f"{gpu.id} gemm, held out, {label}", errors)
    line(f"{gpu.id} gemm, held out, 2048 tokens or more", errors[tokens >= 2048])
    if layouts:
        for layout in ("forward", "dgrad", "wgrad"):
            line(f"{gpu.id} gemm, held out, {layout}", errors[np.array([s.layout == layout for s in samples])])
    return fit_gemm(start, dev, samples, layouts), sigma(errors[tokens >= 1024])


def check(label: str, curve: GemmCurve, gpu: Gpu, samples: Sequence[Sample]) -> None:
    """Errors on samples that no fit has seen."""
    line(f"{gpu.id} gemm, never fitted, {label}", log_errors(gemm_predict(curve, gpu.device(), samples), samples))


def pointwise(gpu: Gpu, samples: list[Sample], label: str) -> tuple[MemoryCurve, float]:
    """Fits the plain pointwise class (Vidur's residual add) and prints held-out errors above 10 us."""
    dev, names = gpu.device(), ("efficiency", "latency", "cache")
    start = MemoryCurve(efficiency=0.8, latency=2e-6, cache=1.3)
    errors = held_out(samples, lambda s: fit_memory(start, dev, s, names), lambda c, s: memory_predict(c, dev, s))
    long = np.array([s.seconds > 10e-6 for s in samples])
    line(f"{gpu.id} {label}, held out", errors)
    line(f"{gpu.id} {label}, held out, above 10 us", errors[long])
    return fit_memory(start, dev, samples, names), sigma(errors[long])


def rate(gpu: Gpu, samples: list[Sample], label: str) -> tuple[float, float]:
    """Bandwidth share of a host-timed sweep: seconds = constant + bytes / rate; the constant is the timing's own and is dropped."""
    dev, names = gpu.device(), ("efficiency", "latency")
    start = MemoryCurve(efficiency=0.7, latency=2e-5)
    errors = held_out(samples, lambda s: fit_memory(start, dev, s, names), lambda c, s: memory_predict(c, dev, s), folds=4)
    line(f"{gpu.id} {label}, held out", errors)
    return fit_memory(start, dev, samples, names).efficiency, sigma(errors)


def memory_tables(
    plain: MemoryCurve, error: float, how: str, source: str, shares: dict[str, tuple[float, float, str, str]]
) -> dict[str, dict[str, Any]]:
    """Tables of all classes that move bytes: `shares` gives (bandwidth share, error, provenance, source) where something is known.

    The rest follows the plain class: fused norms and the fused softmax read and write once like it; a norm's backward also reduces
    over rows (factor 1.15, assumed); gathers of the embedding scatter with atomics in backward (factor 1.5, assumed).
    """
    found = {"elementwise": founded(plain, error, how, source)}
    derived = {
        "norm": (1.0, 1.15),
        "softmax": (0.9, 1.0),
        "softmax_native": (0.65, 1.0),
        "cross_entropy": (0.8, 1.0),
        "embedding": (0.2, 1.5),
        "optimizer": (1.0, 1.0),
        "copy": (1.0, 1.0),
        "reduce": (0.95, 1.0),
    }
    for name, (factor, backward) in derived.items():
        if name in shares:
            share, miss, provenance, origin = shares[name]
            found[name] = founded(replace(plain, efficiency=share, backward=backward), miss, provenance, origin)
        else:
            provenance = "transferred" if factor >= 0.95 else "assumed"
            found[name] = founded(
                replace(plain, efficiency=plain.efficiency * factor, backward=backward),
                max(error, 0.12 if factor >= 0.95 else 0.25),
                provenance,
                f"pointwise kernels of the same GPU times {factor}",
            )
    return found


def attention(
    gpu: Gpu, samples: Sequence[Sample], starts: dict[str, AttentionCurve], names: Sequence[str], label: str, source: str
) -> dict[str, Any]:
    """Both directions of one library; `names` are the constants that the samples can tell, the others stay as in `starts`."""
    dev, found, worst = gpu.device(), {}, 0.0
    for way in WAYS:
        rows, start = [s for s in samples if s.layout == way], starts[way]
        errors = held_out(rows, partial(fit_attention, start, dev, names=names), lambda c, s: attention_predict(c, dev, s))
        line(f"{gpu.id} {label} {way}, held out", errors)
        found[way] = asdict(fit_attention(start, dev, rows, names))
        worst = max(worst, sigma(errors))
    return {**found, "error": round(max(worst, BETWEEN_SETS), 3), "provenance": "modelled", "source": source}


def curve_of(table: dict[str, Any], way: str, **changes: Any) -> AttentionCurve:
    """A fitted curve as the start of another."""
    return replace(AttentionCurve(**table[way]), **changes)


def build(folder: Path) -> list[File]:
    """Fits everything. The order matters where one GPU lends constants to another."""
    print("| what | samples | median % | p90 % | bias % |\n|---|---|---|---|---|")
    files = {gpu.id: File(gpu) for gpu in (A100, PCIE, H100, B200)}
    profiles = {
        gpu: [s for s in vidur(folder / "vidur" / "compute" / name) if s.kind != "gemm" or s.m in TOKENS]
        for gpu, name in (("a100", "a100"), ("h100", "h100"))
    }
    sweeps = llmcompass(folder / "llmcompass_a100")
    systems = {name: simumax(folder / "simumax" / f"{name}.json") for name in ("a100_pcie", "b200_bf16_ceperm")}

    def pick(samples: Sequence[Sample], kind: str, origin: str = "") -> list[Sample]:
        return [s for s in samples if s.kind == kind and origin in s.origin]

    # GEMM. PCIe and B200 measure all three layouts; SXM and H100 take the layouts' factors from them.
    pcie, error = gemm(PCIE, pick(systems["a100_pcie"], "gemm"), True, "all")
    files[PCIE.id].gemm = founded(pcie, error, "modelled", SIMUMAX.format("a100_pcie"))
    check("grouped GEMM", pcie, PCIE, pick(systems["a100_pcie"], "grouped"))
    b200, error = gemm(B200, pick(systems["b200_bf16_ceperm"], "gemm"), True, "all")
    files[B200.id].gemm = founded(b200, error, "modelled", SIMUMAX.format("b200_bf16_ceperm"))
    check("grouped GEMM", b200, B200, pick(systems["b200_bf16_ceperm"], "grouped"))
    a100, error = gemm(A100, pick(profiles["a100"], "gemm"), False, "128 to 32768 tokens")
    a100 = replace(a100, dgrad=pcie.dgrad, wgrad=pcie.wgrad)
    files[A100.id].gemm = founded(a100, error, "modelled", VIDUR.format("a100") + "; layout factors of a100-pcie-80gb")
    check("batched scores and context of a layer", a100, A100, llmcompass_layer(folder / "llmcompass_a100"))
    check("LLMCompass matmul above 100 us", a100, A100, [s for s in pick(sweeps, "gemm") if s.seconds > 1e-4])
    # H100's down projections ran on activations that draw less power: up to 870 TFLOP/s, above the best measured matmul. Left out.
    rows = pick(profiles["h100"], "gemm")
    h100, error = gemm(H100, [s for s in rows if "down_proj" not in s.origin], False, "128 to 4096 tokens, without down_proj")
    h100 = replace(h100, dgrad=(pcie.dgrad + b200.dgrad) / 2, wgrad=(pcie.wgrad + b200.wgrad) / 2)
    files[H100.id].gemm = founded(
        h100, error, "modelled", VIDUR.format("h100") + "; layout factors: mean of a100-pcie-80gb and b200-sxm-180gb"
    )
    check("down_proj", h100, H100, [s for s in rows if "down_proj" in s.origin])

    # Kernels that move bytes.
    plain, error = pointwise(A100, pick(profiles["a100"], "elementwise", "add"), "add")
    emb = pick(profiles["a100"], "embedding")
    gather, miss = rate(A100, [s for s in emb if s.seconds > 2e-5], "embedding")
    norm, off = rate(A100, [s for s in pick(sweeps, "norm") if s.moved > 3e7 and s.n <= 8192], "layer norm (LLMCompass)")
    soft, far = rate(A100, [s for s in pick(sweeps, "softmax") if s.moved > 3e7], "softmax (LLMCompass)")
    gelu, wide = rate(A100, [s for s in pick(sweeps, "elementwise", "gelu") if s.moved > 3e7], "GELU (LLMCompass)")
    shares = {"add": plain.efficiency, "GELU": gelu, "norm": norm, "softmax": soft, "embedding": gather}
    print(f"\nBandwidth shares on A100: {', '.join(f'{k} {v:.3f}' for k, v in shares.items())} (GELU within {wide:.3f})\n")
    known = {
        "norm": (min(norm, plain.efficiency), max(off, 0.12), "modelled", LLMCOMPASS),
        "softmax_native": (soft, far, "modelled", LLMCOMPASS),
        "embedding": (gather, miss, "modelled", VIDUR.format("a100")),
    }
    files[A100.id].memory = memory_tables(plain, error, "modelled", VIDUR.format("a100") + ", residual add", known)
    pcie_known = {name: (share, max(miss, 0.1), "transferred", source) for name, (share, miss, _, source) in known.items()}
    pcie_known["cross_entropy"] = (0.808 * 1600e9 / PCIE.bandwidth, 0.2, "modelled", SIMUMAX.format("a100_pcie") + ", bandwidth.ce")
    files[PCIE.id].memory = memory_tables(
        replace(plain, efficiency=0.91 * 1600e9 / PCIE.bandwidth),
        0.15,
        "modelled",
        SIMUMAX.format("a100_pcie") + ", bandwidth.default",
        pcie_known,
    )
    fast, error = pointwise(H100, pick(profiles["h100"], "elementwise", "add"), "add")
    emb = pick(profiles["h100"], "embedding")
    gather, miss = rate(H100, [s for s in emb if s.seconds > 2e-5], "embedding")
    files[H100.id].memory = memory_tables(
        fast,
        error,
        "modelled",
        VIDUR.format("h100") + ", residual add",
        {"embedding": (gather, miss, "modelled", VIDUR.format("h100"))},
    )
    blackwell = replace(fast, efficiency=0.666)
    ce = ("modelled", SIMUMAX.format("b200_bf16_ceperm") + ", bandwidth.ce")
    files[B200.id].memory = memory_tables(
        blackwell,
        0.15,
        "modelled",
        SIMUMAX.format("b200_bf16_ceperm") + ", bandwidth.default",
        {"cross_entropy": (0.3246, 0.2, *ce)},
    )

    # Attention. H100 has published rates for three libraries; what they cannot tell (few heads) is taken from the SimuMax sweeps.
    start = AttentionCurve(fraction=0.7, rows=128, wave=0.5, setup=150.0, head=20.0, causal=1.05, latency=6e-6)
    every = ("fraction", "setup", "head", "causal", "wave")
    published = published_attention(FOLDER / "published" / "attention.toml")
    for library in ("fa2", "cudnn", "fa3"):
        fresh = {"forward": start, "backward": start}
        files[H100.id].attention[library] = attention(H100, published[library], fresh, every, library, PUBLISHED)
    lent = files[H100.id].attention["fa2"]
    source = SIMUMAX.format("a100_pcie") + "; sequence, head and mask terms of fa2 on h100-sxm-80gb"
    files[PCIE.id].attention["fa2"] = attention(
        PCIE,
        pick(systems["a100_pcie"], "attention"),
        {way: curve_of(lent, way) for way in WAYS},
        ("fraction", "wave", "latency"),
        "fa2",
        source,
    )
    ratio = (A100.achievable / A100.peak) / (PCIE.achievable / PCIE.peak)
    scaled = {way: asdict(curve_of(files[PCIE.id].attention["fa2"], way)) for way in WAYS}
    for way in WAYS:
        scaled[way]["fraction"] = min(1.0, scaled[way]["fraction"] * ratio)
    files[A100.id].attention["fa2"] = {
        **scaled,
        "error": 0.1,
        "provenance": "transferred",
        "source": "a100-pcie-80gb times the ratio of the best measured matmuls",
    }
    lent = files[H100.id].attention["cudnn"]
    source = SIMUMAX.format("b200_bf16_ceperm") + "; head and mask terms of cudnn on h100-sxm-80gb"
    lent_ways = {"forward": curve_of(lent, "forward", rows=256), "backward": curve_of(lent, "backward")}
    files[B200.id].attention["cudnn"] = attention(
        B200, pick(systems["b200_bf16_ceperm"], "attention"), lent_ways, ("fraction", "wave", "latency", "setup"), "cudnn", source
    )
    return list(files.values())


def text(file: File) -> str:
    """TOML of one constants file."""
    gpu = file.gpu
    out = [
        f'# Written by `python -m windtunnel.compute.fit`; equations and error table: docs/kernels.md.\nid = "{gpu.id}"',
        f'architecture = "{gpu.architecture}"\n',
        "[reference]",
        f"peak = {gpu.peak:.5g}",
        f"achievable = {gpu.achievable:.5g}",
        f"sms = {gpu.sms}",
        f"l2 = {gpu.l2:.9g}",
        f"power = {gpu.power}",
        f"narrow = {gpu.narrow:.4g}\n",
        "[gemm]",
        *_values(file.gemm),
    ]
    for name, table in file.memory.items():
        out += [f"\n[memory.{name}]", *_values(table)]
    for name, table in file.attention.items():
        out += [f"\n[attention.{name}]", *_values({k: v for k, v in table.items() if not isinstance(v, dict)})]
        for way in ("forward", "backward"):
            out += [f"\n[attention.{name}.{way}]", *_values(table[way])]
    return "\n".join(out) + "\n"


def _values(table: dict[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items()]


def _value(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(f"[{a}, {b}]" for a, b in value) + "]"
    return f"{value:.4g}"


def main() -> None:
    """Command line of the fit."""
    parser = argparse.ArgumentParser(prog="python -m windtunnel.compute.fit", description="refit the kernel constants")
    parser.add_argument("folder", type=Path, help="folder of the published kernel measurements")
    parser.add_argument("--write", type=Path, default=None, help="folder that receives one TOML file per GPU")
    options = parser.parse_args()
    for file in build(options.folder):
        if options.write is not None:
            (options.write / f"{file.gpu.id}.toml").write_text(text(file), encoding="utf-8")


if __name__ == "__main__":
    main()
