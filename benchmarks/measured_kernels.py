"""Kernels of inference engines, predicted against measured ones: by GPU, engine, class and format.

python benchmarks/measured_kernels.py [FOLDER] [--system h100_sxm,...] [--transfer]

FOLDER has aiconfigurator's tables (SYSTEM/FAMILY/BACKEND/VERSION/TABLE.parquet); without it, those of the wheel of
`pip install 'windtunnel[measured]'` are read. Curves are fitted anew on four of five shapes, errors are those of the fifth, chosen
by a hash. `--transfer`: each GPU by the curves of the catalogue's nearest other GPU, over all of its rows; a system that no fit
saw (h200_sxm, gb300, ...) by those that the catalogue chooses for it. Without tables the script says so and ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import windtunnel as wt
from windtunnel.base.errors import WindtunnelError
from windtunnel.calibrate.engines.catalogue import ENGINES, SYSTEMS, error_lines, fit_engines
from windtunnel.calibrate.engines.fit import statistics_of
from windtunnel.calibrate.engines.score import score_curves
from windtunnel.compute.engines import file
from windtunnel.compute.engines.seconds import engine_device
from windtunnel.spec import load_gpu

LIMITS = {
    "linear bf16": 6.0,
    "linear": 10.0,
    "prefill": 8.0,
    "windowed": 8.0,
    "latent prefill": 8.0,
    "experts": 12.0,
    "decode": 10.0,
    "latent decode": 10.0,
}
"""Per cent of the median error that a class of 1,024 tokens and more should keep, by the beginning of its name."""

SMALL = 12.0
"""That below 1,024 tokens."""


def limit_of(what: str, part: str) -> float | None:
    """The median that a line should keep."""
    if part.startswith("below"):
        return SMALL
    return next((limit for name, limit in LIMITS.items() if what.startswith(name)), None)


def transfer_lines(folder: Path | None, systems: list[str]) -> Iterator[tuple[str, ...]]:
    """Each GPU by another one's curves."""
    for system in systems:
        read = wt.read_measured(folder, systems=[system])
        gpu = load_gpu(read.engines[0].gpu)
        for engine in ENGINES:
            data = [one.data for one in read.engines if one.engine == engine and one.data is not None]
            curves, source = file.choose_other(gpu, engine)
            for what, errors, tokens in score_curves(curves, engine_device(gpu), data):
                for part, found in statistics_of(errors, tokens).items():
                    figures = (f"{found.n:.0f}", f"{found.median_pct:.1f}", f"{found.p90_pct:.1f}", f"{found.bias_pct:+.1f}")
                    yield (f"{gpu.id} by {source}", engine, what, part, *figures)


def show(lines: Iterator[tuple[str, ...]], factor: float) -> None:
    """The table, with what each line should keep, `factor` times the limits."""
    print(f"{'GPU':32} {'engine':7} {'class':22} {'tokens':11} {'rows':>7} {'median':>7} {'p90':>7} {'bias':>7}  %  limit")
    kept = counted = 0
    for gpu, engine, what, part, rows, median, p90, bias in lines:
        limit = limit_of(what, part)
        good = "" if limit is None else "ok" if float(median) <= factor * limit else "no"
        counted += bool(good)
        kept += good == "ok"
        wanted = "" if limit is None else f"{factor * limit:g} {good}"
        print(f"{gpu:32} {engine:7} {what:22} {part:11} {rows:>7} {median:>7} {p90:>7} {bias:>7}     {wanted}", flush=True)
    print(f"{kept} of {counted} lines keep their limit")


def main() -> None:
    """Score the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--system", default=",".join(SYSTEMS))
    parser.add_argument("--transfer", action="store_true")
    options = parser.parse_args()
    systems = options.system.split(",")
    try:
        lines = transfer_lines(options.folder, systems) if options.transfer else error_lines(fit_engines(options.folder, systems))
        show(lines, 2.0 if options.transfer else 1.0)
    except WindtunnelError as error:
        print(f"no tables: {error}")
        sys.exit(0)


if __name__ == "__main__":
    main()
